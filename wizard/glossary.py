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
}
"""Said by the help of the pages where they are met."""


def defined(words: Iterable[tuple[str, str]]) -> list[str]:
    """(word, meaning) → a line for each, in the reader's language."""
    return [said(word) + mark(": ") + said(meaning) for word, meaning in words]


def glossary() -> str:
    """The whole table as text; the words are those of the field in every language."""
    told = [word + mark(": ") + said(meaning) for word, meaning in GLOSSARY.items()]
    return "\n".join([said("Words"), *told])
