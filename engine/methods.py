"""Methods: what is learnt from the rows, by which loss, and which parameters learn it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from engine.table import LARGEST, Table

Method = Literal["full", "lora", "qlora"]
Stage = Literal["sft", "pretrain", "dpo", "kto", "reward"]
PairLoss = Literal[
    "sigmoid",
    "hinge",
    "ipo",
    "exo_pair",
    "nca_pair",
    "robust",
    "bco_pair",
    "sppo_hard",
    "aot",
    "aot_unpaired",
    "apo_zero",
    "apo_down",
    "discopop",
    "sft",
    "sigmoid_norm",
]
"""Losses over pairs of answers that TRL's DPO has."""
LabelLoss = Literal["kto", "apo_zero_unpaired"]
"""Losses over single answers with a label that TRL's KTO has."""
LOSSES: Mapping[Stage, tuple[str, ...]] = {"dpo": get_args(PairLoss), "kto": get_args(LabelLoss)}
STAGE_SETTINGS: Mapping[str, tuple[Stage, ...]] = {
    "beta": ("dpo", "kto"),
    "loss_type": ("dpo", "kto"),
    "label_smoothing": ("dpo",),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
    "center_rewards_coefficient": ("reward",),
}
"""Settings of some stages only; elsewhere they must be left out."""
STAGE_FORMAT: Mapping[str, str] = {
    "pretrain": "text",
    "dpo": "preference",
    "kto": "kto",
    "reward": "preference",
}
"""Stage → the one format of rows it reads; `sft` reads all the others."""
STAGES_OF: Mapping[str, str] = {"text": "pretrain", "preference": "dpo or reward", "kto": "kto"}
"""Format → the stages that read it, where `sft` does not."""
STAGE_OF: Mapping[str, Stage] = {"text": "pretrain", "preference": "dpo", "kto": "kto"}
"""Format → the stage that such rows are for, where it is not `sft` and none is named."""
METRICS: Mapping[Stage, tuple[str, ...]] = {
    "sft": ("eval_loss", "eval_mean_token_accuracy"),
    "pretrain": ("eval_loss", "eval_mean_token_accuracy"),
    "dpo": ("eval_loss", "eval_rewards/accuracies", "eval_rewards/margins"),
    "kto": ("eval_loss",),
    "reward": ("eval_loss", "eval_accuracy", "eval_margin"),
}
"""Stage → what every evaluation measures that can tell the best checkpoint."""
SMOOTHED_LOSSES = ("exo_pair", "robust", "aot", "aot_unpaired")
"""Losses of `dpo` that use label_smoothing."""
ADAPTER_ONLY = ("use_rslora", "use_dora", "modules_to_save", "adapter")
"""Settings that mean nothing where all weights are trained."""

MOST_RANK = 2**20
"""Far above the width of any matrix, which is the most an adapter's rank can use."""


def wrong_stage(row_format: str, stage: str) -> str:
    """Why a stage does not read rows of a format; empty where it does."""
    wanted = STAGE_FORMAT.get(stage)
    if row_format == wanted or (wanted is None and row_format not in STAGES_OF):
        return ""
    return f"in the format `{row_format}`: set stage={STAGES_OF.get(row_format, 'sft')}"


def all_labelled(kind: str) -> str:
    """What to know of labels that are all the same."""
    return f"all answers are labelled {kind}: there is nothing to tell them from"


def _module_names(text: str) -> str:
    if not all(part.strip() for part in text.split(",")):
        raise ValueError(f"{text!r} has an empty module name: write all-linear, or q_proj,v_proj")
    return text


def _module_names_or_none(text: str | None) -> str | None:
    return None if text is None else _module_names(text)


