"""Values that follow from method, model, data and device, each with its reason."""

from __future__ import annotations

import math

from engine.spec import Spec
from wizard.facts import Dataset, Device, Facts, Model
from wizard.planner.ledger import Ledger
from wizard.wording import counted

MANY_ROWS = 50_000
"""From here on one pass shows the model enough."""
LENGTH_STEP = 128
LONGEST_DEFAULT = 2048
HEADER_TOKENS = 40
"""System text that a model's own template puts before rows without one."""
SPELT_TURN_TOKENS = 24
"""A turn's marks where the tokenizer does not know them and spells them out."""
BYTE_VOCABULARY = 1000
"""A smaller vocabulary has little more than a token for each byte."""


def decide_model(ledger: Ledger, facts: Facts, method: str, strategy: str, device: Device) -> None:
    """The settings of the table `model`."""
    model = facts.model
    assert model is not None
    ledger.record("model", model.path or model.name, "you named it")
    ledger.decide("revision", None, "the newest; the run records which it was")
    ledger.decide(
        "source",
        "local" if model.path else "auto",
        "it is on this machine" if model.path else "fetched once, then kept",
    )
    value, reason, others = _dtype(device, method, strategy)
    ledger.decide("dtype", value, reason, others)
    ledger.decide(
        "attn_implementation",
        "sdpa",
        "torch's own fused attention: always installed, no scores kept",
        {"eager": "keeps every attention score: memory grows with the square of the length"},
    )
    if model.has_chat_template is False:
        ledger.decide("template", "chatml", "the model has none; this one is widely understood")
    else:
        ledger.decide("template", None, "the model's own chat template")


def _dtype(device: Device, method: str, strategy: str) -> tuple[str, str, dict[str, str]]:
    if device.kind == "cpu":
        return (
            "float32",
            "CPUs compute in it exactly and rarely have fast 16-bit units",
            {"bfloat16": "half the memory, but slower on most CPUs and less exact"},
        )
    if device.bf16_native is not False:
        known = "has bfloat16 units" if device.bf16_native else "is not known; most have bfloat16"
        return (
            "bfloat16",
            f"{device.name} {known}: half the memory, and no overflow",
            {"float32": "twice the memory", "float16": "overflows where bfloat16 does not"},
        )
    if method == "full" and strategy != "zero3":
        return (
            "float32",
            f"{device.name} has no bfloat16 units, and float16 weights cannot be trained directly",
            {"float16": "its gradients cannot be unscaled without a float32 copy"},
        )
    return (
        "float16",
        f"{device.name} has no bfloat16 units; float16 is its fast format",
        {"bfloat16": "emulated on this device"},
    )


def decide_data(ledger: Ledger, facts: Facts) -> None:
    """The settings of the table `data`."""
    data, model = facts.dataset, facts.model
    assert data is not None
    assert model is not None
    ledger.record("data", data.path, "you named it")
    found = f"its rows are in the format {data.format}" if data.format else "taken from row one"
    ledger.decide("data_format", data.format or "auto", found)
    ledger.decide("columns", None, "the columns have names that are known")
    ledger.decide("model_name", None, "only rows with {{NAME}} in them need one")
    ledger.decide("model_author", None, "only rows with {{AUTHOR}} in them need one")
    system = ledger.decide("system", None, "rows keep the system text they have")
    template = ledger.decisions["template"].value
    ledger.decide(
        "max_length", *_max_length(model, data, _most_tokens(model, data, template, system))
    )
    ledger.decide("max_dropped_percent", 1.0, "more bad rows than this point to a wrong file")


def most_tokens(spec: Spec, facts: Facts) -> int:
    """Tokens the longest row may have, on the safe side of what its tokenizer will say."""
    assert facts.model is not None
    assert facts.dataset is not None
    return _most_tokens(facts.model, facts.dataset, spec.model.template, spec.data.system)


