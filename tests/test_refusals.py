"""What is refused or told when a run is planned, because the trainer would find it out too late."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wizard.cli import main
from wizard.facts import Model, module_name
from wizard.planner.refusals import absent_modules

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
