"""How many tokens a text may become, told without its tokenizer."""

from __future__ import annotations

import math
import re
import string
from collections import Counter

TURN_TOKENS = 8
"""Marks a chat template puts around a turn: ChatML and Llama 3 have five, some models more."""

LETTERS = (string.ascii_letters + " ").encode("ascii")
INK = bytes(ord("x") if ord("!") <= code <= ord("~") else ord(" ") for code in range(256))
SOLID_BYTES = 40
SOLID = re.compile(rb"[!-~]{%d,}" % SOLID_BYTES)
"""Base64, hashes, long addresses: a vocabulary made of words knows little of them."""


def most_tokens(text: bytes) -> int:
    """Tokens a UTF-8 text may become; a byte-level tokenizer never makes more than it has bytes.

    ASCII letters and spaces count one half: with a vocabulary of 49,152, English has 3 to 4 of
    them in a token, unaccented Finnish and Swahili 2.3, capitals 2.5, single letters 2. All other
    bytes count one, because a digit, a sign or a rare character may take a token for each.
    """
    solid = b"x" * SOLID_BYTES in text.translate(INK)  # far faster than the pattern
    prose = SOLID.sub(b"", text) if solid else text
    rest = len(prose.translate(None, LETTERS))
    return len(text) - len(prose) + rest + -(-(len(prose) - rest) // 2)


class Lengths:
    """How many rows there are of which length, in a few dozen numbers for any number of rows."""

    PER_DOUBLING = 8.0
    """Lengths that are told apart between one and its double: 9 % from one to the next."""

    def __init__(self) -> None:
        self._rows: Counter[int] = Counter()

    def add(self, chars: int) -> None:
        """Count a row."""
        self._rows[math.ceil(self.PER_DOUBLING * math.log2(max(1, chars)))] += 1

    def counts(self) -> tuple[tuple[int, int], ...]:
        """(characters, rows of up to so many that are longer than those before it)."""
        return tuple(
            (math.floor(2 ** (step / self.PER_DOUBLING)), rows)
            for step, rows in sorted(self._rows.items())
        )
