"""Values that follow from method, model, data and device, each with its reason."""

from __future__ import annotations

import math

from engine.spec import Spec
from wizard.facts import Dataset, Device, Facts, Model
from wizard.planner.ledger import Ledger

WITHOUT_SDPA = frozenset((
    "big_bird", "bloom", "cpmant", "deepseek_v4", "falcon_mamba", "flint", "gemma2", "gpt_neo",
    "gpt_neox_japanese", "gpt_oss", "granite_swa", "granitemoe_swa", "hy_v4", "mamba", "mamba2",
    "mimo_v2_flash", "mpt", "openai-gpt", "reformer", "rembert", "roformer", "rwkv",
    "vaultgemma", "xglm", "xlm", "xlnet", "xlstm",
))  # fmt: skip
"""Architectures of decoders that transformers 5.24 loads with eager attention only."""
LENGTH_STEP = 128
LONGEST_DEFAULT = 2048
HEADER_TOKENS = 40
"""System text that a model's own template puts before rows without one."""
SPELT_TURN_TOKENS = 24
"""A turn's marks where the tokenizer does not know them and spells them out."""
BYTE_VOCABULARY = 1000
"""A smaller vocabulary has little more than a token for each byte."""


def decide_model(
    ledger: Ledger, facts: Facts, method: str, strategy: str, device: Device, *, plain: bool
) -> None:
    """The settings of the table `model`; `plain` text has no turns for a template."""
    model = facts.model
    assert model is not None
    ledger.record("model", model.path or model.name, ledger.named("model"))
    trusted = _decide_own_code(ledger, model)
    if trusted and model.commit is not None:
        ledger.decide("revision", model.commit, "the commit at which its code was named to you")
    else:
        ledger.decide("revision", None, "the newest; the run records which it was")
    ledger.decide(
        "source",
        "local" if model.path else "auto",
        "it is on this machine" if model.path else "fetched once, then kept",
    )
    value, reason, others = _dtype(device, method, strategy)
    ledger.decide("dtype", value, reason, others)
    ledger.decide("attn_implementation", *_attention(model.architecture))
    if plain:
        ledger.decide("template", None, "plain text has no turns")
    elif model.has_chat_template is False:
        ledger.decide("template", "chatml", "the model has none; this one is widely understood")
    else:
        ledger.decide("template", None, "the model's own chat template")


def _decide_own_code(ledger: Ledger, model: Model) -> bool:
    """Whether code that comes with the model runs: only where the user says so."""
    files = ", ".join(model.own_code)
    why = "code of a model runs only if you say so"
    why = f"{files} may run once you have read it" if files else why
    trusted: bool = ledger.decide("trust_remote_code", False, why)
    return trusted


def _attention(architecture: str | None) -> tuple[str, str, dict[str, str]]:
    """(kernels, why, others and why not)."""
    scores = "keeps every attention score: memory grows with the square of the length"
    if architecture in WITHOUT_SDPA:
        why = f"transformers has no fused attention of torch's for {architecture}: it {scores}"
        return "eager", why, {"sdpa": f"{architecture} refuses it"}
    why = "torch's own fused attention: always installed, no scores kept"
    return "sdpa", why, {"eager": scores}


def _dtype(device: Device, method: str, strategy: str) -> tuple[str, str, dict[str, str]]:
    if device.kind == "cpu":
        return (
            "float32",
            "CPUs compute in it exactly and rarely have fast 16-bit units",
            {"bfloat16": "half the memory, but slower on most CPUs and less exact"},
        )
    native = _bf16_native(device)
    if native is not False:
        why = (
            f"{device.name} has bfloat16 units: half the memory, and no overflow"
            if native
            else f"{device.name} is not known; most have bfloat16: half the memory, and no overflow"
        )
        return (
            "bfloat16",
            why,
            {"float32": "twice the memory", "float16": "overflows where bfloat16 does not"},
        )
    if method == "full" and strategy not in ("zero1", "zero2", "zero3", "fsdp"):
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


def _bf16_native(device: Device) -> bool | None:
    """Whether it has bfloat16 units; where nothing tells, NVIDIA's came with Ampere."""
    if device.bf16_native is None and device.kind == "cuda" and device.compute_capability:
        return device.compute_capability >= (8, 0)
    return device.bf16_native


