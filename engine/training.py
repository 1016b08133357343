"""Training: the optimisation and what speeds it up or saves memory, in Hugging Face's names."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from engine.table import LARGEST, Table

Tracker = Literal["none", "tensorboard", "wandb", "swanlab", "mlflow"]
LOWEST_RATE = 0.1
"""Share of the peak at which `cosine_with_min_lr` ends, unless `min_lr_rate` says otherwise."""
PREFETCHED = 2
"""Batches that each worker holds ready, unless `dataloader_prefetch_factor` says otherwise."""
NO_BETAS = ("adafactor", "sgd")
"""Optimizers that have no `adam_beta1` and `adam_beta2`."""
NO_EPSILON = (*NO_BETAS, "lion_32bit", "lion_8bit", "paged_lion_32bit", "paged_lion_8bit")
"""Optimizers that have no `adam_epsilon`."""


def _some_steps(steps: int) -> int:
    if steps == 0:
        raise ValueError("0 steps train nothing: write 1 or more, or -1 to follow the epochs")
    return steps


class TrainingTable(Table):
    """The optimisation, in Hugging Face's names."""

    num_train_epochs: float = Field(default=3.0, gt=0, le=1e6)
    """Passes over the data; unused when `max_steps` is set."""
    max_steps: Annotated[int, AfterValidator(_some_steps)] = Field(default=-1, ge=-1, le=LARGEST)
    """Optimizer steps; -1 follows the epochs."""
    effective_batch_size: int = Field(ge=1, le=LARGEST)
    """Rows per optimizer step over all ranks: micro-batch × accumulation × ranks."""
    per_device_train_batch_size: int = Field(default=1, ge=1, le=LARGEST)
    """Rows a rank holds at once."""
    gradient_accumulation_steps: int = Field(default=1, ge=1, le=LARGEST)
    """Micro-batches per optimizer step."""
    learning_rate: float = Field(default=1e-4, gt=0)
    """Peak learning rate."""
    lr_scheduler_type: Literal[
        "linear",
        "cosine",
        "cosine_with_min_lr",
        "cosine_with_restarts",
        "polynomial",
        "inverse_sqrt",
        "constant",
        "constant_with_warmup",
    ] = "cosine"
    """How the learning rate falls."""
    min_lr_rate: float | None = Field(default=None, gt=0, lt=1)
    """Share of the peak at which `cosine_with_min_lr` ends; None is 0.1."""
    warmup_ratio: float = Field(default=0.03, ge=0, lt=1)
    """Share of the steps in which the learning rate rises."""
    weight_decay: float = Field(default=0.0, ge=0)
    """AdamW weight decay."""
    max_grad_norm: float = Field(default=1.0, ge=0)
    """Gradients are clipped to this norm; 0 leaves them."""
    optim: Literal[
        "adamw_torch",
        "adamw_torch_fused",
        "adamw_bnb_8bit",
        "paged_adamw_32bit",
        "paged_adamw_8bit",
        "adafactor",
        "lion_32bit",
        "lion_8bit",
        "paged_lion_32bit",
        "paged_lion_8bit",
        "sgd",
    ] = "adamw_torch"
    """Optimizer and its number format."""
    adam_beta1: float = Field(default=0.9, ge=0, lt=1)
    """How slowly Adam's (and Lion's) average of the gradients forgets."""
    adam_beta2: float = Field(default=0.999, ge=0, lt=1)
    """How slowly Adam's average of the squares forgets; of Lion, its average of the gradients."""
    adam_epsilon: float = Field(default=1e-8, gt=0)
    """What keeps Adam from dividing by nothing."""
    neftune_noise_alpha: float | None = Field(default=None, gt=0)
    """Noise on the embeddings while answers are learnt, such as 5; None adds none."""
    gradient_checkpointing: bool = True
    """Recompute activations in the backward pass: less memory, slower."""
    activation_offloading: bool = False
    """Activations wait in host memory until the backward pass: less device memory, slower."""
    use_liger_kernel: bool = False
    """Liger's fused kernels for norms, rotary embeddings and MLPs: less memory, faster."""
    torch_compile: bool = False
    """Compile the model at the first steps: they take minutes, later ones are faster."""
    tf32: bool | None = None
    """Whether float32 matrices are multiplied in TF32; None leaves it to torch."""
    padding_free: bool = False
    """Rows of a micro-batch go through the model as one sequence, none padded."""
    group_by_length: bool = False
    """Rows of like length share a batch: less padding, a less random order."""
    dataloader_num_workers: int = Field(default=0, ge=0, le=256)
    """Processes of each rank that make batches ahead; 0 makes them in the rank itself."""
    dataloader_prefetch_factor: int | None = Field(default=None, ge=1, le=1024)
    """Batches that each of these holds ready; None is 2."""
    seed: int = Field(default=42, ge=0, le=2**32 - 1)
    """Seed of adapters and of the order of rows."""
    logging_steps: int = Field(default=1, ge=1, le=LARGEST)
    """Optimizer steps between two loss values."""
    report_to: Tracker = "none"
    """Tracker that is told the losses too; tokens come from the environment, never from files."""
    save_steps: int = Field(default=500, ge=1, le=LARGEST)
    """Optimizer steps between two checkpoints."""
    save_total_limit: int = Field(default=2, ge=1, le=LARGEST)
    """Checkpoints kept, beside the best one of a run that evaluates."""
    eval_steps: int | None = Field(default=None, ge=1, le=LARGEST)
    """Optimizer steps between two evaluations; None evaluates whenever a checkpoint is saved."""
    metric_for_best_model: str | None = None
    """What tells the best checkpoint, which becomes the model; None is `eval_loss`."""
    greater_is_better: bool | None = None
    """Whether more of that is better; None: yes, but of losses less."""

    @model_validator(mode="after")
    def _what_is_set_is_used(self) -> Self:
        if self.min_lr_rate is not None and self.lr_scheduler_type != "cosine_with_min_lr":
            raise ValueError(
                "min_lr_rate is used by lr_scheduler_type=cosine_with_min_lr only: "
                "set that, or leave it out"
            )
        if self.dataloader_prefetch_factor is not None and not self.dataloader_num_workers:
            raise ValueError(
                "dataloader_prefetch_factor needs dataloader_num_workers: set that too, "
                "or leave it out"
            )
        if self.padding_free and self.group_by_length:
            raise ValueError(
                "group_by_length saves padding, of which padding_free leaves none: leave one out"
            )
        if self.greater_is_better is not None and self.metric_for_best_model is None:
            raise ValueError(
                "greater_is_better is said of metric_for_best_model: set that too, or leave it out"
            )
        return self

    @model_validator(mode="after")
    def _the_optimizer_has_it(self) -> Self:
        lacks = {"adam_beta1": NO_BETAS, "adam_beta2": NO_BETAS, "adam_epsilon": NO_EPSILON}
        for name, optimizers in lacks.items():
            value, usual = getattr(self, name), type(self).model_fields[name].default
            if value != usual and self.optim in optimizers:
                raise ValueError(
                    f"optim={self.optim} has no {name}: leave it out, or set optim=adamw_torch"
                )
        return self
