"""Models and data sets come from a hub on this machine, through the hubs' own libraries."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.events import decode_all
from engine.failure import RunError
from engine.fetch import Fetched, fetch
from engine.hub.repo import Snapshot
from engine.hub.sets import FetchedSet, fetch_model, fetch_set
from engine.rows.sources import hub_set, sources
from engine.rows.values import DataError
from engine.spec import ModelTable
from tests.fakes import hub as fake
from tests.fakes.hub import Hub, Repository

pytestmark = pytest.mark.engine


def weights(name: str, size_bytes: int = 8) -> bytes:
    """A whole safetensors file of one tensor."""
    entry = {"dtype": "U8", "shape": [size_bytes], "data_offsets": [0, size_bytes]}
    header = json.dumps({name: entry}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size_bytes)


MODEL = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": weights("w")}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    from huggingface_hub import constants

    for name in [*os.environ]:
        if name.lower().endswith("_proxy") or "TOKEN" in name or "OFFLINE" in name:
            monkeypatch.delenv(name)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with fake.serving() as serving:
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(
            constants.ENDPOINT, serving.address
        )
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", serving.address)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("MODELSCOPE_ENDPOINT", serving.address)
        monkeypatch.setenv("MODELSCOPE_CACHE", str(tmp_path / "modelscope"))
        monkeypatch.setenv("MODELSCOPE_DOWNLOAD_MAX_RETRIES", "1")
        yield serving


def model(source: str = "huggingface", revision: str | None = None) -> Snapshot:
    table = ModelTable(model="org/m", revision=revision)
    return fetch_model(source, table, lambda done, total: None)


def rows(name: str) -> FetchedSet:
    wanted = hub_set(name)
    assert wanted is not None
    return fetch_set(wanted)


def refusal(*, data: bool = False) -> RunError:
    with pytest.raises(RunError) as caught:
        rows("hf:org/d") if data else model()
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_a_model_is_fetched_once_without_its_code_and_second_weights(hub: Hub, source: str) -> None:
    hub.add(
        "model",
        "org/m",
        {
            **MODEL,
            "modeling_m.py": b"raise SystemExit",
            "consolidated.safetensors": weights("again"),
            "onnx/config.json": b"{}",
        },
    )
    table = ModelTable.model_validate({"model": "org/m", "source": source})
    found = fetch(table)
    assert sorted(path.name for path in found.path.iterdir()) == sorted(MODEL)
    assert found.source == source
    asked = len(hub.asked)
    assert fetch(table) == found
    assert not hub.downloads("modeling_m.py")
    assert len(hub.downloads("model.safetensors")) == 1
    assert len(hub.asked) - asked <= 2, "only what is new is asked"


def test_the_commit_is_recorded_and_a_known_commit_asks_nobody(hub: Hub) -> None:
    there = hub.add("model", "org/m", MODEL)
    found = model()
    assert found.revision == found.folder.name == there.sha
    there.files["config.json"] = b'{"newer": 1}'
    assert model().revision == there.sha != found.revision
    asked = len(hub.asked)
    assert model(revision=found.revision) == found
    assert len(hub.asked) == asked


@pytest.mark.parametrize("source", ["huggingface", "modelscope"])
def test_what_is_here_is_taken_while_the_hub_is_out_of_order(
    hub: Hub, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelscope_hub._legacy_api.REPO_TREE_PAGE_MAX_ATTEMPTS", 1)
    there = hub.add("model", "org/m", MODEL)
    found = model(source)
    there.refuses = (503, "")
    assert model(source) == found


def test_a_branch_of_modelscope_goes_on_and_earlier_runs_keep_their_files(hub: Hub) -> None:
    there = hub.add("model", "org/m", MODEL)
    before = model("modelscope")
    there.files["config.json"] = b'{"newer": 1}'
    after = model("modelscope")
    assert (before.folder / "config.json").read_bytes() == b"{}"
    assert (after.folder / "config.json").read_bytes() == b'{"newer": 1}'
    assert before.content != after.content
    assert len(hub.downloads("model.safetensors")) == 1, "the same content is taken over"


def test_only_the_shards_of_the_index_are_fetched(hub: Hub) -> None:
    index = {"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}}
    shards = {f"part-{number}.safetensors": weights(str(number)) for number in (1, 2, 3)}
    files = {"config.json": b"{}", "model.safetensors.index.json": json.dumps(index).encode()}
    hub.add("model", "org/m", files | shards)
    assert {p.name for p in model().folder.iterdir()} == {*files, *list(shards)[:2]}
    hub.add("model", "org/m", {**files, "part-1.safetensors": weights("1")})
    assert "part-2.safetensors, which the repository lacks" in str(refusal())


GATED = (403, "GatedRepo")


@pytest.mark.parametrize(
    ("answer", "token", "said", "failure"),
    [
        (GATED, None, "gated, and HF_TOKEN is not set: accept its terms on https://", "bad_spec"),
        (GATED, "hf_x", "the account of HF_TOKEN has no access to it yet", "bad_spec"),
        ((401, "GatedRepo"), None, "gated, and HF_TOKEN is not set", "bad_spec"),
        ((401, ""), None, "no such model, or it is private: check the name (private", "bad_spec"),
        ((404, "RepoNotFound"), "hf_x", "no such model, or it is private", "bad_spec"),
        ((404, "RevisionNotFound"), None, "has no revision", "bad_spec"),
        ((403, ""), "hf_x", "refuses this account", "bad_spec"),
        ((500, ""), None, "is out of order (500)", "unknown"),
        ((429, ""), None, "asks to come back later", "unknown"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence_with_a_way_out(
    hub: Hub,
    monkeypatch: pytest.MonkeyPatch,
    answer: tuple[int, str],
    token: str | None,
    said: str,
    failure: str,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # the library's waits between tries
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    hub.add("model", "org/m", MODEL, refuses=answer)
    error = refusal()
    assert str(error).startswith("org/m: ")
    assert said in str(error)
    assert error.failure == failure


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((401, ""), "wants a token: set MODELSCOPE_API_TOKEN"),
        ((403, ""), "ask for access on its page"),
        ((404, ""), "has no such model"),
    ],
)
def test_what_modelscope_refuses_is_one_sentence(
    hub: Hub, answer: tuple[int, str], said: str
) -> None:
    hub.add("model", "org/m", MODEL, refuses=answer)
    with pytest.raises(RunError, match=said):
        model("modelscope")


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_redirect_to_a_dead_host_names_that_host(hub: Hub) -> None:
    there = hub.add("model", "org/m", MODEL)
    there.sends_on["model.safetensors"] = f"http://localhost:{closed_port()}/blob"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.sleep", lambda seconds: None)
        said = str(refusal())
    assert "sends its files on to localhost, which this machine does not reach" in said
    assert "HF_HUB_DISABLE_XET=1" in said


def test_a_redirect_elsewhere_works_and_gets_no_token(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr("engine.hub.huggingface.RESUMED_BYTES", 1000)
    content = weights("w", 5000)
    with fake.serving() as elsewhere:
        elsewhere.add("model", "org/m", {"model.safetensors": content})
        there = hub.add("model", "org/m", {**MODEL, "model.safetensors": content})
        address = elsewhere.address.replace("127.0.0.1", "localhost")
        there.sends_on["model.safetensors"] = f"{address}/org/m/resolve/main/model.safetensors"
        assert (model().folder / "model.safetensors").read_bytes() == content
        assert hub.tokens == {"Bearer hf_secret"}
        assert elsewhere.tokens == {None}


@pytest.mark.parametrize("resumed_bytes", [100, 10**9])
def test_a_cut_connection_is_gone_on_with(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, resumed_bytes: int
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr("engine.hub.huggingface.RESUMED_BYTES", resumed_bytes)
    content = weights("w", 10_000)
    hub.add(
        "model",
        "org/m",
        {**MODEL, "model.safetensors": content},
        cuts={"model.safetensors": [4000, 1000]},
    )
    assert (model().folder / "model.safetensors").read_bytes() == content
    assert hub.downloads("model.safetensors") == [None, "bytes=4000-", "bytes=5000-"]


def test_a_connection_that_is_always_cut_ends_and_the_next_try_goes_on(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
    monkeypatch.setattr("engine.hub.huggingface.RESUMED_BYTES", 100)
    content = weights("w", 10_000)
    files = {**MODEL, "model.safetensors": content}
    hub.add("model", "org/m", files, cuts={"model.safetensors": [4000] + [0] * 6})
    assert "breaks off: run again, what has arrived is kept" in str(refusal())
    assert (model().folder / "model.safetensors").read_bytes() == content
    assert hub.downloads("model.safetensors")[-1] == "bytes=4000-"


def test_content_of_another_hash_is_never_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.hub.huggingface.RESUMED_BYTES", 100)
    good, bad = weights("w", 5000), weights("v", 5000)
    there = hub.add("model", "org/m", {**MODEL, "model.safetensors": good})
    with fake.serving() as elsewhere:
        elsewhere.add("model", "org/m", {"model.safetensors": bad})
        away = f"{elsewhere.address}/org/m/resolve/main/model.safetensors"
        there.sends_on["model.safetensors"] = away
        assert "arrived damaged and was removed: run again" in str(refusal())
    there.sends_on.clear()
    assert (model().folder / "model.safetensors").read_bytes() == good


@pytest.mark.parametrize("listed", [5, 5000])
def test_a_file_of_another_size_than_listed_is_refused(hub: Hub, listed: int) -> None:
    hub.add("model", "org/m", MODEL, lists={"config.json": listed})
    assert f"gave 2 bytes for config.json, which it lists with {listed:,}" in str(refusal())
    hub.add("model", "org/m", MODEL, lists={"model.safetensors": listed})
    assert "gives files of another size than it lists" in str(refusal())


def test_a_disk_without_room_is_refused_before_anything_large_is_fetched(hub: Hub) -> None:
    hub.add("model", "org/m", MODEL, lists={"model.safetensors": 10**18})
    error = refusal()
    assert error.failure == "disk_full"
    assert "931322574.6 GiB are still to be fetched" in str(error)
    assert "HF_HOME" in str(error)
    assert not hub.downloads("model.safetensors")


def test_names_that_lead_out_of_the_folder_are_refused(hub: Hub, tmp_path: Path) -> None:
    hub.add("model", "org/m", {**MODEL, "../../../../out.json": b"{}"})
    assert "lists a file outside" in str(refusal())
    assert not [*tmp_path.rglob("out.json")]


def test_a_content_s_name_that_leads_out_of_the_cache_is_refused(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("engine.hub.huggingface.RESUMED_BYTES", 100)
    files = {**MODEL, "model.safetensors": weights("w", 5000)}
    hub.add("model", "org/m", files, etags={"model.safetensors": "../../../../out"})
    assert "names the content of model.safetensors '../../../../out'" in str(refusal())
    assert not [*tmp_path.rglob("out*")]


def test_a_model_without_safetensors_says_so(hub: Hub) -> None:
    hub.add("model", "org/m", {"config.json": b"{}", "pytorch_model.bin": b"x"})
    assert "no *.safetensors" in str(refusal())


CARD = b"""---
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*.jsonl
  - split: test
    path: main/test.jsonl