def decide_data(ledger: Ledger, facts: Facts, *, plain: bool) -> None:
    """The settings of the table `data`; `plain` text comes in blocks, of which none is cut."""
    data, model = facts.dataset, facts.model
    assert data is not None
    assert model is not None
    ledger.record("data", data.path, ledger.named("data"))
    found = f"its rows are in the format {data.format}" if data.format else "taken from row one"
    read = (data.format or "auto", found)
    if ledger.answers.fixed.get("preprocessor"):
        read = ("auto", "plugins.preprocessor makes the rows")
    ledger.decide("data_format", *read)
    ledger.decide("columns", None, "the columns have names that are known")
    ledger.decide("model_name", None, "only rows with {{NAME}} in them need one")
    ledger.decide("model_author", None, "only rows with {{AUTHOR}} in them need one")
    system = ledger.decide("system", None, "rows keep the system text they have")
    template = ledger.decisions["template"].value
    ledger.decide(
        "max_length",
        *_max_length(
            model,
            data,
            longest_tokens(model, data, template, system),
            filled=_filled(plain=plain, packing=bool(ledger.answers.fixed.get("packing"))),
        ),
    )
    ledger.decide("max_dropped_percent", 1.0, "more bad rows than this point to a wrong file")


def most_tokens(spec: Spec, facts: Facts) -> int:
    """Tokens the longest row may have, on the safe side of what its tokenizer will say."""
    assert facts.model is not None
    assert facts.dataset is not None
    return longest_tokens(facts.model, facts.dataset, spec.model.template, spec.data.system)


def longest_tokens(model: Model, data: Dataset, template: str | None, system: str | None) -> int:
    """The same before there is a spec: an estimate from the text of the rows."""
    bytewise = model.vocab_size is not None and model.vocab_size < BYTE_VOCABULARY
    spelt = data.most_turns * SPELT_TURN_TOKENS
    header = HEADER_TOKENS + len((system or "").encode("utf-8"))
    if bytewise:
        return data.longest_row_bytes + spelt + header
    return data.longest_row_tokens + header + (spelt if template else 0)


def _cut(data: Dataset) -> str:
    """How many rows the usual limit cuts, where their lengths are known."""
    if not (data.length_counts and data.longest_row_chars):
        return "longer rows are cut"
    most = LONGEST_DEFAULT * data.longest_row_chars / max(data.longest_row_tokens, 1)
    over = sum(rows for chars, rows in data.length_counts if chars > most)
    total = sum(rows for _, rows in data.length_counts)
    return f"longer rows are cut, about {over:,} of {total:,}"


def _filled(*, plain: bool, packing: bool) -> str:
    """What rows are joined into, and to which length; empty where each keeps its own."""
    if plain:
        return "the length of a block, which text fills to its end: nothing is cut"
    return "the length of a pack; longer rows are cut" if packing else ""


def _max_length(model: Model, data: Dataset, most: int, *, filled: str) -> tuple[int, str]:
    covering = max(LENGTH_STEP, math.ceil(most / LENGTH_STEP) * LENGTH_STEP)
    limits = {
        covering: f"estimated to cover the longest row, {data.longest_row_chars:,} characters",
        LONGEST_DEFAULT: filled or f"{_cut(data)}: memory grows with the longest one",
    }
    if model.max_positions:
        limits[model.max_positions] = "the most positions this model has"
    if filled:
        del limits[covering]
    length = min(limits)
    return length, limits[length]


def decide_optimizer(ledger: Ledger, kind: str, strategy: str) -> None:
    """The optimizer and the collective's patience."""
    if strategy in ("zero1", "zero2", "zero3"):
        ledger.decide("optim", "adamw_torch", "DeepSpeed shards its states")
    elif kind == "cpu":
        ledger.decide("optim", "adamw_torch", "plain AdamW; the fused kernel is for accelerators")
    else:
        ledger.decide(
            "optim",
            "adamw_torch_fused",
            "one kernel for all weights: fastest, and no temporary copies",
            {"adamw_bnb_8bit": "less state memory, slightly less exact"},
            changes_with="states that do not fit as they are: then 8-bit ones, for all weights",
        )
    ledger.decide("ddp_timeout", 1800, "long enough for the slowest load, short enough to notice")
