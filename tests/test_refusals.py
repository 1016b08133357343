"""What is refused or told when a run is planned, because the trainer would find it out too late."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from wizard.cli import main
from wizard.facts import Dataset, Model, module_name
from wizard.planner.refusals import absent_modules, too_many_dropped

LLAMA = Model(
    name="m",
    path=None,
    modules=("lm_head", "model.layers.#.self_attn.q_proj", "model.norm"),
    matrices=("lm_head", "model.layers.#.self_attn.q_proj"),
)
HERE = ("--model", "Qwen/Qwen3-0.6B", "--machine", "T4-Colab")


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    row = {"instruction": "say it", "output": "it is said"}
    path.write_text(f"{json.dumps(row)}\n" * 200, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("fixed", "absent"),
    [
        ({"target_modules": "all-linear"}, ""),
        ({"target_modules": "q_proj, self_attn.q_proj"}, ""),
        ({"target_modules": "layers.11.self_attn.q_proj"}, ""),
        ({"target_modules": "q_proj,qproj"}, "`qproj`"),
        ({"target_modules": "norm"}, "`norm`"),
        ({"modules_to_save": "norm,lm_head"}, ""),
        ({"modules_to_save": "embed"}, "`embed`"),
    ],
)
def test_a_module_that_the_model_has_not_is_refused(fixed: dict[str, str], absent: str) -> None:
    problem = absent_modules(LLAMA, fixed)
    assert (absent in str(problem)) if absent else problem is None
    assert absent_modules(Model(name="m", path=None), fixed) is None


def test_a_number_between_dots_is_that_of_a_layer() -> None:
    assert module_name("h.0.mlp1.11") == "h.#.mlp1.#"


def test_a_learning_rate_far_from_the_usual_is_told(
    rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for rate in ("1e9", "1e-3"):
        assert main(["plan", *HERE, "--data", rows, "--set", f"learning_rate={rate}"]) == 0
        said.append(" ".join(capsys.readouterr().out.split()))
    assert "times the usual 0.0002" in said[0]
    assert "times the usual" not in said[1]


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["plan", "--all", *words])
    said = capsys.readouterr()
    return code, " ".join(said.out.split()), said.err


def test_what_a_user_fixes_wins_over_the_preset_before_anything_is_checked(
    tmp_path: Path, rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text(
        'schema = 1\ntitle = "x"\n[settings]\nmodel = "Qwen/Qwen3-0.6B"\n'
        'strategy = "single"\noffload = "parameters"\n'
    )
    words = ("--preset", str(preset), "--data", rows, "--machine", "4xA10G")
    code, out, _ = planned(capsys, *words, "--set", "offload=none")
    assert code == 0
    assert "model = Qwen/Qwen3-0.6B: the preset mine names it" in out
    code, _, err = planned(capsys, *words)
    assert code == 2
    assert "strategy=single (preset mine), offload=parameters (preset mine): " in err
    assert "num_devices" not in err


@pytest.mark.parametrize(
    ("strategy", "helps"), [("zero2", False), ("zero1", False), ("ddp", False), ("fsdp", True)]
)
def test_more_devices_are_advised_only_where_each_then_holds_less(
    strategy: str, helps: bool, rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ("--model", "Qwen/Qwen3-32B", "--set", "method=lora")
    code, out, _ = planned(
        capsys, *model, "--machine", "2x NVIDIA L4", "--data", rows, "--set", f"strategy={strategy}"
    )
    assert code == (0 if helps else 5)
    assert ("such devices" in out) == helps


def test_what_offloads_to_a_host_of_unknown_memory_comes_after_what_fits_for_certain(
    rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = ("--model", "Qwen/Qwen3-8B", "--machine", "1x NVIDIA GeForce RTX 4090")
    code, out, _ = planned(capsys, *machine, "--data", rows, "--goal", "least-memory")
    assert code == 0
    assert "unknown whether it fits: it needs" in out
    assert " 1. QLoRA" in f" {out}"
    assert out.index("fits, ") < out.index("unknown whether it fits")


def test_text_is_counted_in_the_blocks_it_is_packed_into(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": "some words"}\n' * 30)
    code, _, err = planned(capsys, *HERE, "--data", str(path), "--set", "effective_batch_size=8")
    assert code == 4
    assert "1 block, into which its rows of text are packed, does not fill one step of 8" in err


def test_a_dry_run_as_json_has_every_file_of_the_run(
    rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("plan", "run"):
        assert main([command, *HERE, "--data", rows, "--dry-run", "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert {"run.sh", "spec.toml", "plan.json"} <= set(said["files"])


def test_dropped_rows_are_a_share_of_the_files_whatever_an_epoch_takes_of_them() -> None:
    """Ten times the rows by weight, or ten rows by a sample, drop no other share."""
    once = Dataset(path="d.jsonl", rows=100, usable_rows=100, dropped_rows=5)
    for rows in (1000, 10):
        other = replace(once, rows=rows)
        assert other.dropped_percent == once.dropped_percent == pytest.approx(100 * 5 / 105)
        assert too_many_dropped(other, {}) is not None
        assert too_many_dropped(other, {"max_dropped_percent": 5.0}) is None
    assert Dataset(path="empty.jsonl").dropped_percent == 0