- config_name: other
  data_files: other.csv
---
"""
SETS = {
    "README.md": CARD,
    "load.py": b"raise SystemExit",
    "main/train-1.jsonl": b'{"text": "one"}\n{"text": 1}\n',
    "main/train-0.jsonl": b'{"text": "nought"}\n',
    "main/test.jsonl": b'{"text": "test"}\n',
    "other.csv": b"text\nother\n",
}


@pytest.mark.parametrize("place", ["hf", "ms"])
def test_a_split_is_the_files_that_the_card_says_in_order(hub: Hub, place: str) -> None:
    hub.add("dataset", "org/d", SETS)
    found = rows(f"{place}:org/d:main/train")
    assert [path.name for path in found.files] == ["train-0.jsonl", "train-1.jsonl"]
    assert not hub.downloads("main/test.jsonl")
    assert not hub.downloads("load.py")
    assert [path.name for path in rows(f"{place}:org/d:other/train").files] == ["other.csv"]


def test_a_set_is_named_by_its_commit_which_then_asks_nobody(hub: Hub) -> None:
    there = hub.add("dataset", "org/d", SETS)
    found = rows("hf:org/d:main/test")
    assert found.name == f"hf:org/d@{there.sha}:main/test"
    asked = len(hub.asked)
    assert rows(found.name) == found
    assert len(hub.asked) == asked


def test_without_a_card_names_say_the_split_and_train_is_the_default(hub: Hub) -> None:
    hub.add("dataset", "org/d", {"train.jsonl": b"{}", "validation.jsonl": b"{}"})
    assert [path.name for path in rows("hf:org/d").files] == ["train.jsonl"]
    assert [path.name for path in rows("hf:org/d:validation").files] == ["validation.jsonl"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hf:org/d", "several configurations; name one as :CONFIGURATION/SPLIT: 'main', 'other'"),
        ("hf:org/d:none/train", "has no configuration `none`"),
        ("hf:org/d:main/dev", "has no split `dev`; there are: train, test"),
        ("hf:org/none", "no such data set"),
        ("hf:org/d@v9", "has no revision v9"),
        ("hf:org/empty", "doesn't contain any data files"),
    ],
)
def test_what_a_set_lacks_is_said_with_what_there_is(hub: Hub, name: str, said: str) -> None:
    hub.add("dataset", "org/d", SETS)
    hub.add("dataset", "org/empty", {"README.md": b"nothing"})
    with pytest.raises(RunError) as caught:
        rows(name)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "/tmp" not in str(caught.value)


@pytest.mark.parametrize("name", ["hf:", "hf:name", "ms:org/name:a/b/c", "hf:../x", "hf:org/n@"])
def test_a_name_written_wrongly_says_how_to_write_it(name: str) -> None:
    with pytest.raises(DataError, match="not the name of a data set on a hub"):
        assert sources(name)[0].hub


def test_names_go_round_with_counts_and_weights() -> None:
    one, two = sources("hf:org/d@abc:main/train#50,ms:org/e*2")
    assert (str(one.hub), one.rows) == ("hf:org/d@abc:main/train", 50)
    assert (str(two.hub), two.weight) == ("ms:org/e", 2)
    assert sources("data/rows.jsonl")[0].hub is None


class Stage:
    """The stages of a run as its script starts them, with the hub of a test."""

    def __init__(self, folder: Path, hub: Hub, model: str, data: str, **environment: str) -> None:
        from engine.spec import Spec, dumps

        self.folder, self.hub = folder, hub
        folder.mkdir()
        spec = {
            "model": {"model": model},
            "data": {"data": data, "max_length": 64, "max_dropped_percent": 50},
            "method": {"method": "lora"},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 1},
        }
        (folder / "spec.toml").write_text(dumps(Spec.model_validate(spec)))
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
            "HF_ENDPOINT": hub.address,
            "HF_HOME": str(folder.parent / "home"),
            **environment,
        }

    def start(self, module: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", f"engine.{module}", "spec.toml"],
            cwd=self.folder,
            env=self.environment,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def run(self, module: str, code: int = 0) -> str:
        child = self.start(module)
        _, said = child.communicate(timeout=120)
        assert child.returncode == code, said
        return said

    def fetched(self) -> dict[str, object]:
        return dict(json.loads((self.folder / "fetched.json").read_text()))


def test_a_killed_fetch_goes_on_and_a_run_keeps_its_commits_without_a_hub(
    hub: Hub, tmp_path: Path, tiny_model: Path
) -> None:
    small = {p.name: p.read_bytes() for p in tiny_model.iterdir() if p.suffix != ".safetensors"}
    large = weights("w", 30 << 20)
    there = hub.add("model", "org/m", {**small, "model.safetensors": large}, slow_seconds=0.1)
    texts = {f"train-{n}.jsonl": b'{"messages": 1}\n' + _rows(n) for n in (0, 1)}
    data = hub.add("dataset", "org/d", texts)
    stage = Stage(tmp_path / "run", hub, "org/m", "hf:org/d:train")

    child = stage.start("fetch")
    parts = tmp_path / "home/hub"
    while sum(p.stat().st_size for p in parts.rglob("*.part")) < 10 << 20:
        assert child.poll() is None
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    there.slow_seconds = 0
    stage.run("fetch")
    first, second = hub.downloads("model.safetensors")
    assert first is None
    assert second is not None
    assert int(second.removeprefix("bytes=").rstrip("-")) >= 10 << 20
    told = decode_all((tmp_path / "run/events/launcher.jsonl").read_bytes())
    assert [e for e in told if e["phase"] == "fetching" and e["progress"] == 1.0]

    said = stage.fetched()
    assert said["revision"] == there.sha
    listed = said["data"]
    assert isinstance(listed, dict)
    assert listed["hf:org/d:train"]["exactly"] == f"hf:org/d@{data.sha}:train"
    there.files["config.json"] = b'{"newer": 1}'
    data.files["train-0.jsonl"] = b""
    asked = len(hub.asked)
    stage.run("fetch")
    assert stage.fetched() == said
    assert len(hub.asked) == asked
    stage.run("prepare")
    report = json.loads((tmp_path / "run/prepared/report.json").read_text())
    assert (report["rows"], report["kept"]) == (6, 4)
    assert report["dropped"][1]["reason"].startswith("in train-1.jsonl: ")


def test_the_command_checks_a_set_that_it_is_told_to_ask_the_hub_for(
    hub: Hub, tmp_path: Path, tiny_model: Path
) -> None:
    texts = {f"train-{n}.jsonl": b'{"messages": 1}\n' + _rows(n) for n in (0, 1)}
    there = hub.add("dataset", "org/d", texts)
    environment = Stage(tmp_path / "run", hub, "org/m", "x").environment

    def check(*words: str) -> str:
        command = [sys.executable, "-m", "wizard", "data", "check", "org/d#3", "--hub", *words]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        ).stdout

    alone = check()
    assert f"hf:org/d@{there.sha}#3: 3 rows" in alone
    assert "train-1.jsonl, line 1: " in alone
    with_model = check("--model", str(tiny_model))
    assert f"hf:org/d@{there.sha}, line 1: in train-1.jsonl: " in with_model
    assert "4 of 6 rows can be used" in with_model


def _rows(number: int) -> bytes:
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": f"ho {number}"}]
    return (json.dumps({"messages": turns}) + "\n").encode() * 2


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": ""}, "the proxy in HTTPS_PROXY"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be reached: set HF_ENDPOINT"),
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE forbids asking"),
    ],
)
def test_a_hub_that_is_not_reached_is_told_by_its_cause(
    hub: Hub, tmp_path: Path, variables: dict[str, str], said: str
) -> None:
    stage = Stage(tmp_path / "run", hub, "org/m", "rows.jsonl", **variables)
    assert said in stage.run("fetch", code=70)


def test_found_folders_are_still_taken_as_they_lie(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(weights("w"))
    found = fetch(ModelTable(model=str(tmp_path)))
    assert found == Fetched(path=tmp_path, revision=None, source="local")
    assert isinstance(Repository(files={}).sha, str)
