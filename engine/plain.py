"""Plain: documents of text become tokens, and tokens become blocks of one length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from engine.data import RowError
from engine.failure import RunError


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """One text as tokens, with its end token."""

    input_ids: list[int]
    cut: bool = False
    """Never: a document that is longer than a block goes on in the next one."""

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.input_ids)

    @property
    def total(self) -> int:
        """Tokens that pass through the model."""
        return len(self.input_ids)

    @property
    def trained(self) -> int:
        """Tokens that are learnt: all, until blocks are made of them."""
        return len(self.input_ids)


class TextTokenizer:
    """Turns documents into tokens: begun and ended as this tokenizer's own models expect."""

    def __init__(self, tokenizer: Any) -> None:
        """Raises RunError (bad_spec) for a tokenizer that has no end token."""
        if tokenizer.eos_token_id is None:
            raise RunError(
                "bad_spec", "the tokenizer has no end token (eos_token) to put between documents"
            )
        self.tokenizer = tokenizer
        self.end = tokenizer.eos_token_id
        said = tokenizer("")["input_ids"]
        self.begin = [token for token in said[:1] if token == tokenizer.bos_token_id]

    def document(self, row: Any) -> Document:
        """The tokens of a row with `text`, or of one that is text.

        Special tokens that the text spells out stay plain text.
        Raises RowError with the reason when the row cannot be used.
        """
        text = row.get("text") if isinstance(row, dict) else row
        if not isinstance(text, str):
            raise RowError("`text` is missing or not text")
        if not text.strip():
            raise RowError("`text` is empty")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise RowError("`text` is not valid Unicode text") from None
        ids = self.tokenizer(
            text,
            add_special_tokens=False,
            split_special_tokens=True,
            return_attention_mask=False,
            verbose=False,
        )["input_ids"]
        return Document(input_ids=[*self.begin, *ids, self.end])


def blocks(documents: Iterator[Sequence[int]], length: int) -> Iterator[list[int]]:
    """Every token of the documents, in order, as blocks of `length`; the last may be shorter.

    A last block of one token has nothing to learn and is left out: it is an end token.
    """
    block: list[int] = []
    for document in documents:
        place = 0
        while place < len(document):
            taken = document[place : place + length - len(block)]
            block.extend(taken)
            place += len(taken)
            if len(block) == length:
                yield block
                block = []
    if len(block) > 1:
        yield block
