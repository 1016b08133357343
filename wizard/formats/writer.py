"""A Plan being written for another trainer: each setting in its words, or left with a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wizard.formats.values import Left
from wizard.plan import Plan

NO_COUNTERPART = "has no counterpart"
SEVERAL_SETS = "several sets, or a part of one: name them as it does"
ADAPTER_ONLY = frozenset(
    {
        "lora_rank",
        "lora_alpha",
        "lora_dropout",
        "target_modules",
        "use_rslora",
        "use_dora",
        "init_lora_weights",
        "modules_to_save",
        "adapter",
    }
)
SETS = re.compile(r"[,#]|\*\d")
"""What makes a name of data more than one whole file."""
OWN_WAY: Mapping[str, str] = {
    "source": "models are fetched its own way",
    "max_dropped_percent": "what happens to rows that cannot be used is its own affair",
}


@dataclass(kw_only=True)
class Writer:
    """A plan's settings on their way into another trainer's configuration."""

    plan: Plan
    values: dict[str, Any] = field(default_factory=dict)
    """What is written, in order."""
    left: list[Left] = field(default_factory=list)
    _open: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        spec = self.plan.spec
        for table in spec.model_dump(exclude={"version"}).values():
            self._open.update(table)
        if spec.method.method == "full":
            for setting in ADAPTER_ONLY & set(self._open):
                del self._open[setting]

    def value(self, setting: str) -> Any:
        """A setting's value; None for one that this version does not have."""
        return self._open.get(setting)

    def put(self, key: str, value: Any, *settings: str) -> None:
        """Write a key; these settings are said by it."""
        if value is not None:
            self.values[key] = value
        for setting in settings:
            self._open.pop(setting, None)

    def put_each(self, names: Mapping[str, str]) -> None:
        """Write each setting under the other trainer's name for it."""
        for setting, key in names.items():
            if setting in self._open:
                self.put(key, self._open[setting], setting)

    def said(self, *settings: str) -> None:
        """These settings follow from what is written."""
        for setting in settings:
            self._open.pop(setting, None)

    def leave(self, setting: str, why: str) -> None:
        """Say why a setting is not written."""
        if setting in self._open:
            self.left.append(Left(key=setting, value=self._open.pop(setting), why=why))

    def finish(self) -> tuple[Left, ...]:
        """Every setting that is not written, those without a value left out."""
        self.said("effective_batch_size")  # micro-batch × accumulation × devices
        if self.value("source") in ("auto", "local"):
            self.said("source")
        for setting, why in OWN_WAY.items():
            self.leave(setting, why)
        for setting, value in list(self._open.items()):
            if value in (None, (), "", False, 0.0, "none", "auto", "default"):
                self.said(setting)
            self.leave(setting, NO_COUNTERPART)
        return tuple(self.left)


def is_one_file(plan: Plan) -> bool:
    """Whether the data is one file, seen once."""
    return not SETS.search(plan.spec.data.data)


def zero(plan: Plan) -> dict[str, Any] | None:
    """The DeepSpeed configuration of a plan that shares by ZeRO; None for any other.

    Sizes are `auto`: whoever starts DeepSpeed through transformers fills them in.
    """
    parallel = plan.spec.parallel
    stage = {"zero1": 1, "zero2": 2, "zero3": 3}.get(parallel.strategy)
    if stage is None:
        return None
    sharing: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": parallel.device_kind != "cpu",
        "contiguous_gradients": True,
    }
    device = {"device": "cpu", "pin_memory": parallel.device_kind != "cpu"}
    if parallel.offload != "none":
        sharing["offload_optimizer"] = device
    if parallel.offload == "parameters":
        sharing["offload_param"] = device
    if stage == 3:
        sharing["stage3_gather_16bit_weights_on_model_save"] = True
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "fp16": {"enabled": "auto"},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": sharing,
    }


def say_zero(writer: Writer) -> dict[str, Any] | None:
    """DeepSpeed's configuration when there is one; either way, how ranks share is said."""
    config = zero(writer.plan)
    if config is not None:
        writer.said("strategy", "offload", "devices_per_rank")
        if writer.value("offload_device") == "cpu":
            writer.said("offload_device", "nvme_path")
    elif writer.value("strategy") in ("single", "ddp"):
        writer.said("strategy", "offload", "offload_device", "nvme_path", "devices_per_rank")
    else:
        writer.said("offload_device", "devices_per_rank")
    return config
