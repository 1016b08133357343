"""Words of the field that a page uses → what each means, in one sentence."""

from __future__ import annotations

from collections.abc import Iterable

from wizard.language import mark, said

GLOSSARY = {
    "rank": "one of the processes that train together, each with a device of its own",
    "full": "all weights of the model are trained; it takes the most memory",
    "LoRA": "small matrices beside the weights are trained and the weights stay as they are; the "
    "result is a small file",
    "QLoRA": "LoRA over weights that are held in 4 bits; the least memory, a little slower",
    "DDP": "every rank holds the whole model, and gradients are averaged after each step",
    "ZeRO-1, 2, 3": "DeepSpeed splits over the ranks what each would hold alone: optimizer "
    "states (1), also gradients (2), also weights (3)",
    "FSDP": "PyTorch splits weights, gradients and optimizer states over the ranks, as ZeRO-3 does",
    "layer_split": "the layers of one copy lie on several devices, which work in turn",
    "offload": "optimizer states or weights wait in host memory or on NVMe; it fits more, and is "
    "slower",
    "effective batch": "rows that one update learns from: rows at once × accumulation × ranks",
    "gradient checkpointing": "activations are computed twice in place of kept; less memory, about "
    "a third more time",
    "packing": "short rows are joined up to max_length, so that padding takes little room",
    "allocator": "torch keeps memory that was freed, to use it again: what it holds beyond the "
    "tensors themselves",
    "autocast copies": "copies in 16 bits of weights that are held in 32, made for computing and "
    "kept until the backward pass is over",
    "alpaca": "rows with the columns instruction, input and output, as the data set of that name",
    "rung": "one of a run's fallbacks: where memory runs out, it goes on with the next one, the "
    "same effective batch in less memory",
    "grad norm": "how hard one update pulls at all weights together, as one number; what is above "
    "max_grad_norm is scaled down to it (clipped), and a jump warns of a loss that breaks",
    "Xid": "the number that NVIDIA's driver gives an error of a GPU; `tunewright doctor` says what "
    "it means",
}
"""Said by the help of the pages where they are met."""
OF_RUNS = ("rank", "rung", "grad norm", "Xid")
"""Words of the dashboard,"""
OF_PLANS = tuple(word for word in GLOSSARY if word not in ("grad norm", "Xid"))
"""and of the pages before it."""
KINDS_OF_ROWS = {
    "messages": "chat messages",
    "alpaca": "instruction and output",
    "query_response": "query and response",
    "prompt_completion": "prompt and completion",
    "text": "plain text",
    "preference": "chosen and rejected answers",
    "kto": "answers with a label",
}
"""`data_format` → what such rows hold."""


def kind_of_rows(data_format: str | None) -> str:
    """What rows of a format hold; None stands for sets that differ."""
    return KINDS_OF_ROWS.get(data_format, data_format) if data_format else "several formats"


def defined(words: Iterable[tuple[str, str]]) -> list[str]:
    """(word, meaning) → a line for each, in the reader's language."""
    return [said(word) + mark(": ") + said(meaning) for word, meaning in words]


def glossary(words: Iterable[str] = OF_PLANS) -> str:
    """Some of the table as text; the words are those of the field in every language."""
    told = [word + mark(": ") + said(GLOSSARY[word]) for word in words]
    return "\n".join([said("Words"), *told])
