"""`model` and `settings`: the same facts as the pages show, as lines and as versioned JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.aliases import ALIASES
from engine.spec import SETTINGS
from tests.probe.test_model import folder as model_folder
from wizard import api
from wizard.answers import Answers
from wizard.cli import main
from wizard.probe.model import own_folder
from wizard.settings import every_setting


def document(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main([*argv, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["schema"] == 1
    return found


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)


def test_a_model_is_shown_with_how_it_fits_another_machine(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "Qwen/Qwen2.5-0.5B"
    found = document(capsys, "model", "show", name, "--machine", "4x NVIDIA L40S")
    assert found["model"]["parameters"] == 494_032_768
    assert found["fit"]["fits"]
    assert found["fit"]["device_bytes"] < found["fit"]["device_budget_bytes"]
    assert main(["model", "show", name, "--machine", "L40S"]) == 0
    said = capsys.readouterr().out
    assert "licence: apache-2.0" in said
    assert "on L40S, with rows of 2,048 tokens:" in said
    assert ": fits, " in said


def test_a_model_that_is_not_known_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["model", "show", "Qwen/Qwen3-9000B"]) == 2
    said = capsys.readouterr().err
    assert "not in the table of known models" in said
    assert "--hub asks the hub, as in `tunewright model show Qwen/Qwen3-9000B --hub`" in said


def test_a_model_of_our_own_cache_is_found_by_its_bare_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "cache" / "models" / "small"
    assert main(["model", "show", "SmolLM2-135M"]) == 2
    assert "did you mean HuggingFaceTB/SmolLM2-135M" in capsys.readouterr().err
    model_folder(folder)
    assert document(capsys, "model", "show", "small")["model"]["path"] == str(folder)
    assert document(capsys, "model", "search", "small")["models"][0]["name"] == str(folder)
    planned = api.absolute(Answers(model="small"))
    assert planned.model == str(folder)
    (tmp_path / "small").mkdir()
    assert api.absolute(Answers(model="small")).model == str(tmp_path / "small"), (
        "what is here wins"
    )
    assert own_folder("../models/small") is None


def test_models_are_searched_by_words_in_any_order(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "model", "search", "8b", "qwen3")["models"]
    names = [one["name"] for one in found]
    assert "Qwen/Qwen3-8B" in names
    assert all("qwen3" in name.lower() and "8b" in name.lower() for name in names)
    assert main(["model", "search", "no such thing"]) == 1
    assert "no known model matches" in capsys.readouterr().out
    assert main(["model", "search", "llama-3.1-8b"]) == 0
    assert "Llama-3.1-8B: 8.03 B, llama3.1, base, gated" in capsys.readouterr().out


def test_every_setting_is_listed_and_found_by_every_name_it_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    listed = document(capsys, "settings", "list")["settings"]
    assert [one["name"] for one in listed] == list(SETTINGS)
    from wizard.commands.settings import named

    for alias, name in ALIASES.items():
        assert [one.name for one in named(alias)] == [name]
    for one in every_setting():
        for name in (one.name, *one.names):
            assert one.name in [found.name for found in named(name)] or name in SETTINGS


def test_a_setting_is_shown_with_its_names_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings", "show", "cutoff-len"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("max_length [data]")
    assert "cutoff_len (LLaMA-Factory), sequence_len (axolotl)" in said
    assert main(["settings", "show", "lora_rnk"]) == 2
    assert "did you mean lora_r" in capsys.readouterr().err
    assert main(["settings", "list", "warm-up-that-is-not-there"]) == 1
