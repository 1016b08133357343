"""The models and data sets that settings name, fetched from their hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine import own_code
from engine.failure import RunError
from engine.hub.choice import model_files, split_files
from engine.hub.huggingface import HuggingFace
from engine.hub.modelscope import ModelScope
from engine.hub.repo import Hub, Listing, Read, Repo, Snapshot, Told, fetch
from engine.record import read_json
from engine.rows.sources import HubSet
from engine.spec import ModelTable

HUBS: Mapping[str, Callable[[], Hub]] = {"huggingface": HuggingFace, "modelscope": ModelScope}


@dataclass(frozen=True, kw_only=True, slots=True)
class FetchedSet:
    """One split of a hub's data set, here."""

    name: str
    """As the setting `data` names exactly these rows, at any time."""
    files: tuple[Path, ...]
    """In their order."""
    content: str
    """Hash of what the hub says they hold."""


def fetch_model(source: str, table: ModelTable, told: Told) -> Snapshot:
    """The folder of a model; its own code is looked at before weights are fetched.

    Raises RunError in one sentence.
    """
    repo = Repo(name=table.model, kind="model", revision=table.revision)
    trusted = table.trust_remote_code

    def choose(listing: Listing, read: Read) -> Sequence[str]:
        if trusted:
            own_code.check_pinned(table.model, table.revision, listing.revision)
        if listing.file("config.json"):
            own_code.check(table.model, read_json(read("config.json")), trusted=trusted)
        return model_files(listing, read, code=trusted)

    return fetch(HUBS[source](), repo, choose, told)


def fetch_set(wanted: HubSet, told: Told = lambda done, total: None) -> FetchedSet:
    """The files of a split. Raises RunError in one sentence."""
    repo = Repo(name=wanted.repo, kind="dataset", revision=wanted.revision)
    order: list[str] = []

    def choose(listing: object, read: object) -> list[str]:
        order[:] = split_files(listing, read, wanted.config, wanted.split)  # type: ignore[arg-type]
        return order

    found = fetch(HUBS[wanted.source](), repo, choose, told)
    if not order:
        raise RunError("bad_data", f"{wanted}: the split has no files")
    return FetchedSet(
        name=str(wanted.at(found.revision)),
        files=tuple(found.folder / path for path in order),
        content=found.content,
    )
