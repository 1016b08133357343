"""The command: what it prints, what it refuses, and what it ends with."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.spec import SETTINGS
from wizard import paths
from wizard.answers import Answers
from wizard.cli import build_parser, main
from wizard.commands.chat import greeting
from wizard.commands.terminal import print_exactly
from wizard.commands.verbs import verbs
from wizard.problem import ProblemError


def said(answer: str) -> dict[str, object]:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": answer}]
    return {"messages": turns}


ROW = said("Hello")
MODEL = "Qwen/Qwen2.5-0.5B"


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(said(f"Hello {n}")) + "\n" for n in range(64)))
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Exit code and the one line a command says on stderr, having said nothing else."""
    code = main(argv)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("tunewright: ")
    assert captured.err.count("\n") == 1, captured.err
    return code, captured.err


def test_help_names_every_command_and_exit_code() -> None:
    text = " ".join(build_parser().format_help().split())
    for command in ("probe", "plan", "run", "runs", "watch", "stop", "chat", "presets", "demo"):
        assert command in text
    assert "5 nothing fits" in text


def test_probe_as_json_is_one_versioned_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == 1
    assert document["devices"]
    assert document["host"]["cpu_cores"] >= 1


def test_probe_as_text_says_unknown_for_what_it_does_not_know(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["probe"]) == 0
    assert "Devices\n" in capsys.readouterr().out


