"""The base model and the modules an adapter may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.failure import RunError
from engine.model import load_base
from engine.spec import Spec

pytestmark = pytest.mark.engine


def spec(model: Path, target_modules: str) -> Spec:
    return Spec.model_validate(
        {
            "model": {"model": str(model), "dtype": "float32"},
            "data": {"data": "/d"},
            "method": {"method": "lora", "target_modules": target_modules},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 1},
        }
    )


@pytest.mark.parametrize("names", ["all-linear", "q_proj, v_proj", "layers.1.mlp.up_proj"])
def test_modules_that_are_there_are_found(tiny_model: Path, names: str) -> None:
    assert load_base(spec(tiny_model, names), tiny_model, 0).config.use_cache is False


@pytest.mark.parametrize("names", ["q_porj", "q_proj,proj"])
def test_a_module_that_is_not_there_is_named_with_those_that_are(
    tiny_model: Path, names: str
) -> None:
    with pytest.raises(RunError, match=r"no `(q_porj|proj)`; linear ones are down_proj") as caught:
        load_base(spec(tiny_model, names), tiny_model, 0)
    assert caught.value.failure == "bad_spec"
