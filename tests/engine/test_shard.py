"""The sharding libraries are told everything, and nothing twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engine.failure import RunError
from engine.shard import (
    deepspeed_config,
    fsdp_config,
    refuse_other_ranks,
    remove_disk_folder,
    start_ranks,
    trainer_settings,
    with_own_disk_folder,
)
from engine.spec import ZERO_STAGES, Spec


def spec(method: str = "full", accumulation: int = 3, **parallel: Any) -> Spec:
    return Spec.model_validate(
        {
            "model": {"model": "m"},
            "data": {"data": "d"},
            "method": {"method": method},
            "parallel": {"strategy": "zero3", "device_kind": "cuda", "num_devices": 2, **parallel},
            "training": {
                "effective_batch_size": 12,
                "per_device_train_batch_size": 2,
                "gradient_accumulation_steps": accumulation,
            },
        }
    )


@pytest.mark.parametrize("kind", ["cuda", "npu", "cpu"])
@pytest.mark.parametrize(
    ("strategy", "offload"),
    [
        ("zero1", "none"),
        ("zero2", "none"),
        ("zero2", "optimizer"),
        ("zero3", "none"),
        ("zero3", "optimizer"),
        ("zero3", "parameters"),
    ],
)
def test_the_configuration_states_every_value(strategy: str, kind: str, offload: str) -> None:
    config = deepspeed_config(spec(strategy=strategy, device_kind=kind, offload=offload))

    assert "auto" not in str(config)
    assert config["train_batch_size"] == 12
    assert config["zero_optimization"]["stage"] == ZERO_STAGES[strategy]
    held = {key for key in config["zero_optimization"] if key.startswith("offload_")}
    expected = {
        "none": set(),
        "optimizer": {"offload_optimizer"},
        "parameters": {"offload_optimizer", "offload_param"},
    }
    assert held == expected[offload]


def test_what_goes_to_a_disk_goes_to_the_folder_that_was_named() -> None:
    nvme = spec(offload="parameters", offload_device="nvme", nvme_path="/fast")
    zero = deepspeed_config(nvme)["zero_optimization"]

    for key in ("offload_optimizer", "offload_param"):
        assert zero[key] == {"device": "nvme", "nvme_path": "/fast", "pin_memory": True}


def test_fsdp_shards_gradients_of_each_micro_batch_and_saves_shards() -> None:
    made = spec(strategy="fsdp", offload="parameters")
    settings = trainer_settings(made)

    assert settings["deepspeed"] is None
    assert settings["fsdp_config"] == fsdp_config(made)
    assert settings["fsdp_config"]["version"] == 2
    assert settings["fsdp_config"]["cpu_offload"]
    assert settings["accelerator_config"]["gradient_accumulation_kwargs"]["sync_each_batch"]


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero2", "zero3", "fsdp"])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_what_the_trainer_would_choose_by_itself_is_stated(method: str, strategy: str) -> None:
    settings = trainer_settings(spec(method, strategy=strategy, ddp_timeout=77))

    assert settings["ddp_timeout"] == 77
    assert settings["ddp_find_unused_parameters"] is False
    reentrant = settings["gradient_checkpointing_kwargs"]["use_reentrant"]
    assert reentrant == (strategy == "zero3" and method == "lora")
    assert (settings["deepspeed"] is None) == (strategy in ("ddp", "fsdp"))
    assert settings["fsdp"] == (strategy == "fsdp")


def test_two_runs_on_one_disk_have_a_folder_each_and_leave_nothing(tmp_path: Path) -> None:
    nvme = spec(offload="parameters", offload_device="nvme", nvme_path=str(tmp_path))
    one, other = (with_own_disk_folder(nvme, Path(run)) for run in ("/runs/a", "/runs/b"))

    assert one.parallel.nvme_path != other.parallel.nvme_path
    assert len(list(tmp_path.iterdir())) == 2
    assert with_own_disk_folder(nvme, Path("/runs/a")) == one
    for made in (one, other):
        remove_disk_folder(made)
    assert list(tmp_path.iterdir()) == []
    assert with_own_disk_folder(spec(), tmp_path) == spec()


def test_a_disk_that_is_not_there_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    nvme = spec(offload="parameters", offload_device="nvme", nvme_path=missing)

    with pytest.raises(RunError, match="nowhere: No such file or directory: name a folder"):
        with_own_disk_folder(nvme, tmp_path)


@pytest.mark.parametrize(
    ("strategy", "refused"), [("zero2", True), ("zero3", True), ("ddp", False)]
)
def test_f01_only_deepspeed_needs_as_many_ranks_as_it_saved(
    tmp_path: Path, strategy: str, refused: bool
) -> None:
    shards = tmp_path / "checkpoint-2/global_step2"
    shards.mkdir(parents=True)
    for rank in range(3):
        (shards / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt").touch()
    two = spec(strategy=strategy)

    refuse_other_ranks(two, None)
    if refused:
        with pytest.raises(RunError, match=r"checkpoint-2 holds .* 3 ranks, .* num_devices=3"):
            refuse_other_ranks(two, shards.parent)
    else:
        refuse_other_ranks(two, shards.parent)
    (shards / "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
    refuse_other_ranks(two, shards.parent)


@pytest.mark.parametrize(("devices", "distributed"), [(2, False), (4, True)])
def test_one_rank_with_several_devices_is_no_distributed_run(
    monkeypatch: pytest.MonkeyPatch, devices: int, distributed: bool
) -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.delenv("ACCELERATE_BYPASS_DEVICE_MAP", raising=False)
    split: dict[str, Any] = {
        "strategy": "layer_split",
        "num_devices": devices,
        "devices_per_rank": 2,
    }
    made = spec(accumulation=12 // devices, **split)

    start_ranks(made)

    assert ("LOCAL_RANK" in os.environ) == distributed
    assert os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] == "true"
    monkeypatch.delenv("ACCELERATE_BYPASS_DEVICE_MAP")
