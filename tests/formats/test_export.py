"""Exports: what the tools themselves say of them, and that text from outside stays text."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.spec import SETTINGS
from tests.formats import golden
from tests.formats.planned import HOSTILE, exported, hostile, job, target
from wizard.commands import export as command
from wizard.formats import exporting
from wizard.formats.exporting import FORMATS, PEERS, SEVERAL
from wizard.formats.jobs import Job
from wizard.formats.reader import fields
from wizard.formats.values import Exported
from wizard.formats.writer import ADAPTER_ONLY
from wizard.machines import several
from wizard.problem import ProblemError

SHELLCHECK = Path(sysconfig.get_path("scripts")) / "shellcheck"
KUBERNETES = ("1.28", "1.31", "1.34")
SCRIPTS = ("bash", "torchrun", "sbatch", "swift")


ONE: dict[str, tuple[str, dict[str, Any]]] = {
    "single": ("rtx4090", {}),
    "qlora": ("t4x2", {"method": "qlora"}),
    "zero3": ("h100x8", {"method": "full", "strategy": "zero3"}),
    "offload": ("a10gx4", {"method": "full", "strategy": "zero3", "offload": "parameters"}),
    "cpu": ("cpu", {}),
}
TWO: dict[str, tuple[str, dict[str, Any]]] = {
    "two machines": ("h100x8", {}),
    "two machines zero3": ("h100x8", {"method": "full", "strategy": "zero3"}),
    "two without accelerators": ("cpu", {}),
}
NAMES = (*ONE, *TWO)


def named(name: str) -> Job:
    """A kind of plan, on one machine or on two."""
    machine, settings = (ONE | TWO)[name]
    return job(machine, 2 if name in TWO else 1, **settings)


def cases() -> Iterator[Any]:
    for name in NAMES:
        for kind in FORMATS:
            if (name in TWO) == (kind == "torchrun") or kind in SEVERAL[1:]:
                often = kind != "bash" and name in ("zero3", "two machines")
                marks = [] if often else [pytest.mark.slow]
                yield pytest.param(name, kind, id=f"{name}-{kind}", marks=marks)


def bash_in(done: Exported, kind: str) -> dict[str, str]:
    """Every script of an export, also those inside another file."""
    text = done.files[done.main]
    if kind in SCRIPTS:
        return {"main": text}
    documents = list(yaml.safe_load_all(text))
    if kind == "kubernetes":
        return {"launch": documents[0]["data"]["launch.sh"]}
    if kind == "skypilot":
        return {key: documents[0][key] for key in ("setup", "run") if key in documents[0]}
    return {}


def check_bash(text: str, folder: Path) -> None:
    file = folder / "script.sh"
    file.write_text(text, encoding="utf-8", newline="")
    parsed = subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")
    checked = subprocess.run(
        [SHELLCHECK, "--norc", "--shell=bash", file], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize(("name", "kind"), cases())
def test_bash_and_shellcheck_have_nothing_to_say_of_an_exported_script(
    name: str, kind: str, tmp_path: Path
) -> None:
    for text in bash_in(exported(named(name), kind), kind).values():
        check_bash(text, tmp_path)


KINDS = [kind for kind in FORMATS if kind != "torchrun"]
ROTATED = [(KINDS[n % len(KINDS)], text) for n, text in enumerate(HOSTILE)]
PRODUCT = [pair for pair in itertools.product(KINDS, HOSTILE) if pair not in ROTATED]


@pytest.mark.parametrize(
    ("kind", "text"),
    [*ROTATED, *(pytest.param(*pair, marks=pytest.mark.slow) for pair in PRODUCT)],
)
def test_hostile_text_leaves_every_format_whole(kind: str, text: str, tmp_path: Path) -> None:
    done = exported(hostile(text), kind)
    for script in bash_in(done, kind).values():
        check_bash(script, tmp_path)
    for name, content in done.files.items():
        if name.endswith(".yaml"):
            assert all(isinstance(one, dict) for one in yaml.safe_load_all(content))
        elif name.endswith(".json"):
            assert isinstance(json.loads(content), dict)


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("zero3", "two machines") else pytest.param(name, marks=pytest.mark.slow)
        for name in NAMES
    ],
)
def test_the_schemas_of_kubernetes_take_the_manifest(name: str) -> None:
    done = exported(named(name), "kubernetes")
    documents = list(yaml.safe_load_all(done.files["job.yaml"]))
    assert [one["kind"] for one in documents] == ["ConfigMap", "Service", "Job"]
    for one in documents:
        for version in KUBERNETES:
            kubernetes_validate.validate(one, version, strict=True)


def test_a_hostile_name_is_no_name_in_the_cluster() -> None:
    for text in HOSTILE:
        name = dataclasses.replace(hostile("plain"), name=text).label
        assert re.fullmatch(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?", name)


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("name", list(ONE))
def test_every_setting_is_written_or_said_not_to_be(name: str, kind: str) -> None:
    plan = named(name).plan
    done = exported(named(name), kind)
    assert {one.key for one in done.left} <= set(SETTINGS)
    text = done.files[done.main]
    for one in done.left:
        assert one.why
        assert f"{one.key} = " in text.partition("\nstage")[0].partition("\nbase_model")[0]
    if plan.spec.method.method == "full":
        assert not ADAPTER_ONLY & {one.key for one in done.left}


@pytest.mark.parametrize("kind", PEERS)
@pytest.mark.parametrize("name", list(ONE))
def test_every_written_key_is_one_that_the_other_trainer_has(name: str, kind: str) -> None:
    done = exported(named(name), kind)
    text = done.files[done.main]
    if kind == "swift":
        keys = {w[2:].partition("=")[0] for w in text.split() if w.startswith("--")}
    else:
        keys = set(yaml.safe_load(text))
    assert keys
    assert keys <= fields(kind)[1] | {"compute_environment", "distributed_type"} | (
        {"mixed_precision", "use_cpu"} if kind == "accelerate" else set()
    )


def words_of(script: str, folder: Path) -> list[str]:
    """The words that `swift` is called with, by bash itself."""
    folder.mkdir(exist_ok=True)
    swift = folder / "swift"
    swift.write_text('#!/usr/bin/env bash\nprintf "%s\\0" "$@" >"$WORDS"\n')
    swift.chmod(0o755)
    words = folder / "words"
    subprocess.run(
        ["bash", "-s"],
        input=script.encode(),
        cwd=folder,
        env={"PATH": f"{folder}:/usr/bin:/bin", "WORDS": str(words)},
        check=True,
        timeout=60,
    )
    assert {path.name for path in folder.iterdir()} == {"swift", "words"}
    return words.read_bytes().decode().split("\0")[:-1]


texts = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=60
)


@pytest.mark.wide
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(texts)
def test_any_text_reaches_the_other_trainer_unchanged(tmp_path: Path, text: str) -> None:
    told = hostile(text)
    words = words_of(exported(told, "swift").files["swift.sh"], tmp_path)
    assert f"--model={text}" in words
    assert f"--system={text}" in words
    factory = exported(told, "llamafactory").files
    written = yaml.safe_load(factory["llamafactory.yaml"])
    assert (written["model_name_or_path"], written["default_system"]) == (text, text)
    assert json.loads(factory["dataset_info.json"])["tunewright"]["file_name"] == text
    written = yaml.safe_load(exported(told, "axolotl").files["axolotl.yaml"])
    assert (written["base_model"], written["datasets"][0]["path"]) == (text, text)
    task = yaml.safe_load(exported(told, "skypilot").files["task.yaml"])
    assert told.run_sh in task["run"]
    (config, *_) = yaml.safe_load_all(exported(told, "kubernetes").files["job.yaml"])
    assert told.run_sh in config["data"]["launch.sh"]


def test_several_machines_have_the_devices_and_the_memory_of_all() -> None:
    one = job("h100x8").facts
    three = several(one, 3, devices=(0, 1, 5))
    assert len(three.devices) == 9
    assert [device.index for device in three.devices] == list(range(9))
    assert {device.uuid for device in three.devices} == {None}
    assert three.host.memory_available_bytes == 3 * (one.host.memory_available_bytes or 0)


def test_ranks_of_a_job_are_those_of_one_machine() -> None:
    two = named("two machines")
    assert two.plan.spec.parallel.num_devices == 16
    assert "\nRANKS=8 " in two.run_sh
    assert "#SBATCH --gpus-per-node=8\n" in exported(two, "sbatch").files["job.sbatch"]
    (_, _, work) = yaml.safe_load_all(exported(two, "kubernetes").files["job.yaml"])
    assert work["spec"]["completions"] == 2
    assert yaml.safe_load(exported(two, "skypilot").files["task.yaml"])["num_nodes"] == 2


@pytest.mark.parametrize(
    ("kind", "changes", "what"),
    [
        ("bash", {"nodes": 2}, "is for one machine"),
        ("axolotl", {"nodes": 2}, "is for one machine"),
        ("torchrun", {}, "for several machines"),
        ("kubernetes", {"image": None}, "an image"),
        ("kubernetes", {"image": "a b"}, "an image"),
        ("kubernetes", {"claim": None}, "a volume"),
        ("kubernetes", {"claim": "A_b"}, "a volume"),
        ("kubernetes", {"mount": "runs"}, "no absolute path"),
    ],
)
def test_a_target_that_cannot_be_met_is_refused(
    kind: str, changes: dict[str, Any], what: str
) -> None:
    with pytest.raises(ProblemError, match=what) as caught:
        exporting.check(dataclasses.replace(target(kind), **changes))
    assert caught.value.problem.exit_code == 2


def test_ranks_that_machines_cannot_share_evenly_are_refused() -> None:
    with pytest.raises(ProblemError, match="not shared evenly by 3 machines"):
        exporting.check_nodes(job("h100x8").plan, 3)


def test_the_command_offers_the_formats_there_are() -> None:
    assert command.FORMATS == FORMATS


def test_golden_exports_of_presets_on_machines() -> None:
    """To accept a change: `python -m tests.formats.golden`, then read the difference."""
    kept = {path.name: path.read_text(encoding="utf-8") for path in golden.FOLDER.iterdir()}
    assert dict(golden.made()) == kept
