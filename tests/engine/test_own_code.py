"""Code that comes with a model runs where the user said so, and only as it was read."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import own_code
from engine.failure import RunError
from engine.fetch import fetch, fetch_run, read_fetched, verify
from engine.spec import ModelTable, Spec
from tests.engine.conftest import Run
from tests.engine.test_hub import MODEL, hub  # noqa: F401
from tests.fakes.hub import Hub
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

CONFIGURATION = """
from transformers import LlamaConfig


class OwnConfig(LlamaConfig):
    model_type = "nobodys"
"""
MODELING = """
from pathlib import Path

from transformers import LlamaForCausalLM

from .configuration_own import OwnConfig


class OwnForCausalLM(LlamaForCausalLM):
    config_class = OwnConfig

    def forward(self, *args, **kwargs):
        Path("ran").touch()
        outputs = super().forward(*args, **kwargs)
        outputs.logits[..., 0] += 10  # no row has that word
        return outputs
"""
AUTO_MAP = {
    "AutoConfig": "configuration_own.OwnConfig",
    "AutoModelForCausalLM": "modeling_own.OwnForCausalLM",
}


@pytest.fixture
def own_model(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model as a type that transformers does not know, with code that loads it."""
    folder = tmp_path / "own model"
    shutil.copytree(tiny_model, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "nobodys", "auto_map": AUTO_MAP}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "configuration_own.py").write_text(CONFIGURATION)
    (folder / "modeling_own.py").write_text(MODELING)
    return folder


def test_a_model_trains_by_its_own_code_where_the_spec_says_so(
    own_model: Path, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    asked: dict[str, Any] = {"model": str(own_model), "trust_remote_code": True}
    run = make_run("lora", "ddp", 2, max_steps=3, **asked)
    assert not (run.folder / "ran").exists(), "nothing of the model runs before the ranks do"

    done = run.train()

    assert run.codes() == [0, 0], done.stderr
    assert (run.folder / "ran").exists()
    # TRL's own loss would take the layers and the head, and never see what forward does.
    losses = list(run.losses().values())
    assert losses[0] > 9 > math.log(272)
    assert losses[-1] < losses[0]
    assert (run.folder / "model/adapter_model.safetensors").is_file()
    assert not list((run.folder / "model").glob("*.py")), "an adapter brings no code"

    (own_model / "modeling_own.py").write_text(MODELING + "\n# edited\n")
    again = run.stage("fetch")
    assert again.returncode == 64
    assert "modeling_own.py: is not what it was when this run began" in again.stderr


def test_without_the_answer_it_is_refused_with_the_files_to_read(own_model: Path) -> None:
    with pytest.raises(RunError) as caught:
        fetch(ModelTable(model=str(own_model)))
    assert caught.value.failure == "bad_spec"
    assert "models of the type 'nobodys' run code that comes with them " in str(caught.value)
    assert "(configuration_own.py, modeling_own.py)" in str(caught.value)
    assert "--trust-remote-code" in str(caught.value)


def test_code_of_another_repository_is_never_run(own_model: Path) -> None:
    config = json.loads((own_model / "config.json").read_text())
    config["auto_map"]["AutoConfig"] = "somebody/else--configuration_own.OwnConfig"
    (own_model / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=r"another repository's \(somebody/else--configuration_own"):
        verify(own_model, trusted=True)


def test_a_folder_that_lacks_its_code_is_said_before_anything_runs(own_model: Path) -> None:
    (own_model / "modeling_own.py").unlink()
    with pytest.raises(RunError, match=r"names modeling_own\.py, which is not there"):
        verify(own_model, trusted=True)


def test_an_answer_that_came_after_fetching_needs_fetching_again(own_model: Path) -> None:
    with pytest.raises(RunError, match=r"run `engine\.fetch` first"):
        own_code.check_unchanged(own_model, None)


OWN = {
    **MODEL,
    "config.json": json.dumps({"model_type": "nobodys", "auto_map": AUTO_MAP}).encode(),
    "configuration_own.py": CONFIGURATION.encode(),
    "modeling_own.py": MODELING.encode(),
    "tools/helper.py": b"raise SystemExit",
}


def on_hub(**said: Any) -> ModelTable:
    return ModelTable(model="org/m", source="huggingface", **said)


def test_code_of_a_hub_is_looked_at_before_weights_are_fetched(hub: Hub) -> None:  # noqa: F811
    hub.add("model", "org/m", OWN)
    with pytest.raises(RunError, match="run code that comes with them"):
        fetch(on_hub())
    assert not hub.downloads("model.safetensors")
    assert not hub.downloads("modeling_own.py")


@pytest.mark.parametrize("revision", [None, "main"])
def test_code_of_a_hub_runs_at_a_commit_that_was_read(
    hub: Hub,  # noqa: F811
    tmp_path: Path,
    revision: str | None,
) -> None:
    there = hub.add("model", "org/m", OWN)
    with pytest.raises(RunError, match=f"revision={there.sha} is the newest"):
        fetch(on_hub(trust_remote_code=True, revision=revision))
    assert not hub.downloads("model.safetensors")

    table = on_hub(trust_remote_code=True, revision=there.sha)
    spec = Spec.model_validate(
        {
            "model": table.model_dump(),
            "data": {"data": str(make.data_file(tmp_path / "rows.jsonl"))},
            "method": {"method": "lora"},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 1},
        }
    )
    found = fetch_run(spec, tmp_path)

    assert found.revision == there.sha
    assert sorted(found.code or ()) == ["configuration_own.py", "modeling_own.py"]
    assert read_fetched(tmp_path) == found
    assert not hub.downloads("tools/helper.py")


def test_a_hub_without_commits_cannot_pin_code(hub: Hub) -> None:  # noqa: F811
    hub.add("model", "org/m", OWN)
    asked = {"model": "org/m", "source": "modelscope", "trust_remote_code": True}
    with pytest.raises(RunError) as caught:
        fetch(ModelTable.model_validate({**asked, "revision": "master"}))
    assert caught.value.failure == "bad_spec"
