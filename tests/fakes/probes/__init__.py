"""Answers of the NVML child, line by line as it prints them; values from real machines."""

from __future__ import annotations

from pathlib import Path


def answer(name: str) -> str:
    """What the child printed on one kind of machine."""
    return (Path(__file__).parent / f"{name}.jsonl").read_text(encoding="utf-8")
