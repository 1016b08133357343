"""Sizes of a folder's safetensors weights, read from their headers alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from engine.theirs import why
from wizard.problem import Problem, ProblemError
from wizard.wording import counted

HEADER_LIMIT_BYTES = 100 * 1024**2
"""The format's own limit."""
OUTPUT_HEADS = ("lm_head.weight", "output.weight", "embed_out.weight")


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """What the headers say."""

    parameters: int
    """All elements; a tied output head that is stored as well is counted once."""
    file_bytes: int
    dimensions: Mapping[str, int]
    """Name of each tensor → its dimensions."""


def read_weights(folder: Path, *, tied: bool) -> Weights:
    """Count the elements of every tensor in a model folder.

    Raises ProblemError when there are no safetensors, or one is missing or cut short.
    """
    files = _files(folder)
    shapes: dict[str, tuple[int, ...]] = {}
    for path in files:
        shapes.update(_shapes(path))
    counted = {
        name: math.prod(shape)
        for name, shape in shapes.items()
        if not (tied and name in OUTPUT_HEADS and len(shapes) > 1)
    }
    return Weights(
        parameters=sum(counted.values()),
        file_bytes=sum(p.stat().st_size for p in files),
        dimensions={name: len(shape) for name, shape in shapes.items()},
    )


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return _indexed(folder, index)
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickled = next(iter(sorted(folder.glob("*.bin"))), None)
    raise ProblemError(
        Problem(
            what="no weights in safetensors format"
            + (f": only {pickled.name}, which can run code when loaded" if pickled else ""),
            where=str(folder),
            fix="give the folder of a complete model, or convert the weights to safetensors",
            exit_code=2,
        )
    )


def _indexed(folder: Path, index: Path) -> list[Path]:
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        raise _broken(index, f"not a weights index: {why(error)}") from None
    names = _names(content)
    if not names:
        raise _broken(index, "not a weights index: its `weight_map` names no files")
    missing = [name for name in names if not (folder / Path(name).name).is_file()]
    if missing:
        raise _broken(
            folder,
            f"{len(missing)} of {counted(len(names), 'weight file')} missing, first {missing[0]}",
        )
    return [folder / Path(name).name for name in names]


def _names(content: object) -> list[str]:
    """The files an index names; none when it is not one."""
    table = content.get("weight_map") if isinstance(content, dict) else None
    names = table.values() if isinstance(table, dict) else ()
    usable = all(
        isinstance(name, str) and 0 < len(name.encode("utf-8", "replace")) < 256 for name in names
    )
    return sorted(set(names)) if usable else []


def _shapes(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    header, header_bytes = _header(path)
    end = 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        shape, stop = _described(path, name, tensor)
        end = max(end, stop)
        yield name, shape
    missing_bytes = header_bytes + end - path.stat().st_size
    if missing_bytes > 0:
        raise _broken(path, f"cut short: {counted(missing_bytes, 'byte')} missing")


def _described(path: Path, name: str, tensor: object) -> tuple[tuple[int, ...], int]:
    """(shape, end of the data) of one tensor, when its data can hold that shape."""
    table = tensor if isinstance(tensor, dict) else {}
    shape, offsets = table.get("shape"), table.get("data_offsets")
    if _are_counts(shape) and _are_counts(offsets) and len(offsets) == 2:
        elements, size = math.prod(shape), offsets[1] - offsets[0]
        if elements <= 8 * size:  # no format has less than a bit for an element
            return tuple(shape), offsets[1]
    raise _broken(path, f"not a safetensors file: its header does not describe `{name}`")


def _are_counts(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 2**63 for value in values
    )


def _header(path: Path) -> tuple[Mapping[str, Any], int]:
    """(the header, bytes before the first tensor) of a safetensors file."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(HEADER_LIMIT_BYTES, path.stat().st_size):
                raise _broken(path, "not a safetensors file, or cut short")
            header = json.loads(file.read(length))
    except OSError as error:
        raise _broken(path, f"cannot be read: {why(error)}") from None
    except (ValueError, RecursionError):
        raise _broken(path, "not a safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise _broken(path, "not a safetensors file: its header is not a table")
    return header, 8 + length


def _broken(path: Path, what: str) -> ProblemError:
    fix = "download or copy the model again"
    return ProblemError(Problem(what=what, where=str(path), fix=fix, exit_code=2))
