"""The life of a run after its end: resumed, retried, renamed, pruned, packed, compared."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runner.making import facts, plan, spec
from tests.runner.waiting import until
from wizard import paths, script
from wizard.answers import Answers, Policy
from wizard.cli import main
from wizard.commands.verbs import _last_run
from wizard.plan import Decision
from wizard.problem import ProblemError
from wizard.runner import care, process
from wizard.runner.again import answers_of
from wizard.runner.folder import create, list_runs, read_json
from wizard.runner.pack import pack, private_words
from wizard.runner.reading import Following

Make = Callable[..., Path]


@pytest.fixture
def make(own_home: Path, tmp_path: Path) -> Make:
    """Makes run folders in the user's own runs folder."""

    def run(name: str, state: dict[str, Any] | None = None, **given: Any) -> Path:
        made = given.pop("plan", None) or plan(spec(**given))
        files = script.render(
            made, name=name, python="/opt/p/bin/python", facts=facts(), written="x"
        )
        folder = create(files, root=paths.runs(), name=name)
        if state is not None:
            (folder / "launch.json").write_text(
                json.dumps(
                    {"pid": 1, "start_time": 1, "boot_id": "b", "host": socket.gethostname()}
                )
            )
            (folder / "state.json").write_text(json.dumps({"updated": time.time(), **state}))
        return folder

    return run


def checkpoint(folder: Path, step: int, *, whole: bool = True) -> Path:
    made = folder / "checkpoints" / f"checkpoint-{step}"
    made.mkdir(parents=True)
    (made / "optimizer.pt").write_bytes(b"x" * 5000)
    if whole:
        (made / "complete.json").write_text(json.dumps({"files": {"optimizer.pt": 5000}}))
    return made


