"""Versions as numbers, and whether one is among those wanted."""

from __future__ import annotations

import re


def satisfies(version: str, wanted: str) -> bool:
    """Whether a version is among those wanted, such as `>=5.24,<5.25`; what is unclear passes."""
    have = numbers(version)
    for part in wanted.replace("(", "").replace(")", "").split(","):
        found = re.fullmatch(r"\s*(>=|<=|==|<|>)\s*([\d.]+)\s*", part)
        if not found:
            continue
        limit = numbers(found[2])
        width = max(len(have), len(limit))
        left, right = (one + (0,) * (width - len(one)) for one in (have, limit))
        order = (left > right) - (left < right)
        if order not in {">=": (0, 1), "<=": (0, -1), "==": (0,), "<": (-1,), ">": (1,)}[found[1]]:
            return False
    return True


def numbers(version: str) -> tuple[int, ...]:
    """The release part of a version: `2.13.0+cu130` → (2, 13, 0)."""
    found = re.match(r"\d{1,9}(\.\d{1,9})*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
