"""The script: what is shown is what runs, and nothing else does."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from engine.spec import loads
from tests.runner.making import facts, plan, spec
from tests.tiers import spread
from wizard import script
from wizard.facts import Dataset
from wizard.plan import Decision, Plan

SHELLCHECK = Path(sysconfig.get_path("scripts")) / "shellcheck"

HOSTILE = (
    'it\'s $(touch RAN) `touch RAN` "quoted" \\ back',
    "two\nlines\n; touch RAN",
    "END_OF_SPEC",
    "\nEND_OF_SPEC\ntouch RAN\n",
    "[/markup] \x1b[31mred \x07 \x7f \x01",
    "{{python}} {{specs}} \\1 \\g<0>",
    "näme 模型 🙂 \u2028 \u202e",
    "' ; touch RAN ; '",
    "# shellcheck disable=all",
    "-rf *",
    "$(touch RAN)",
    "`touch RAN`",
    "a\\",
)


def render(main: Plan, *, name: str = "run", python: str = sys.executable) -> dict[str, str]:
    return script.render(main, name=name, python=python, facts=facts(), written="2026-01-31")


def variants() -> dict[str, Plan]:
    rung = spec(training={"per_device_train_batch_size": 1, "gradient_checkpointing": True})
    cuda = {"strategy": "ddp", "device_kind": "cuda", "devices": ("GPU-a", "GPU-b")}
    zero = {"strategy": "zero3", "device_kind": "cpu", "num_devices": 2, "offload": "parameters"}
    one = {"strategy": "single", "device_kind": "cpu", "num_devices": 1}
    return {
        "cpu ddp": plan(),
        "ladder": plan(spec(), (rung, rung)),
        "cuda": plan(spec(parallel=cuda)),
        "npu": plan(spec(parallel={"device_kind": "npu"})),
        "cpu zero3": plan(spec(parallel=zero)),
        "single": plan(spec(parallel=one, training={"gradient_accumulation_steps": 4})),
        **{f"hostile {n}": hostile(text) for n, text in enumerate(HOSTILE)},
    }


def hostile(text: str) -> Plan:
    """The text in every place that is not ours."""
    told = spec(model={"model": text}, data={"data": text, "system": text})
    decision = Decision(setting="model", value=text, reason=text)
    return plan(told, title=text, decisions=(decision,))


def write_specs_with_bash(text: str, folder: Path) -> subprocess.CompletedProcess[bytes]:
    """The script up to the point where the specs are written, run as it stands."""
    folder.mkdir()
    begin, found, _ = text.partition("# A package named engine somewhere")
    assert found
    (folder / "run.sh").write_text(begin, encoding="utf-8", newline="")
    return subprocess.run(
        ["bash", "run.sh"], cwd=folder, capture_output=True, timeout=60, check=False
    )


@pytest.mark.parametrize("variant", spread(variants(), every=6))
def test_shellcheck_and_bash_have_nothing_to_say(variant: str, tmp_path: Path) -> None:
    main = variants()[variant]
    text = render(main, name=main.title, python=f"/{main.title}")["run.sh"]
    file = tmp_path / "run.sh"
    file.write_text(text, encoding="utf-8", newline="")
    checked = subprocess.run(
        [SHELLCHECK, "--norc", file], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout) == (0, "")
    parsed = subprocess.run(["bash", "-n", file], capture_output=True, text=True, check=False)
    assert (parsed.returncode, parsed.stderr) == (0, "")


@pytest.mark.parametrize("variant", variants())
def test_bash_writes_every_spec_as_it_was_planned(variant: str, tmp_path: Path) -> None:
    files = render(variants()[variant], name=variant)
    done = write_specs_with_bash(files["run.sh"], tmp_path / "run")
    assert (done.returncode, done.stderr) == (0, b"")
    specs = {name: text for name, text in files.items() if name.startswith("spec.")}
    assert specs
    for name, text in specs.items():
        assert (tmp_path / "run" / name).read_bytes() == text.encode()
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {"run.sh", *specs}


# Everything a Spec can hold: surrogates and NUL are refused before a plan is made.
texts = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=60
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example("$(touch RAN)'\"\n`touch RAN`\nEND_OF_SPEC\r\n\x01\x7f")
@given(texts)
def test_any_text_reaches_the_spec_unchanged_and_runs_nothing(tmp_path: Path, text: str) -> None:
    main = hostile(text)
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    files = render(main, name=text, python=f"/bin/{text}")
    done = write_specs_with_bash(files["run.sh"], folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert loads((folder / "spec.toml").read_bytes().decode()) == main.spec
    assert {path.name for path in folder.iterdir()} == {"run.sh", "spec.toml"}
    assert json.loads(files["plan.json"])["title"] == text


def test_a_spec_that_finds_no_room_leaves_no_part_of_itself(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.sh").write_text(render(plan())["run.sh"])
    (folder / "spec.toml.part").symlink_to("/dev/full")
    told = subprocess.run(["bash", folder / "run.sh"], capture_output=True, text=True, check=False)
    assert told.returncode == 73
    assert "cannot write spec.toml" in told.stderr
    assert [path.name for path in folder.iterdir()] == ["run.sh"]


def test_an_edited_spec_wins_and_is_named(tmp_path: Path) -> None:
    text = render(plan())["run.sh"]
    write_specs_with_bash(text, tmp_path / "run")
    file = tmp_path / "run" / "spec.toml"
    file.write_text(file.read_text().replace("max_length = 1024", "max_length = 99"))
    done = subprocess.run(
        ["bash", "run.sh"], cwd=tmp_path / "run", capture_output=True, text=True, check=False
    )
    assert "spec.toml was edited" in done.stderr
    assert loads(file.read_text()).data.max_length == 99


def test_every_reason_stands_beside_its_value() -> None:
    lines = render(plan())["spec.toml"].splitlines()
    line = next(line for line in lines if line.startswith("learning_rate"))
    assert line.endswith("# adapters take ten times the rate of full training")


def test_a_rung_says_what_it_changed() -> None:
    rung = spec(training={"learning_rate": 5e-5})
    files = render(plan(spec(), (rung,)))
    line = next(t for t in files["spec.1.toml"].splitlines() if t.startswith("learning_rate"))
    assert "changed by this rung" in line


def test_ranks_share_the_cores_and_an_unknown_number_of_them_is_one() -> None:
    assert "OMP_NUM_THREADS=1 " in render(plan())["run.sh"]
    many = script.render(plan(), name="r", python="p", facts=facts(cores=64), written="")
    assert "OMP_NUM_THREADS=32 " in many["run.sh"]
    unknown = script.render(plan(), name="r", python="p", facts=facts(cores=None), written="")
    assert "OMP_NUM_THREADS=1 " in unknown["run.sh"]


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3", "fsdp"])
def test_only_deepspeed_is_told_that_it_runs_on_cpus(strategy: str) -> None:
    text = render(plan(spec(parallel={"strategy": strategy, "device_kind": "cpu"})))["run.sh"]

    assert ("export DS_ACCELERATOR=cpu " in text) == (strategy != "fsdp")


def test_torchrun_starts_one_rank_for_the_devices_that_its_layers_are_split_over() -> None:
    split = {"strategy": "layer_split", "num_devices": 4, "devices_per_rank": 2}
    four = spec(parallel={**split, "device_kind": "cuda"})

    assert "\nRANKS=2 " in render(plan(four))["run.sh"]


def test_the_plan_file_holds_decisions_and_alternatives_and_no_row_of_the_user() -> None:
    rows = Dataset(path="/data", first_rows=({"secret": "row"},))
    known = dataclasses.replace(facts(), dataset=rows)
    text = script.render(
        plan(), name="r", python="p", facts=known, written="today", alternatives=(plan(title="B"),)
    )["plan.json"]
    content = json.loads(text)
    assert content["schema"] == 1
    assert content["memory"]["device_bytes"] == 10
    assert content["decisions"][0]["setting"] == "learning_rate"
    assert [other["title"] for other in content["alternatives"]] == ["B"]
    assert "secret" not in text


def test_help_is_the_head_of_the_script(tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(render(plan())["run.sh"])
    told = subprocess.run(["bash", file, "--help"], capture_output=True, text=True, check=True)
    assert "bash run.sh --resume" in told.stdout
    assert "#" not in told.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["run.sh"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [(["--restart"], "unknown option --restart"), (["--max-restarts", "x"], "takes a number")],
)
def test_a_wrong_option_is_refused_before_anything_is_written(
    options: list[str], sentence: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.sh"
    file.write_text(render(plan())["run.sh"])
    told = subprocess.run(["bash", file, *options], capture_output=True, text=True, check=False)
    assert told.returncode == 64
    assert sentence in told.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.sh"]


def run_script(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    unknown = spec(model={"model": str(folder / "nowhere")})
    (folder / "run.sh").write_text(render(plan(unknown))["run.sh"])
    return subprocess.run(
        ["bash", str(folder / "run.sh")],
        cwd="/",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_foreign_engine_on_the_python_path_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign" / "engine"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("")
    (foreign / "watch.py").write_text("raise SystemExit('foreign code ran')")
    done = run_script(tmp_path / "run", PYTHONPATH=str(foreign.parent))
    assert done.returncode == 70
    assert "foreign engine" in done.stderr
    assert not (tmp_path / "run" / "launch.json").exists()


@pytest.mark.wide
def test_a_foreign_engine_in_the_run_folder_changes_nothing(tmp_path: Path) -> None:
    foreign = tmp_path / "run" / "engine"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("raise SystemExit('other code ran')")
    done = run_script(tmp_path / "run")
    assert "other code" not in done.stderr
    assert done.returncode == 64
    assert "nowhere" in done.stderr


def test_a_python_without_tunewright_is_one_sentence(tmp_path: Path) -> None:
    done = run_script(tmp_path / "run", TUNEWRIGHT_PYTHON=str(tmp_path / "no" / "python"))
    assert done.returncode == 70
    assert done.stderr.count("\n") == 1
    assert "TUNEWRIGHT_PYTHON" in done.stderr


def test_text_that_is_no_unicode_never_comes_as_far_as_a_script() -> None:
    with pytest.raises(ValueError, match="unicode"):
        spec(model={"model": "\udc80"})