def test_pruning_keeps_the_newest_whole_checkpoint_and_says_what_it_frees(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("r", {"exit_code": 75})
    for step in (5, 40, 100):
        checkpoint(folder, step)
    checkpoint(folder, 120, whole=False)
    assert main(["runs", "prune", "r"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["runs", "prune", "r", "--yes"]) == 0
    assert [path.name for path in (folder / "checkpoints").iterdir()] == ["checkpoint-100"]
    assert main(["runs", "prune", "r", "--yes"]) == 0
    assert "no checkpoint to remove" in capsys.readouterr().err


def test_deleting_asks_with_the_size_and_leaves_nothing(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("r", {"exit_code": 0})
    checkpoint(folder, 1)
    assert main(["runs", "delete", "r"]) == 2
    assert "with its model and checkpoints, " in capsys.readouterr().err
    assert folder.is_dir()
    assert main(["runs", "delete", "r", "--yes"]) == 0
    assert list(folder.parent.iterdir()) == []


def test_a_link_in_a_run_is_removed_and_what_it_leads_to_is_kept(
    make: Make, tmp_path: Path
) -> None:
    folder = make("r", {"exit_code": 0})
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("x" * 9000)
    (folder / "link").symlink_to(tmp_path / "precious")
    assert care.size_bytes(folder) < 200_000
    care.delete(folder)
    assert (tmp_path / "precious" / "file").exists()


def test_a_run_that_runs_is_neither_renamed_nor_deleted_nor_pruned(make: Make) -> None:
    folder = make("r", {"exit_code": None})
    living = {
        "pid": os.getpid(),
        "start_time": process.start_time(os.getpid()),
        "boot_id": process.boot_id(),
        "host": socket.gethostname(),
    }
    (folder / "launch.json").write_text(json.dumps(living))
    for way in (
        lambda: care.rename(folder, "other"),
        lambda: care.delete(folder),
        lambda: care.prunable(folder, 1),
    ):
        with pytest.raises(ProblemError, match="running"):
            way()
    assert folder.is_dir()


def test_renaming_refuses_a_name_that_is_taken(make: Make) -> None:
    first, second = make("a"), make("b")
    with pytest.raises(ProblemError, match="'b' exists"):
        care.rename(first, "b")
    with pytest.raises(ProblemError, match="cannot name a run"):
        care.rename(first, "../b")
    assert care.rename(second, "c").name == "c"


def test_a_run_lost_in_a_restart_of_the_machine_is_told_and_how_to_go_on(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    make("r", {"exit_code": None, "phase": "training"})
    (found,) = list_runs(paths.runs())
    assert (found.lost, found.rebooted) == (True, True)
    assert main(["runs"]) == 0
    said = capsys.readouterr()
    assert "r  lost: this machine was restarted" in said.out
    assert said.err == "to go on with it: tunewright resume r\n"


def test_resuming_only_when_lost_leaves_every_other_run_alone(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    make("stopped", {"exit_code": 75})
    make("fresh")
    for name in ("stopped", "fresh"):
        assert main(["resume", "--if-lost", name]) == 0
        assert "nothing was started" in capsys.readouterr().err
    make("done", {"exit_code": 0})
    assert main(["resume", "done"]) == 2
    assert "tunewright retry done" in capsys.readouterr().err


def test_the_line_for_a_restart_is_printed_with_every_word_quoted(
    make: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make("it's $HOME", {"exit_code": 75})
    for tool in ("crontab", "systemctl"):
        (tmp_path / tool).mkdir()
        (tmp_path / tool / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool / tool).chmod(0o700)
        monkeypatch.setenv("PATH", str(tmp_path / tool))
        assert main(["resume", "--at-boot", "it's $HOME"]) == 0
        said = capsys.readouterr().out
        start = "@reboot " if tool == "crontab" else "ExecStart="
        (line,) = [line for line in said.splitlines() if line.startswith(start)]
        if tool == "crontab":
            words = subprocess.run(
                ["/bin/sh", "-c", f"printf '%s\\n' {line.removeprefix(start)}"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.splitlines()
            assert words[-2:] == ["--if-lost", str(paths.runs() / "it's $HOME")]
        else:
            assert line.endswith("/runs/it's $$HOME\"")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["resume", "--at-boot", "it's $HOME"]) == 1
    make("50%")
    assert main(["resume", "--at-boot", "50%"]) == 1


def test_retrying_keeps_what_was_fixed_or_edited_and_plans_the_rest(make: Make) -> None:
    main_spec = spec(training={"learning_rate": 3e-4, "save_steps": 7})
    decisions = (
        Decision(setting="learning_rate", value=3e-4, reason="asked", origin="user"),
        Decision(setting="per_device_train_batch_size", value=1, reason="fits"),
        Decision(setting="save_steps", value=500, reason="default"),
        Decision(setting="lora_rank", value=16, reason="default"),
    )
    folder = make("r", plan=plan(main_spec, decisions=decisions))
    answers = answers_of(folder)
    assert (answers.model, answers.data) == ("/models/tiny", "/data/rows.jsonl")
    assert answers.settings["learning_rate"] == 3e-4
    assert answers.settings["save_steps"] == 7, "spec.toml was edited"
    assert "per_device_train_batch_size" not in answers.settings
    assert "lora_rank" not in answers.settings


def test_a_retry_is_a_new_run_with_the_old_choices_and_the_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    data = tmp_path / "rows.jsonl"
    data.write_text((json.dumps(row) + "\n") * 64)
    asked = ["--model", "Qwen/Qwen2.5-0.5B", "--data", str(data), "--set", "learning_rate=3e-5"]
    assert main(["run", *asked, "--name", "r", "--write-only"]) == 0
    capsys.readouterr()
    again = ["retry", "r", "--set", "num_train_epochs=9", "--name", "again", "--on-oom", "stop"]
    assert main([*again, "--write-only"]) == 0
    new = paths.runs() / "again"
    assert capsys.readouterr().out.strip() == str(new)
    spec_text, script_text = (new / "spec.toml").read_text(), (new / "run.sh").read_text()
    assert "learning_rate = 3e-05" in spec_text
    assert "num_train_epochs = 9.0" in spec_text
    assert "\nON_OOM=stop" in script_text
    assert main(["retry", "r", "--set", "learning_rat=1"]) == 2
    assert "did you mean `learning_rate`?" in capsys.readouterr().err


@pytest.mark.wide
def test_a_run_is_exported_as_it_was_also_where_more_is_planned_otherwise_today(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [{"instruction": f"say {n}", "output": f"it is {n}"} for n in range(64)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--model", "Qwen/Qwen2.5-0.5B", "--data", str(data), "--set", "learning_rate=3e-5"]
    assert main(["run", *asked, "--name", "r", "--write-only"]) == 0
    exported = ["export", "--run", "r", "--format", "bash"]
    capsys.readouterr()
    assert main(exported) == 0
    assert capsys.readouterr().out == (paths.runs() / "r" / "run.sh").read_text()
    last = Answers(model="Qwen/Qwen2.5-0.5B", data=str(data))
    assert _last_run(paths.runs()) == last, "what a new run begins with"
    assert _last_run(tmp_path) is None
    data.write_text("".join(json.dumps(row) + "\n" for row in rows * 40))  # another batch, length
    assert main([*exported, "--set", "num_train_epochs=7"]) == 0
    now = capsys.readouterr().out
    before = (paths.runs() / "r" / "spec.toml").read_text()
    kept = ("learning_rate = ", "effective_batch_size = ", "max_length = ", "save_steps = ")
    for line in before.splitlines():
        if line.startswith(kept):
            assert line.partition(" #")[0] in now
    assert "num_train_epochs = 7.0" in now
    assert main([*exported, "--model", "Qwen/Qwen3-8B"]) == 2
    assert "--model and --run contradict each other" in capsys.readouterr().err


def test_a_run_becomes_a_preset(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    asked = Decision(setting="learning_rate", value=3e-4, reason="asked", origin="user")
    made = plan(spec(training={"learning_rate": 3e-4}), decisions=(asked,))
    make("r", plan=made)
    assert main(["presets", "save", "mine", "--run", "r"]) == 0
    told = capsys.readouterr()
    text = Path(told.out.strip()).read_text()
    assert "it holds what was fixed: " in told.err
    assert "learning_rate=0.0003" in told.err
    assert "learning_rate = 0.0003" in text
    assert "/models" not in text


def finished(make: Make) -> Path:
    folder = make("r", {"exit_code": 0})
    (folder / "model").mkdir()
    adapter = {"base_model_name_or_path": "/models/tiny"}
    (folder / "model" / "adapter_config.json").write_text(json.dumps(adapter))
    (folder / "model" / "adapter_model.safetensors").write_bytes(b"\0weights" * 9)
    (folder / "model" / "training_args.bin").write_bytes(b"pickle")
    (folder / "model" / "tokenizer.model").write_bytes(b"\x0a\xff\xfe")
    (folder / "model" / "odd.txt").write_bytes(b"\xff")
    (folder / "model" / "README.md").write_text(f"made on {socket.gethostname()} in {folder}\n")
    (folder / "result.json").write_text(json.dumps({"measured": {"steps": 3}}))
    return folder


def test_a_pack_names_no_host_no_user_and_no_absolute_path(make: Make, tmp_path: Path) -> None:
    folder = finished(make)
    target = tmp_path / "r.tar.gz"
    pack(folder, target)
    with tarfile.open(target) as archive:
        held = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
        owners = {(m.uid, m.uname, m.mtime) for m in archive}
    assert owners == {(0, "", 0)}
    assert set(held) == {
        "r/run.sh",
        "r/spec.toml",
        "r/report.json",
        "r/model/adapter_config.json",
        "r/model/adapter_model.safetensors",
        "r/model/README.md",
        "r/model/tokenizer.model",
        "r/model/odd.txt",
    }
    everything = b"\n".join(held.values())
    for word in (str(folder), str(paths.home()), "/models/tiny", "/data/rows", "/opt/p/bin"):
        assert word.encode() not in everything
    assert json.loads(held["r/report.json"])["measured"] == {"steps": 3}
    assert json.loads(held["r/model/adapter_config.json"]) == {"base_model_name_or_path": "tiny"}
    checked = subprocess.run(["bash", "-n"], input=held["r/run.sh"], check=False)
    assert checked.returncode == 0
    first = target.read_bytes()
    target.unlink()
    pack(folder, target)
    assert target.read_bytes() == first
    with pytest.raises(ProblemError, match="there is a file already"):
        pack(folder, target)


def test_a_pack_whose_weights_name_this_machine_is_refused(make: Make, tmp_path: Path) -> None:
    folder = finished(make)
    hidden = next(iter(private_words(folder)))
    weights = folder / "model" / "adapter_model.safetensors"
    weights.write_bytes(b"\0" * 4_194_300 + hidden.encode())
    with pytest.raises(ProblemError, match="names this machine"):
        pack(folder, tmp_path / "r.tar.gz")
    assert [path.name for path in tmp_path.iterdir() if "pack" in path.name] == []


def test_two_runs_are_compared_by_what_differs(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    one = make("one", {"exit_code": 0})
    make("two", {"exit_code": 76, "message": "rank 1 was lost"}, training={"learning_rate": 9e-5})
    (one / "result.json").write_text(
        json.dumps({"measured": {"train_loss_last": 1.5, "memory_peak_bytes": [None, 2 * 1024**3]}})
    )
    assert main(["compare", "one", "two"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["learning_rate", "0.0001", "9e-05"] in lines
    assert ["train_loss_last", "1.5", "-"] in lines
    assert ["memory_peak_bytes", "2.0", "GiB", "-"] in lines
    assert not any(line[0] == "lora_rank" for line in lines)
    assert main(["compare", "one", "two", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == ["one", "two"]


def test_logs_follow_a_growing_file_and_the_next_attempt_s(tmp_path: Path) -> None:
    rank = tmp_path / "logs" / "x" / "attempt_0" / "0"
    rank.mkdir(parents=True)
    (rank / "stderr.log").write_text("old\n")
    following = Following(tmp_path, 0)
    with (rank / "stderr.log").open("a") as file:
        file.write("10%\r50%\r100%\nhalf")
    assert following.new_lines() == ["100%"]
    assert following.new_lines() == []
    second = tmp_path / "logs" / "y" / "attempt_0" / "0"
    second.mkdir(parents=True)
    (second / "stderr.log").write_text("new\n")
    os.utime(second / "stderr.log", (time.time() + 9, time.time() + 9))
    assert following.new_lines() == ["new"]


def test_logs_of_a_run_without_any_are_one_sentence(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    (make("r") / "launch.json").write_text("{}")
    assert main(["logs", "r", "--rank", "3"]) == 1
    assert "rank 3 has written nothing yet" in capsys.readouterr().err


def test_what_a_run_does_about_failures_stands_at_the_top_of_its_script() -> None:
    policy = Policy(on_oom="stop", on_hang="stop", hang_seconds=90, max_restarts=4, exact=True)
    files = script.render(
        plan(), name="r", python=sys.executable, facts=facts(), written="x", policy=policy
    )
    lines = {line.split("#")[0].strip() for line in files["run.sh"].splitlines()}
    wanted = {"ON_OOM=stop", "ON_HANG=stop", "HANG_SECONDS=90", "MAX_RESTARTS=4", "EXACT=1"}
    assert wanted <= lines


def test_a_program_that_is_to_be_told_gets_its_arguments_and_no_shell(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.record import notify_end

    folder = make("r; touch RAN", {"exit_code": 76, "phase": "failed", "message": "$(touch RAN)"})
    told = tmp_path / "told"
    code = "import json, sys; json.dump(sys.argv[2:], open(sys.argv[1], 'w'))"
    command = [sys.executable, "-c", code, str(told), "{run} {event}", "{message}"]
    monkeypatch.setenv("TUNEWRIGHT_NOTIFY", json.dumps(command))
    notify_end(folder)
    until(told.exists)
    assert json.loads(told.read_text()) == ["r; touch RAN failed", "$(touch RAN)"]
    monkeypatch.setenv("TUNEWRIGHT_NOTIFY", json.dumps(["/nowhere/at/all"]))
    notify_end(folder)
    assert "/nowhere/at/all: No such file" in (folder / "logs" / "notify.log").read_text()
    for nonsense in ("", "[]", "[1]", "{", '"rm"'):
        monkeypatch.setenv("TUNEWRIGHT_NOTIFY", nonsense)
        notify_end(folder)


def test_the_configuration_is_refused_with_the_place_that_is_wrong(
    own_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from wizard import configuration

    assert configuration.read().notify_command == ()
    own_home.mkdir(exist_ok=True)
    for text, words in (
        ("[notify]\ncommand = 'rm'\n", "must be a list of texts"),
        ("[notify]\ncomand = []\n", "unknown key `notify.comand`"),
        ("[other]\n", "unknown table `other`"),
        ("notify = 3\n", "unknown table"),
        ("[history]\nkeep = 1\n", "true or false"),
        ("[", "cannot be read"),
    ):
        (own_home / "config.toml").write_text(text)
        with pytest.raises(ProblemError, match=words):
            configuration.read()
    (own_home / "config.toml").write_text('[notify]\ncommand = ["a", "{run}"]\nbell = false\n')
    found = configuration.read()
    assert (found.notify_command, found.bell) == (("a", "{run}"), False)


def test_a_queued_run_waits_for_the_other_and_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    child = subprocess.Popen(["sleep", "600"])
    try:
        living = {
            "pid": child.pid,
            "start_time": process.start_time(child.pid),
            "boot_id": process.boot_id(),
            "host": socket.gethostname(),
        }
        (other / "launch.json").write_text(json.dumps(living))
        waiting = subprocess.Popen(
            [sys.executable, "-m", "engine.watch", "wait", str(other)], stderr=subprocess.PIPE
        )
        assert waiting.stderr is not None
        assert str(other).encode() in waiting.stderr.readline()
        assert waiting.poll() is None
    finally:
        child.kill()
        child.wait()
    assert waiting.wait(timeout=20) == 0
    waiting.stderr.close()


def test_resume_hands_its_options_to_the_script(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make("r", {"exit_code": 75})
    begin = f"'{sys.executable}' -m engine.watch begin --pid $$ >/dev/null || exit\n"
    (folder / "run.sh").write_text(f'{begin}printf "%s\\n" "$@" >options\n')
    words = ["--on-oom", "stop", "--max-restarts", "3", "--exact"]
    assert main(["resume", "r", *words, "--then", "echo 'two words'"]) == 0
    until((folder / "options").exists)
    until(lambda: not any(run.alive for run in list_runs(paths.runs())))
    assert (folder / "options").read_text().splitlines() == [
        "--resume",
        *words,
        "--then",
        "echo",
        "two words",
    ]
    assert read_json(folder / "launch.json")["boot_id"] == process.boot_id()
    assert main(["resume", "r", "--then", "'open"]) == 2
    assert "No closing quotation" in capsys.readouterr().err


def test_a_terminal_is_rung_and_told_and_a_pipe_gets_no_control_character(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from wizard.commands.terminal import announce

    announce("r")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for term, shown in (
        ("xterm", "\x1b]9;r\u2400\u241b]\x1b\\\a"),
        ("dumb", "\a"),
        ("linux", "\a"),
    ):
        monkeypatch.setenv("TERM", term)
        announce("r\0\x1b]")
        assert capsys.readouterr().err == shown