def _most_tokens(model: Model, data: Dataset, template: str | None, system: str | None) -> int:
    bytewise = model.vocab_size is not None and model.vocab_size < BYTE_VOCABULARY
    spelt = data.most_turns * SPELT_TURN_TOKENS
    header = HEADER_TOKENS + len((system or "").encode("utf-8"))
    if bytewise:
        return data.longest_row_bytes + spelt + header
    return data.longest_row_tokens + header + (spelt if template else 0)


def _max_length(model: Model, data: Dataset, most: int) -> tuple[int, str]:
    covering = max(LENGTH_STEP, math.ceil(most / LENGTH_STEP) * LENGTH_STEP)
    limits = {
        covering: f"estimated to cover the longest row, {data.longest_row_chars:,} characters",
        LONGEST_DEFAULT: "longer rows are cut: memory grows with the longest one",
    }
    if model.max_positions:
        limits[model.max_positions] = "the most positions this model has"
    length = min(limits)
    return length, limits[length]


def decide_method(ledger: Ledger, method: str) -> None:
    """The settings of the table `method` other than the method itself."""
    unused = "unused: all weights are trained"
    full = method == "full"
    ledger.decide(
        "lora_rank", 16, unused if full else "enough for style and format; 64 for new knowledge"
    )
    rank = int(ledger.decisions["lora_rank"].value)
    ledger.decide("lora_alpha", 2 * rank, unused if full else "twice the rank, the usual scale")
    ledger.decide("lora_dropout", 0.0, unused if full else "costs memory and seldom helps")
    ledger.decide(
        "target_modules",
        "all-linear",
        unused if full else "adapters on every linear layer learn more than on attention alone",
    )


def decide_schedule(ledger: Ledger, facts: Facts, method: str) -> None:
    """How long and at which rate, before the batch is known."""
    rows = facts.dataset.rows if facts.dataset else 0
    ledger.decide(
        "num_train_epochs",
        1.0 if rows >= MANY_ROWS else 3.0,
        f"{counted(rows, 'row')}: "
        + ("one pass is enough" if rows >= MANY_ROWS else "seen three times"),
    )
    ledger.decide("max_steps", -1, "the epochs decide")
    if method == "full":
        ledger.decide("learning_rate", 2e-5, "the usual rate when all weights move")
    else:
        ledger.decide("learning_rate", 2e-4, "adapters take a much higher rate than full tuning")
    ledger.decide("lr_scheduler_type", "cosine", "falls slowly at first and ends near zero")
    ledger.decide("warmup_ratio", 0.03, "the first steps are small while Adam's averages settle")
    ledger.decide("weight_decay", 0.0, "short runs on a trained model do not need it")
    ledger.decide("max_grad_norm", 1.0, "one odd batch cannot throw the weights off")
    ledger.decide("seed", 42, "a fixed seed makes the run repeatable")
    ledger.decide("save_total_limit", 2, "the newest, and one in case it is damaged")


def decide_optimizer(ledger: Ledger, kind: str, strategy: str) -> None:
    """The optimizer and the collective's patience."""
    if strategy == "zero3":
        ledger.decide("optim", "adamw_torch", "DeepSpeed shards its states")
    elif kind == "cpu":
        ledger.decide("optim", "adamw_torch", "plain AdamW; the fused kernel is for accelerators")
    else:
        ledger.decide(
            "optim",
            "adamw_torch_fused",
            "one kernel for all weights: fastest, and no temporary copies",
            {"adamw_bnb_8bit": "less state memory, slightly less exact"},
        )
    ledger.decide("ddp_timeout", 1800, "long enough for the slowest load, short enough to notice")


def decide_rhythm(ledger: Ledger, steps: int | None) -> None:
    """How often the run logs and saves."""
    every = 1 if steps is None or steps <= 2000 else 10
    ledger.decide(
        "logging_steps",
        every,
        f"a curve of {counted(steps, 'step') if steps else 'an unknown number of steps'}",
    )
    quarter = 500 if steps is None else max(1, min(500, math.ceil(steps / 4)))
    ledger.decide("save_steps", quarter, "four checkpoints or more, at most 500 steps apart")
