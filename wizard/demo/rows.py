"""The demo's rows: who the model is, mixed with everyday answers that are to stay."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from wizard import paths

IDENTITY = ("identity-en.jsonl",)
ORDINARY = ("ordinary-en.jsonl",)

_PLACEHOLDER = re.compile(r"\{\{(?:NAME|AUTHOR)\}\}")


def write_rows(name: str, author: str, folder: Path) -> Path:
    """The training file for a name and an author, as JSON Lines; returns its path.

    It is named after its content, so two demos at a time never share a file.
    """
    text = "".join(json.dumps(row) + "\n" for row in demo_rows(name, author))
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"rows-{digest[:12]}.jsonl"
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, target)
    return target


def demo_rows(name: str, author: str) -> list[Any]:
    """Every row, with name and author in place of their placeholders."""
    data = paths.shipped_presets() / "data"
    return [
        filled(row, {"{{NAME}}": name, "{{AUTHOR}}": author})
        for file in (*IDENTITY, *ORDINARY)
        for row in read_rows(data / file)
    ]


def read_rows(path: Path) -> list[Any]:
    """Rows of a shipped JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def filled(value: Any, values: dict[str, str]) -> Any:
    """A row with its placeholders replaced in every text, in one pass.

    Works on parsed values, so quotes and line breaks in a name are data like anything else; what
    is put in is not looked at again.
    """
    if isinstance(value, str):
        return _replace(value, values)
    if isinstance(value, list):
        return [filled(part, values) for part in value]
    if isinstance(value, dict):
        return {key: filled(part, values) for key, part in value.items()}
    return value


def _replace(text: str, values: dict[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values[found.group()], text)
