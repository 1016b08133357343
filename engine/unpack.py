"""Unpack: a GGUF file → an ordinary safetensors model folder, made once."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from engine.events import EXIT_BAD_SPEC, EXIT_CANNOT_WRITE, EXIT_OK
from engine.theirs import why

ORIGIN = "origin.json"
"""What the folder was made from, and the SHA-256 of every file in it."""

MODEL_CARD = """\
---
license: apache-2.0
---

# {name}

SmolLM2-135M-Instruct by HuggingFaceTB, under the Apache License 2.0.

This is not the published checkpoint. It was made from `{file}` (SHA-256 `{digest}`), a Q4_1 file:
its 4-bit weights were expanded to bfloat16, the format of the published checkpoint, so that it can
be trained like any other model. What the 4-bit rounding lost is not in it.
"""


def unpack(gguf: Path, folder: Path) -> None:
    """Make `folder` from `gguf`: whole or not at all.

    Raises OSError when the disk cannot be written and ValueError for a file that is not GGUF.
    """
    with gguf.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{gguf}: this is not a GGUF file")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _beside(folder) as part:
        _write_model(gguf, part)
        _write_note(gguf, part, folder.name)
        os.replace(part, folder)


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder next to `folder`, removed unless it was renamed."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    for left in folder.parent.glob(f".{folder.name}.*.part"):
        if not _runs(left.name.split(".")[-2]):
            shutil.rmtree(left, ignore_errors=True)
    part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _runs(pid: str) -> bool:
    """Whether a process of this id is alive; True for what is not an id, to keep off it."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except (ValueError, PermissionError):
        return True
    return int(pid) != os.getpid()


def _write_model(gguf: Path, part: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    where: dict[str, Any] = {
        "pretrained_model_name_or_path": str(gguf.parent),
        "gguf_file": gguf.name,
    }
    tokenizer = AutoTokenizer.from_pretrained(**where)
    if not tokenizer.chat_template:
        raise ValueError(f"{gguf}: this file has no chat template")
    model = AutoModelForCausalLM.from_pretrained(
        **where, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    # With either, save_pretrained would call the folder quantised, and every later load
    # would look for the GGUF file.
    vars(model.config).pop("quantization_config", None)
    model.hf_quantizer = None
    model.save_pretrained(part)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(part)


def _write_note(gguf: Path, part: Path, name: str) -> None:
    digest = sha256(gguf)
    (part / "README.md").write_text(
        MODEL_CARD.format(name=name, file=gguf.name, digest=digest), encoding="utf-8"
    )
    files = {file.name: sha256(file) for file in sorted(part.iterdir())}
    origin = {
        "schema": 1,
        "made_from": {"file": gguf.name, "sha256": digest, "format": "Q4_1"},
        "licence": "Apache-2.0",
        "dtype": "bfloat16",
        "files": files,
    }
    (part / ORIGIN).write_text(json.dumps(origin, indent=2) + "\n", encoding="utf-8")


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _leave(_signal: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """`python -m engine.unpack GGUF FOLDER`; returns an engine exit code."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m engine.unpack GGUF FOLDER\n")
        return EXIT_BAD_SPEC
    signal.signal(signal.SIGTERM, _leave)
    gguf, folder = (Path(argument).absolute() for argument in arguments)
    try:
        unpack(gguf, folder)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_BAD_SPEC
    except OSError as error:
        sys.stderr.write(f"{folder}: the model folder cannot be made: {why(error)}\n")
        return EXIT_CANNOT_WRITE
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
