"""DeepSpeed is told everything, and nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from engine.shard import deepspeed_config
from engine.spec import Spec


def spec(**parallel: Any) -> Spec:
    return Spec.model_validate(
        {
            "model": {"model": "m"},
            "data": {"data": "d"},
            "method": {"method": "full"},
            "parallel": {"strategy": "zero3", "num_devices": 2, **parallel},
            "training": {
                "effective_batch_size": 12,
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": 3,
            },
        }
    )


@pytest.mark.parametrize("kind", ["cuda", "npu", "cpu"])
@pytest.mark.parametrize("offload", ["none", "optimizer", "parameters"])
def test_the_configuration_states_every_value(kind: str, offload: str) -> None:
    config = deepspeed_config(spec(device_kind=kind, offload=offload))

    assert "auto" not in str(config)
    assert config["train_batch_size"] == 12
    assert config["zero_optimization"]["stage"] == 3


def test_parameters_are_offloaded_together_with_the_optimizer() -> None:
    def held(offload: str) -> set[str]:
        zero = deepspeed_config(spec(device_kind="cuda", offload=offload))["zero_optimization"]
        return {key for key in zero if key.startswith("offload_")}

    assert held("none") == set()
    assert held("optimizer") == {"offload_optimizer"}
    assert held("parameters") == {"offload_optimizer", "offload_param"}
