"""`tunewright import` and `export` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.fakes.tiny.make import data_file
from tests.formats.test_import import EXAMPLES
from wizard import presets
from wizard.cli import main


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    return data_file(tmp_path / "some rows.jsonl", rows=400)


def export(rows: Path, *words: str) -> int:
    given = ["--model", "Qwen/Qwen2.5-0.5B", "--data", str(rows), "--machine", "8xH100-SXM"]
    return main(["export", *given, "--name", "mine", *words])


def test_an_export_is_printed_and_what_is_left_is_told_beside_it(
    rows: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert export(rows, "--format", "axolotl", "--set", "method=lora") == 0
    out, err = capfd.readouterr()
    assert yaml.safe_load(out)["datasets"][0]["path"] == str(rows)
    assert "not carried over: max_dropped_percent = 1.0" in err


def test_an_export_of_two_files_goes_into_a_folder(
    rows: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert export(rows, "--format", "llamafactory", "-o", str(tmp_path / "made")) == 0
    assert {path.name for path in (tmp_path / "made").iterdir()} == {
        "llamafactory.yaml",
        "dataset_info.json",
    }
    assert capfd.readouterr().out == ""
    assert export(rows, "--format", "llamafactory", "-o", str(tmp_path / "made")) == 2
    assert "there is a file already" in capfd.readouterr().err


def test_an_export_as_json_has_every_file(rows: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert export(rows, "--format", "sbatch", "--nodes", "2", "--json") == 0
    said = json.loads(capfd.readouterr().out)
    assert said["schema"] == 1
    assert "#SBATCH --nodes=2" in said["files"]["job.sbatch"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--format", "bash", "--nodes", "2"), "bash is for one machine"),
        (("--format", "sbatch", "--nodes", "0"), "--nodes takes 1 to 64"),
        (("--format", "sbatch", "--nodes", "100000"), "--nodes takes 1 to 64"),
        (("--format", "sbatch", "--nodes", "3", "--set", "num_devices=16"), "not shared evenly"),
        (("--format", "kubernetes"), "an image with tunewright in it"),
    ],
)
def test_an_export_that_cannot_be_made_is_one_sentence(
    rows: Path, words: tuple[str, ...], what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert export(rows, *words) == 2
    out, err = capfd.readouterr()
    assert (out, what in err) == ("", True), err


@pytest.mark.parametrize("peer", EXAMPLES)
def test_an_import_is_a_preset_file_that_plans(
    peer: str, rows: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source, preset = tmp_path / "their file", tmp_path / "mine.toml"
    source.write_text(EXAMPLES[peer])
    assert main(["import", str(source), "-o", str(preset)]) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert f"written: {preset}" in err
    assert "hf_secret" not in err
    assert presets.load(str(preset)).settings
    given = ["--model", "Qwen/Qwen2.5-0.5B", "--data", str(rows), "--machine", "8xH100-SXM"]
    # What one trainer combines need not go together here; then the plan says so, and what helps.
    given += ["--set", "strategy=fsdp"] if peer == "llamafactory" else []
    given += ["--set", "packing=false"] if peer == "axolotl" else []  # its few rows make few packs
    assert main(["export", "--format", "bash", *given, "--preset", str(preset)]) == 0


def test_an_import_as_json_hides_secrets(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "their.yaml"
    source.write_text(EXAMPLES["llamafactory"])
    assert main(["import", str(source), "--json"]) == 0
    said = json.loads(capfd.readouterr().out)
    assert said["format"] == "llamafactory"
    assert "hf_secret" not in json.dumps(said)
    assert {one["key"] for one in said["left"]} >= {"hf_hub_token", "trust_remote_code"}


@pytest.mark.parametrize(
    ("content", "what"),
    [(None, "cannot be read"), (b"\xff\xfe", "not UTF-8"), (b"#" * 2**21, "larger than 1 MiB")],
    ids=["absent", "bytes", "large"],
)
def test_an_import_of_what_is_no_text_file_is_one_sentence(
    content: bytes | None, what: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "their.yaml"
    if content is not None:
        source.write_bytes(content)
    assert main(["import", str(source)]) == 2
    assert what in capfd.readouterr().err
    assert main(["import", str(tmp_path)]) == 2
    assert "not a regular file" in capfd.readouterr().err
