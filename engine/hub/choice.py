"""Which files of a hub's repository are wanted: those of a model, or of one split of a data set."""

from __future__ import annotations

import fnmatch
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.failure import RunError
from engine.hub.repo import Listing, Read
from engine.theirs import quoted

INDEX = "model.safetensors.index.json"
WEIGHTS = "model.safetensors"
BESIDE = ("*.json", "*.jinja", "*.txt", "*.model", "README.md", "LICENSE*")
"""Of a model beside its weights: configuration, tokenizer, templates, licence."""
CODE = "*.py"
"""Its own code, where it may run."""


def model_files(listing: Listing, read: Read, *, code: bool = False) -> Sequence[str]:
    """The files of a model, its weights once: repositories often have them in several forms.

    Code only where it is asked for.
    Raises RunError (bad_spec) where there are no safetensors.
    """
    root = [file.path for file in listing.files if "/" not in file.path]
    beside = (*BESIDE, CODE) if code else BESIDE
    small = [name for name in root if any(fnmatch.fnmatch(name, wanted) for wanted in beside)]
    if INDEX in root:
        weights = sorted(set(_weight_map(read(INDEX)).values()))
        absent = [name for name in weights if name not in root]
        if absent:
            raise RunError("bad_spec", f"{INDEX} names {absent[0]}, which the repository lacks")
    elif WEIGHTS in root:
        weights = [WEIGHTS]
    else:
        weights = [name for name in root if name.endswith(".safetensors")]
    if not weights:
        raise RunError("bad_spec", "the repository has no *.safetensors, so no weights to train")
    return [*small, *weights]


def _weight_map(index: Path) -> dict[str, str]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {str(tensor): str(file) for tensor, file in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise RunError("bad_spec", f"{INDEX} of the repository is damaged") from None


def split_files(
    listing: Listing, read: Read, config: str | None, split: str | None
) -> Sequence[str]:
    """The files of one split of a data set, in order.

    `datasets` decides by its own rules (README, folders, names), on empty files of the same names.
    Without a split it is `train`, or the only one there is; without a configuration the default.
    Raises RunError (bad_data) naming what there is to choose from.
    """
    card = read("README.md") if listing.file("README.md") else None
    with tempfile.TemporaryDirectory() as name:
        names = Path(name) / "names"
        for file in listing.files:
            if not file.path.endswith((".py", "README.md")):  # code of a data set is never run
                (names / file.path).parent.mkdir(parents=True, exist_ok=True)
                (names / file.path).touch()
        names.mkdir(exist_ok=True)
        if card is not None:
            (names / "README.md").write_bytes(card.read_bytes())
        found = _splits(names, config, Path(name) / "cache")
    chosen = split or ("train" if "train" in found or len(found) != 1 else next(iter(found)))
    if chosen not in found:
        what = ", ".join(found) or "none"
        raise RunError("bad_data", f"has no split `{chosen}`; there are: {what}")
    return found[chosen]


def _splits(names: Path, config: str | None, cache: Path) -> dict[str, list[str]]:
    """Split → files, by the rules of `datasets`."""
    from datasets import load_dataset_builder
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    try:
        builder = load_dataset_builder(str(names), name=config, cache_dir=str(cache))
    except Exception as error:
        raise RunError("bad_data", _first_sentence(error, names, config)) from None
    given: Any = builder.config.data_files or {}
    return {
        str(split): [str(Path(file).relative_to(names)) for file in files]
        for split, files in given.items()
    }


def _first_sentence(error: Exception, names: Path, config: str | None) -> str:
    text = str(error).strip() or type(error).__name__
    there = re.search(r"\[([^\]]*)\]", text) if "onfig" in text else None
    if there:
        has = "has several configurations" if config is None else f"has no configuration `{config}`"
        return f"{has}; name one as :CONFIGURATION/SPLIT: {there[1]}"
    first = text.splitlines()[0].replace(f"The directory at {names}", "it")
    return f"cannot be read: {quoted(first.replace(str(names), 'it').rstrip('.'))}"