class MethodTable(Table):
    """Which parameters are trained."""

    method: Method
    """All weights, an adapter on 16- or 32-bit weights, or an adapter on 4-bit weights."""
    stage: Stage = "sft"
    """What is learnt: answers (`sft`), plain text (`pretrain`), which of two answers is better
    (`dpo`), which single answers are good (`kto`), or to score answers (`reward`)."""
    lora_rank: int = Field(default=16, ge=1, le=MOST_RANK)
    """Rank of the adapter; unused by `full`."""
    lora_alpha: int = Field(default=32, ge=1, le=LARGEST)
    """Scale of the adapter, divided by the rank."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of adapter inputs dropped in training."""
    target_modules: Annotated[str, AfterValidator(_module_names)] = "all-linear"
    """`all-linear`, or module names separated by commas."""
    use_rslora: bool = False
    """Divide lora_alpha by the root of the rank, so that high ranks do not fade."""
    use_dora: bool = False
    """Learn a weight's size and its direction apart: slower, often better at low ranks."""
    init_lora_weights: Literal["default", "gaussian", "olora", "pissa", "pissa_niter_16"] = (
        "default"
    )
    """How the adapter starts: with no effect, or (`olora`, `pissa`) as a part of the weights."""
    modules_to_save: Annotated[str | None, AfterValidator(_module_names_or_none)] = None
    """Modules trained whole beside the adapter, separated by commas, such as `embed_tokens`."""
    adapter: str | None = Field(default=None, min_length=1)
    """Folder of an adapter to go on training; None starts a new one."""
    beta: float | None = Field(default=None, gt=0)
    """How closely the model stays to its reference; None is 0.1."""
    loss_type: Literal[PairLoss, LabelLoss] | None = None
    """Loss of `dpo` (None is `sigmoid`) and `kto` (None is `kto`), in TRL's names."""
    label_smoothing: float | None = Field(default=None, ge=0, lt=0.5)
    """Share of pairs labelled the wrong way round, for `dpo` with the losses that use it."""
    desirable_weight: float | None = Field(default=None, gt=0)
    """Weight of good answers in `kto`; None is 1."""
    undesirable_weight: float | None = Field(default=None, gt=0)
    """Weight of bad answers in `kto`; None is 1."""
    center_rewards_coefficient: float | None = Field(default=None, ge=0)
    """Pull of a reward model's scores towards 0; None pulls nothing."""

    @property
    def sequences_per_row(self) -> int:
        """Sequences of one row that pass through the model at once: both answers of a pair."""
        return 2 if self.stage in ("dpo", "reward") else 1

    @model_validator(mode="after")
    def _the_stage_uses_it(self) -> Self:
        for name, stages in STAGE_SETTINGS.items():
            if getattr(self, name) is not None and self.stage not in stages:
                raise ValueError(
                    f"{name} is a setting of stage={' and '.join(stages)}, "
                    f"and stage is {self.stage}: leave it out"
                )
        known = LOSSES.get(self.stage, ())
        if self.loss_type is not None and self.loss_type not in known:
            raise ValueError(
                f"loss_type={self.loss_type} is no loss of stage={self.stage}: "
                f"its losses are {', '.join(known)}"
            )
        smooths = self.loss_type in SMOOTHED_LOSSES
        if self.label_smoothing is not None and not smooths:
            raise ValueError(
                "label_smoothing is used by the losses "
                f"{', '.join(SMOOTHED_LOSSES)} only: leave it out"
            )
        if self.loss_type == "exo_pair" and not self.label_smoothing:
            raise ValueError("loss_type=exo_pair needs a label_smoothing above 0: set 0.001")
        return self

    @model_validator(mode="after")
    def _an_adapter_uses_it(self) -> Self:
        if self.method == "full":
            used = [name for name in ADAPTER_ONLY if getattr(self, name)]
            used += ["init_lora_weights"] * (self.init_lora_weights != "default")
            if used:
                raise ValueError(f"{used[0]} needs an adapter: set method=lora, or leave it out")
        if self.adapter is not None and self.init_lora_weights != "default":
            raise ValueError(
                "init_lora_weights starts a new adapter, and adapter goes on with one there is: "
                "leave one out"
            )
        return self


REFERENCE_PASS = "the reference's log-probabilities, once for every row"


def needs_reference(method: MethodTable) -> bool:
    """Whether log-probabilities of the model as it was are computed before the first step.

    An adapter can be put aside to ask them again in every step; changed weights can not.
    """
    return method.stage in ("dpo", "kto") and method.method == "full"
