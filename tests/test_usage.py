"""A mistyped command line is one sentence; files are written by the same rules everywhere."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from wizard.cli import build_parser, main
from wizard.commands.usage import MEANS


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("plan --mode x", "tunewright plan: there is no option --mode: did you mean --model?"),
        ("pln", "tunewright: COMMAND 'pln' is not known: did you mean plan?"),
        ("data check", "tunewright data check: FILE must be given"),
        ("runs rename", "tunewright runs rename: RUN, NAME must be given"),
        ("run --model", "tunewright run: --model: a value must follow"),
        ("logs r --rank a", "tunewright logs: --rank: takes a whole number, not 'a'"),
        ("export --format sbach", "--format 'sbach' is not known: did you mean sbatch?"),
        ("plan --goal best", "choose from quality, fastest, least-memory, fewest-devices"),
        ("stop a b", "tunewright stop: 'b' is one argument too many"),
        ("presets show a --from \x1b[31m", "there is no option --from"),
        (
            "--preset a",
            "tunewright: --preset comes after a command, as in `tunewright plan --preset`",
        ),
        ("--machine m --lines 3", "--lines comes after a command, as in `tunewright logs --lines`"),
        ("--modl x", "there is no option --modl: did you mean --model?"),
        ("--model x probe", "tunewright: --model comes after the command"),
    ],
)
def test_a_mistyped_command_line_is_one_sentence_with_where_help_is(
    argv: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv.split(" "))
    assert left.value.code == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert "--help` says more" in told
    assert "\x1b" not in told


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield inner
                yield from parsers(inner)


def test_every_command_tells_its_exit_codes_and_where_it_writes_and_looks_alike() -> None:
    for parser in parsers(build_parser()):
        assert str(parser.epilog).startswith("Exit codes: 0 ok")
        options = parser._option_string_actions
        if "-o" in options:
            assert options["-o"] is options["--output"]
            assert "--force" in options
        elif "--output" in options:
            assert options["--output"].dest == options["--runs"].dest
    check = next(p for p in parsers(build_parser()) if p.prog.endswith("data check"))
    assert f"3 {MEANS['3']}" in str(check.epilog)


@pytest.mark.parametrize("older", ["-o", "--output", "--out"])
def test_a_file_is_replaced_by_force_alone_and_folders_are_never_made(
    older: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["presets", "show", "sft-lora-8b-24gb", older]
    assert main([*words, "mine.toml"]) == 0
    assert main([*words, "mine.toml"]) == 2
    assert "add --force" in capsys.readouterr().err
    assert main([*words, "mine.toml", "--force"]) == 0
    assert main([*words, "made/mine.toml"]) == 2
    assert "make it first: mkdir -p " in capsys.readouterr().err
    assert main([*words, "."]) == 2
    assert "this is a folder" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml"]


def test_a_run_that_was_never_started_is_told_with_how_to_start_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"instruction": "a", "output": "b"}) + "\n")
    planned = ["--model", "Qwen/Qwen3-0.6B", "--data", str(rows), "--machine", "T4-Colab"]
    assert main(["run", *planned, "--write-only", "--name", "it is", "--runs", "here"]) == 0
    capsys.readouterr()
    for command in (["chat"], ["watch"], ["watch", "--once"], ["logs", "--rank", "1"], ["report"]):
        assert main([command[0], "here/it is", *command[1:]]) == 1
        said = capsys.readouterr().err
        assert f"never started (start it: bash '{tmp_path}/here/it is/run.sh')" in said


def test_a_rank_that_a_run_has_not_is_told_with_those_it_has(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for rank in (0, 1):
        (tmp_path / f"ran/logs/x/attempt_0/{rank}").mkdir(parents=True)
        (tmp_path / f"ran/logs/x/attempt_0/{rank}/stderr.log").write_text(f"from {rank}\n")
    for name in ("spec.toml", "run.sh", "launch.json"):
        (tmp_path / "ran" / name).write_text("{}")
    assert main(["logs", "./ran", "--rank", "1"]) == 0
    assert "from 1" in capsys.readouterr().out
    assert main(["logs", "./ran", "--rank", "9"]) == 2
    said = capsys.readouterr().err
    assert "there is no rank 9: this run has 2 ranks (--rank takes 0 and 1)" in said
