"""Every setting of a run: what it is, what it takes, and what other trainers call it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic_core import PydanticUndefined

from engine.aliases import ALIASES, TRANSLATED
from engine.settings import setting_info
from engine.spec import SETTINGS
from wizard.language import mark, said

NO_LIMIT = 2**31 - 1
"""A bound as high as this is one of the libraries, not of sense."""
OR_NONE = ", or none"
CHOICES = re.compile(r"\w+(, [\w-]+)+")
"""Words that a setting takes, as they are typed."""
TOOLS = ("Hugging Face", "ms-swift", "LLaMA-Factory", "axolotl")

NAMES: Mapping[str, tuple[str, str, str, str]] = {
    "model": ("model_name_or_path", "model", "model_name_or_path", "base_model"),
    "revision": ("model_revision", "model_revision", "model_revision", "revision_of_model"),
    "source": ("", "use_hf", "", ""),
    "dtype": ("dtype", "torch_dtype", "bf16", "bf16"),
    "attn_implementation": (
        "attn_implementation",
        "attn_impl",
        "flash_attn",
        "attn_implementation",
    ),
    "template": ("chat_template_path", "template", "template", "chat_template"),
    "data": ("dataset_name", "dataset", "dataset", "datasets"),
    "system": ("", "system", "default_system", "default_system_message"),
    "max_length": ("max_length", "max_length", "cutoff_len", "sequence_len"),
    "method": ("use_peft", "tuner_type", "finetuning_type", "adapter"),
    "lora_rank": ("r", "lora_rank", "lora_rank", "lora_r"),
    "target_modules": ("target_modules", "target_modules", "lora_target", "lora_target_modules"),
    "strategy": ("deepspeed", "deepspeed", "deepspeed", "deepspeed"),
    "num_devices": ("num_processes", "NPROC_PER_NODE", "", ""),
    "devices": ("CUDA_VISIBLE_DEVICES",) * 4,
    "num_train_epochs": ("num_train_epochs", "num_train_epochs", "num_train_epochs", "num_epochs"),
    "effective_batch_size": ("", "", "", "batch_size"),
    "per_device_train_batch_size": (
        "per_device_train_batch_size",
        "per_device_train_batch_size",
        "per_device_train_batch_size",
        "micro_batch_size",
    ),
    "lr_scheduler_type": (
        "lr_scheduler_type",
        "lr_scheduler_type",
        "lr_scheduler_type",
        "lr_scheduler",
    ),
    "optim": ("optim", "optim", "optim", "optimizer"),
    "packing": ("packing", "packing", "neat_packing", "sample_packing"),
    "padding_free": ("padding_free", "padding_free", "", ""),
    "group_by_length": ("train_sampling_strategy", *("group_by_length",) * 3),
    "min_lr_rate": ("", "", "", "cosine_min_lr_ratio"),
    "use_liger_kernel": (*("use_liger_kernel",) * 2, "enable_liger_kernel", ""),
    "report_to": ("report_to", "report_to", "report_to", ""),
    "loss": ("compute_loss_func", "", "", ""),
    "metric": ("compute_metrics", "", "", ""),
    "callback": ("callbacks", "", "", ""),
    "trainer": ("", "", "", "trainer_cls"),
}
"""Setting → its names in the order of TOOLS, where they differ; empty where a tool has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One setting, as it is explained."""

    name: str
    table: str
    about: str
    accepts: str
    default: Any
    """What the trainer takes where nothing is said; None also where there is no default."""
    required: bool
    names: Mapping[str, tuple[str, ...]]
    """Name elsewhere → the tools that call it so."""
    aliases: tuple[str, ...]
    """Other names that are taken for it."""

    @property
    def words(self) -> str:
        """All names it is found by."""
        return " ".join([self.name, *self.names, *self.aliases])


def setting(name: str) -> Setting:
    """A setting by its own name; KeyError for one that is not there."""
    info = setting_info(name)
    default = info.get_default(call_default_factory=True)
    required = default is PydanticUndefined
    return Setting(
        name=name,
        table=SETTINGS[name],
        about=" ".join((info.description or "").split()),
        accepts=_accepts(info),
        default=None if required else default,
        required=required,
        names=_names(name),
        aliases=_aliases(name),
    )


def every_setting() -> tuple[Setting, ...]:
    """All of them, in the order of spec.toml."""
    return tuple(setting(name) for name in SETTINGS)


def _aliases(name: str) -> tuple[str, ...]:
    plain = {alias for alias, known in ALIASES.items() if known == name}
    return tuple(
        sorted(plain | {alias for alias, (known, _) in TRANSLATED.items() if known == name})
    )


def _names(name: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for tool, called in zip(TOOLS, NAMES.get(name, ()), strict=False):
        if called and called != name:
            found[called] = (*found.get(called, ()), tool)
    return found


def _accepts(info: Any) -> str:
    """What a value may be, in words."""
    kind = info.annotation
    optional = type(None) in get_args(kind)
    choices = _choices(kind)
    words = ", ".join(choices) if choices else _range(kind, info.metadata)
    return f"{words}{OR_NONE}" if optional else words


def accepts_said(one: Setting) -> str:
    """What a setting takes, in the reader's language; words that are typed stay as they are."""
    words, none, _ = one.accepts.partition(OR_NONE)
    if not CHOICES.fullmatch(words):
        return said(one.accepts)
    return words + (mark(", ") + said("or none") if none else "")


def _choices(kind: Any) -> tuple[str, ...]:
    """The words a Literal takes, also one inside `X | None`."""
    if get_origin(kind) is not None and all(isinstance(arg, str) for arg in get_args(kind)):
        return get_args(kind)
    inner = [choice for arg in get_args(kind) for choice in _choices(arg)]
    return tuple(inner)


def _range(kind: Any, metadata: Sequence[Any]) -> str:
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if get_origin(kind) is tuple:
        return "names, separated by commas"
    found = next(
        (words for one, words in kinds.items() if kind is one or one in get_args(kind)), ""
    )
    words = found or "text"
    for bound_by, word in (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below")):
        for bound in metadata:
            limit = getattr(bound, bound_by, None)
            if limit is not None and limit < NO_LIMIT:
                words += f" {word} {limit:,}" if isinstance(limit, int) else f" {word} {limit:g}"
    return words
