"""(Model) → a model in words, and what stands for data while there is none yet."""

from __future__ import annotations

from dataclasses import replace

from wizard import wording
from wizard.answers import Answers
from wizard.facts import Dataset, Model
from wizard.problem import Problem

USUAL_TOKENS = 2048
USUAL_ROWS = 10_000
BATCH = (
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "effective_batch_size",
)


def nominal_rows() -> Dataset:
    """Rows as they usually are, to say whether a model fits before there is data."""
    return Dataset(
        path="usual rows",
        format="messages",
        rows=USUAL_ROWS,
        longest_row_tokens=USUAL_TOKENS,
        longest_row_bytes=4 * USUAL_TOKENS,
        most_turns=2,
    )


def nominal_answers(answers: Answers, model: Model) -> Answers:
    """The user's answers for those rows and this model."""
    kept = {k: v for k, v in answers.settings.items() if k not in ("model", "data")}
    settings = {"max_length": USUAL_TOKENS, **kept}
    return replace(answers, model=model.name, data=None, settings=settings)


def least_answers(answers: Answers, model: Model) -> Answers:
    """The same with one row at once: larger batches fill whatever memory there is."""
    usual = nominal_answers(answers, model)
    if any(name in usual.fixed for name in BATCH):
        return usual
    return replace(usual, settings={**usual.settings, BATCH[0]: 1})


def untrainable(model: Model) -> Problem | None:
    """Why a model cannot be trained; None where nothing is known against it."""
    if not model.quantized:
        return None
    return Problem(
        what=f"already quantised ({model.quantized}), so it cannot be trained",
        where=model.name,
        fix="take the original: method qlora makes it 4-bit while it loads",
    )


def describe(
    model: Model, kind: str | None = None, disk_free_bytes: int | None = None
) -> list[tuple[str, str]]:
    """A model's facts as labels and values."""
    exact = f" ({wording.count(model.parameters)})" if model.parameters else ""
    heads = f"{wording.count(model.num_heads)}, {wording.count(model.num_kv_heads)} key/value"
    template = {True: "its own", False: "none: a shipped one is needed", None: wording.UNKNOWN}
    kinds = {"base": "base: no chat habit", "instruct": "instruct: answers as an assistant"}
    gated = {True: ("gated", "yes: HF_TOKEN, and its licence accepted")}.get(model.gated or False)
    vision = ("vision", f"{model.vision} tower: stays as it is, only text is learnt")
    code = f"{', '.join(model.own_code)}: runs only with trust_remote_code"
    at = [("commit", model.commit)] if model.own_code and model.commit else []
    fetched = f"fetched when the run starts; {wording.gib(disk_free_bytes)} free"
    return [
        ("name", model.name),
        ("folder", model.path or fetched),
        ("kind", kinds.get(kind or "", "its name does not tell base or instruct")),
        ("licence", model.licence or wording.UNKNOWN),
        *([gated] if gated else []),
        ("quantized", f"{model.quantized}: cannot be trained" if model.quantized else "no"),
        *([vision] if model.vision else []),
        *([("own code", code)] if model.own_code else []),
        *at,
        ("parameters", wording.parameters(model.parameters) + exact),
        ("weights", _weights(model)),
        ("architecture", model.architecture or wording.UNKNOWN),
        ("layers", wording.count(model.num_layers)),
        ("hidden size", wording.count(model.hidden_size)),
        ("heads", heads),
        ("vocabulary", wording.count(model.vocab_size)),
        ("positions", wording.count(model.max_positions)),
        ("chat template", template[model.has_chat_template]),
        ("known from", model.source or wording.UNKNOWN),
    ]


def _weights(model: Model) -> str:
    """Their format and size; where no file is at hand, as two bytes a parameter come to."""
    kind = model.dtype or "format unknown"
    if model.disk_bytes or not model.parameters:
        return f"{kind}, {wording.gib(model.disk_bytes)} on disk"
    return f"{kind}, about {wording.gib(2 * model.parameters)} to fetch"
