"""A run of several machines: a folder for each, side by side, where they share a disk."""

from __future__ import annotations

import re
from pathlib import Path

NODE = re.compile(r"node-[0-9]{1,6}")
FIRST = "node-0"
RANK_FILE = re.compile(r"rank-([0-9]{5,9})\.jsonl")


def is_node(folder: Path) -> bool:
    """Whether a run folder is that of one machine of several."""
    return NODE.fullmatch(folder.name) is not None and not (folder.parent / "run.sh").exists()


def all_nodes(folder: Path) -> tuple[Path, ...]:
    """The folders of all machines of a run, this one first."""
    if not is_node(folder):
        return (folder,)
    try:
        found = [path for path in folder.parent.iterdir() if NODE.fullmatch(path.name)]
    except OSError:
        found = []
    others = sorted((path for path in found if path.name != folder.name), key=_number)
    return (folder, *others)


def place_of(folder: Path, rank: int) -> tuple[Path, int]:
    """The folder of the machine that a rank runs on, and its number there."""
    for node in all_nodes(folder):
        ranks = _ranks(node)
        if rank in ranks:
            return node, ranks.index(rank) if is_node(folder) else rank
    return folder, rank


def title(folder: Path) -> str:
    """What a run is called: its folder's name, for one of several machines with its run's."""
    return f"{folder.parent.name}/{folder.name}" if is_node(folder) else folder.name


def _number(folder: Path) -> int:
    return int(folder.name.removeprefix("node-"))


def _ranks(folder: Path) -> list[int]:
    try:
        names = [path.name for path in (folder / "events").iterdir()]
    except OSError:
        return []
    return sorted(int(found[1]) for name in names if (found := RANK_FILE.fullmatch(name)))