def test_a_plan_gives_a_reason_for_every_setting(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--model", MODEL, "--data", data, "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    decided = {decision["setting"] for decision in plans[0]["decisions"]}
    assert decided == set(SETTINGS)
    assert all(decision["reason"] for decision in plans[0]["decisions"])


def test_the_asked_effective_batch_is_exact_in_every_plan(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--model", MODEL, "--data", data, "--json", "--set", "batch_size=12"]) == 0
    for plan in json.loads(capsys.readouterr().out)["plans"]:
        training, parallel = plan["spec"]["training"], plan["spec"]["parallel"]
        product = (
            training["per_device_train_batch_size"]
            * training["gradient_accumulation_steps"]
            * parallel["num_devices"]
        )
        assert product == 12


def test_dry_run_prints_the_script_that_run_writes_byte_for_byte(
    data: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    arguments = ["--model", MODEL, "--data", data, "--name", "ran", "--output", str(tmp_path / "o")]
    assert main(["plan", *arguments, "--dry-run"]) == 0
    planned = capfdbinary.readouterr().out
    assert main(["run", *arguments, "--dry-run"]) == 0
    ran = capfdbinary.readouterr().out
    assert not (tmp_path / "o").exists()
    assert main(["run", *arguments, "--write-only"]) == 0
    written = (tmp_path / "o" / "ran" / "run.sh").read_bytes()
    assert planned == ran == written
    assert written.startswith(b"#!/usr/bin/env bash\n")


@pytest.mark.parametrize(
    ("argument", "code", "words"),
    [
        ("lora_rnk=4", 2, "did you mean `lora_rank`?"),
        ("learning_rate=fast", 2, "learning_rate"),
        ("learning_rate", 2, "key=value"),
        ("max_length=0", 2, "max_length"),
        ("method=lorra", 2, "method"),
        ("strategy=zero3,method=qlora", 2, "strategy"),
    ],
)
def test_a_bad_set_is_one_sentence(
    data: str, capsys: pytest.CaptureFixture[str], argument: str, code: int, words: str
) -> None:
    got, line = refused(capsys, "plan", "--model", MODEL, "--data", data, "--set", argument)
    assert (got, words in line) == (code, True), line


def test_a_missing_model_folder_is_one_sentence(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refused(capsys, "plan", "--model", str(tmp_path / "none"), "--data", data)
    assert code != 0
    assert str(tmp_path / "none") in line


def test_a_folder_without_config_is_one_sentence(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refused(capsys, "plan", "--model", str(tmp_path), "--data", data)
    assert code != 0
    assert "config.json" in line


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        ("", "empty"),
        ('{"messages": [\n', "line 1"),
        (json.dumps(ROW) + "\n{broken\n", "line 2"),
        ('{"messages": [{"role": "user", "content": "Hi"}]}\n', "assistant"),
    ],
    ids=["missing", "empty", "broken first line", "broken second line", "no assistant turn"],
)
def test_bad_data_ends_with_4_and_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, words: str
) -> None:
    path = tmp_path / "bad.jsonl"
    if content is not None:
        path.write_text(content)
    code, line = refused(capsys, "plan", "--model", MODEL, "--data", str(path))
    assert code == 4, line
    assert words in line
    assert "bad.jsonl" in line


def test_nothing_fits_ends_with_5_and_says_by_how_much(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    big = "Qwen/Qwen2.5-72B"
    code = main(["run", "--model", big, "--data", data, "--yes"])
    line = capsys.readouterr().err
    assert code == 5, line
    assert "GiB over" in line
    assert not paths.runs().exists()


def test_run_without_a_terminal_asks_for_yes_and_says_how(
    data: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["tunewright", "run", "--model", MODEL, "--data", "a b"])
    code, line = refused(capsys, "run", "--model", MODEL, "--data", data)
    assert code == 2
    assert f"tunewright run --model {MODEL} --data 'a b' --yes" in line


def test_the_wizard_without_a_terminal_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = refused(capsys)
    assert code == 2


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "read-only"
    folder.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.call([mount, "-t", "tmpfs", "-o", "ro", "none", folder]):
        pytest.skip("mounting needs root")
    yield folder
    subprocess.check_call(["umount", folder])


def test_an_output_that_cannot_be_written_is_one_sentence(
    data: str, read_only: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, line = refused(
        capsys, "run", "--yes", "--model", MODEL, "--data", data, "--output", str(read_only)
    )
    assert code == 1
    assert str(read_only) in line
    assert "read-only" in line.lower()
    assert list(read_only.iterdir()) == []


@pytest.mark.parametrize("command", ["watch", "stop", "chat"])
def test_a_run_that_is_not_there_is_one_sentence(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, line = refused(capsys, command, "no\n[/such]\x1b[31m")
    assert code != 0
    assert "\x1b" not in line


def test_presets_are_saved_shown_and_used(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "save", "mine", "--set", "r=8", "--set", "method=lora"]) == 0
    assert main(["presets", "list"]) == 0
    assert "mine (saved)" in capsys.readouterr().out
    assert main(["plan", "--model", MODEL, "--data", data, "--preset", "mine", "--json"]) == 0
    plans = json.loads(capsys.readouterr().out)["plans"]
    assert {plan["spec"]["method"]["lora_rank"] for plan in plans} == {8}


def test_runs_says_when_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    assert "no runs" in capsys.readouterr().err


def test_bytes_of_an_odd_file_name_are_printed_as_they_are(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    print_exactly("a\udcffé\n")
    assert capfdbinary.readouterr().out == b"a\xff\xc3\xa9\n"


def tunewright(*argv: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "wizard", *argv],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )


def planned_model(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[str, str]:
    assert main(["plan", "--json", *argv]) == 0
    spec = json.loads(capsys.readouterr().out)["plans"][0]["spec"]
    return spec["model"]["model"], spec["data"]["data"]


def test_an_options_model_and_data_win_over_a_presets_which_win_over_nothing(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = tmp_path / "p.toml"
    other = tmp_path / "other.jsonl"
    shutil.copy(data, other)
    text = 'schema = 1\ntitle = "T"\n[settings]\nmodel = "Qwen/Qwen3-0.6B"\n'
    preset.write_text(text)
    argv = ["--data", data, "--preset", str(preset)]
    assert planned_model(capsys, *argv) == ("Qwen/Qwen3-0.6B", data)
    assert planned_model(capsys, *argv, "--model", MODEL) == (MODEL, data)
    assert planned_model(capsys, *argv, "--set", f"model={MODEL}") == (MODEL, data)


def test_an_option_and_a_setting_of_one_name_must_agree(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    agreeing = ["--model", MODEL, "--data", data, "--set", f"model={MODEL}"]
    assert planned_model(capsys, *agreeing) == (MODEL, data)
    for other in ("model=Qwen/Qwen3-0.6B", "data=/other.jsonl"):
        code, line = refused(capsys, "plan", "--model", MODEL, "--data", data, "--set", other)
        assert (code, "contradict each other" in line) == (2, True), line


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--name", "", 2),
        ("--runs", "", 2),
        ("--preset", "", 2),
        ("--machine", " ", 2),
        ("--name", "\udcff", 2),
        ("--name", "a/b", 2),
        ("--devices", "-1", 2),
        ("--devices", "0,0", 2),
        ("--devices", "", 2),
        ("--runs", "~nosuchuser/runs", 2),
        ("--runs", "x" * 300, 2),
        ("--runs", "\udcff", 2),
        ("--model", "x" * 300, 2),
        ("--model", "/m\udcff", 2),
        ("--data", "/d\udcff", 4),
        ("--data", "~nosuchuser/d", 4),
        ("--preset", "x" * 300 + ".toml", 2),
        ("--machine", "~nosuchuser/m.json", 2),
        ("--set", "devices=GPU-1", 6),
        ("--set", "num_devices=99999999999", 2),
    ],
)
def test_an_option_that_cannot_be_used_is_one_sentence_that_names_it(
    data: str, capsys: pytest.CaptureFixture[str], option: str, value: str, code: int
) -> None:
    argv = {"--model": MODEL, "--data": data, "--machine": "8xH100-SXM", option: value}
    if option == "--set":
        del argv["--machine"]
    got, line = refused(
        capsys, "run", "--dry-run", *(word for pair in argv.items() for word in pair)
    )
    assert got == code, line
    assert option.lstrip("-") in line or value.partition("=")[0] in line


@pytest.mark.parametrize("home", ["~nosuchuser/x", "/" + "x" * 300])
@pytest.mark.parametrize("command", ["runs", "watch", "presets list"])
def test_a_home_that_cannot_be_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: str, command: str
) -> None:
    monkeypatch.setenv("TUNEWRIGHT_HOME", home)
    code, line = refused(capsys, *command.split())
    assert (code, "TUNEWRIGHT_HOME" in line) == (2, True), line


@pytest.mark.parametrize("command", ["watch", "stop", "chat"])
@pytest.mark.parametrize("name", ["x" * 300, "~nosuchuser/run", "a\udcff"])
def test_a_name_that_no_run_has_is_one_sentence(
    capsys: pytest.CaptureFixture[str], command: str, name: str
) -> None:
    code, _ = refused(capsys, command, name)
    assert code == 2


@pytest.mark.parametrize(
    ("argv", "buffered"),
    [
        (["presets", "list"], True),
        (["presets", "list"], False),
        (["presets", "list", "--json"], True),
        (["--help"], True),  # argparse itself is silent about a write that fails at once
    ],
)
def test_a_full_disk_behind_the_output_is_one_sentence(argv: list[str], buffered: bool) -> None:
    with open("/dev/full", "wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "wizard", *argv],
            env={**os.environ, "PYTHONUNBUFFERED": "" if buffered else "1"},
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert process.returncode == 1
    assert process.stderr == b"tunewright: cannot write: No space left on device\n"


@pytest.mark.wide
def test_text_that_a_terminals_encoding_lacks_is_shown_as_an_escape(
    data: str, own_home: Path
) -> None:
    done = tunewright("plan", "--model", MODEL, "--data", data, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert b"\\xd7" in done.stdout
    assert tunewright("plan", "--model", "模型", PYTHONIOENCODING="ascii").returncode == 2


def test_chat_says_whom_it_asks_and_how_to_leave() -> None:
    assert greeting(Path("/runs/a"), base=True).startswith("the untuned model of /runs/a;")
    assert "Ctrl+D leaves" in greeting(Path("/runs/a"), base=False)


def test_the_length_of_an_answer_is_a_number_of_tokens() -> None:
    assert build_parser().parse_args(["chat", "run"]).max_new_tokens == 256
    for wrong in ("0", "-3", "many", "99999999999999"):
        with pytest.raises(SystemExit):
            build_parser().parse_args(["chat", "run", f"--max-new-tokens={wrong}"])


def test_an_empty_list_of_devices_is_said_in_words(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["plan", "--all", "--model", MODEL, "--data", data, "--set", "device_kind=cpu"]
    assert main(argv) == 0
    assert "devices = none: CPU ranks have no names" in capsys.readouterr().out


def test_a_hub_cache_that_cannot_be_is_one_sentence(
    data: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HOME", "~nosuchuser/hub")
    code, line = refused(capsys, "plan", "--model", MODEL, "--data", data)
    assert (code, "HF_HOME" in line) == (2, True)
    assert main(["probe"]) == 0


def test_a_machine_before_the_command_is_not_ignored(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--machine", "8xH100-SXM", "probe"])
    assert ended.value.code == 2
    assert "after the command" in capsys.readouterr().err


def test_the_wizard_plans_for_another_machine_and_starts_nothing_there(data: str) -> None:
    chosen = verbs("8xH100-SXM")
    facts = replace(
        chosen.probe(lambda facts: None),
        model=chosen.read_model(MODEL),
        dataset=chosen.read_dataset(data, {}),
    )
    plan = chosen.plans(facts, Answers(model=MODEL, data=data))[0]
    assert plan.spec.parallel.device_kind == "cuda"
    with pytest.raises(ProblemError, match="not started here"):
        chosen.launch(paths.runs() / "there", False)
    assert not paths.runs().exists()


def test_every_command_with_json_takes_a_format_except_export_whose_format_is_its_target() -> None:
    def parsers(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, set[str]]]:
        yield name, set(parser._option_string_actions)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for below, one in action.choices.items():
                    yield from parsers(one, f"{name} {below}".strip())

    both = {name: options for name, options in parsers(build_parser(), "") if "--json" in options}
    assert len(both) > 12
    assert [name for name, options in both.items() if "--format" not in options] == []
    exporting = build_parser().parse_args(["export", "--format", "sbatch", "--json"])
    assert (exporting.format, exporting.json) == ("sbatch", True)


def test_a_format_says_how_results_are_printed(capfd: pytest.CaptureFixture[str]) -> None:
    told = {}
    for how in ([], ["--format", "auto"], ["--format", "human"], ["--json"], ["--format", "json"]):
        assert main(["settings", "show", "lora_rank", *how]) == 0
        told[" ".join(how)] = capfd.readouterr()
    assert told[""] == told["--format auto"] == told["--format human"]
    assert told["--json"] == told["--format json"] != told[""]
    assert json.loads(told["--json"].out)["schema"] == 1

    assert main(["settings", "show", "lora_rank", "--format", "quiet"]) == 0
    assert capfd.readouterr() == ("", "")
    assert main(["settings", "show", "no_such_name", "--format", "quiet"]) == 2
    assert "no_such_name" in capfd.readouterr().err, "an error is told all the same"
    assert main(["settings", "show", "lora_rank"]) == 0
    assert capfd.readouterr() == told[""], "the next one is not quiet"
