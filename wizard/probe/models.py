"""Models there are without asking anybody: folders, caches and the shipped table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from wizard import paths
from wizard.facts import KnownModel
from wizard.probe import catalog
from wizard.probe.environment import hub_cache
from wizard.probe.model import cached_folder
from wizard.problem import ProblemError

INSTRUCT = re.compile(
    r"(?<![a-z])(instruct|chat|it|think(ing)?|r1|sft|dpo|rlhf|distill)(?![a-z])", re.I
)
BASE = re.compile(r"(?<![a-z])(base|pt|pretrain(ed)?)(?![a-z])", re.I)


def known_models(environment: Mapping[str, str], here: Path) -> tuple[KnownModel, ...]:
    """Models on this machine first, then those of the shipped table; each once."""
    found: dict[str, KnownModel] = {}
    for name in (*_folders(here), *_own(), *_cached(environment)):
        found.setdefault(name, _of(name, on_disk=True))
    for name in catalog.model_names():
        found.setdefault(name, _of(name, on_disk=cached_folder(name, environment) is not None))
    return tuple(sorted(found.values(), key=lambda one: not one.on_disk))


def search(models: tuple[KnownModel, ...], text: str) -> tuple[KnownModel, ...]:
    """Those whose name holds every word of the text, in any case."""
    words = re.split(r"[\s/_-]+", text.lower().strip())
    return tuple(one for one in models if all(word in one.name.lower() for word in words))


def kind_of(name: str) -> Literal["base", "instruct"] | None:
    """What a model was trained to do, as its name tells; None where it does not."""
    last = name.rstrip("/").rsplit("/", 1)[-1]
    if BASE.search(last):
        return "base"
    if INSTRUCT.search(last):
        return "instruct"
    others = [kind_of(other) for other in _sibling_names(name) & _names()]
    if "instruct" in others:
        return "base"
    return "instruct" if "base" in others else None


def sibling(name: str) -> str | None:
    """The base model of an instruct one, or the other way, where the table has it."""
    stem = re.sub(r"-(Instruct|Chat|it|Base|pt)(?=-|$)", "", name, flags=re.I)
    wanted = {stem, *_sibling_names(stem)} - {name}
    return next((known for known in catalog.model_names() if known in wanted), None)


def _sibling_names(name: str) -> set[str]:
    return {f"{name}-{end}" for end in ("Instruct", "Chat", "it", "Base", "pt")}


def _names() -> set[str]:
    return set(catalog.model_names())


def _of(name: str, *, on_disk: bool) -> KnownModel:
    row = catalog.model(name)
    parameters = catalog.number(row, "parameters") if row else None
    return KnownModel(
        name=name,
        on_disk=on_disk,
        parameters=None if parameters is None else int(parameters),
        licence=(row["licence"] or None) if row else None,
        gated=bool(row) and row is not None and row["gated"] in ("yes", "likely"),
        kind=kind_of(name),
    )


def _folders(here: Path) -> Iterator[str]:
    """Model folders in the current one."""
    try:
        yield from sorted(f"./{path.parent.name}" for path in here.glob("*/config.json"))
    except OSError:
        return


def _own() -> Iterator[str]:
    """Models that were made or fetched by this program."""
    try:
        folder = paths.cache() / "models"
        yield from sorted(str(path.parent) for path in folder.glob("*/config.json"))
    except (OSError, ProblemError):
        return


def _cached(environment: Mapping[str, str]) -> Iterator[str]:
    """Hub ids with a complete snapshot in the hub's cache."""
    try:
        repositories = sorted(hub_cache(environment).glob("models--*--*"))
    except (OSError, ProblemError):
        return
    for path in repositories:
        name = path.name.removeprefix("models--").replace("--", "/", 1)
        if cached_folder(name, environment):
            yield name
