"""Checks of disks and folders: whether there is room, one may write, and it lasts."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from wizard.facts import GIB, Disk, Facts
from wizard.probe.checks.rule import Check, Found, error, note, warning
from wizard.problem import Problem
from wizard.wording import gib

NO_ROOM_BYTES = GIB
LITTLE_ROOM_BYTES = 20 * GIB
LITTLE_TMP_BYTES = 2 * GIB
ELSEWHERE = {
    "runs": "export TUNEWRIGHT_HOME=/another/disk",
    "cache": "export TUNEWRIGHT_HOME=/another/disk",
    "hub cache": "export HF_HOME=/another/disk",
    "hub locks": "export HF_HOME=/another/disk",
    "tmp": "export TMPDIR=/another/disk",
}


def room(facts: Facts) -> Found:
    """Models, checkpoints and packages need room."""
    disks = facts.host.surroundings.disks
    return [problem for disk in disks for problem in _room(disk)] if disks else None


def _room(disk: Disk) -> Iterator[Problem]:
    enough = LITTLE_TMP_BYTES if disk.used_for == ("tmp",) else LITTLE_ROOM_BYTES
    if disk.free_bytes >= enough:
        return
    where = f"{disk.path} ({', '.join(disk.used_for)})"
    fix = "; ".join(dict.fromkeys(ELSEWHERE[purpose] for purpose in disk.used_for))
    what = f"{gib(disk.free_bytes)} free of {gib(disk.total_bytes)}"
    if disk.free_bytes < NO_ROOM_BYTES:
        yield error(f"the disk is full: {what}", where, fix)
    else:
        yield warning(f"little room for models and checkpoints: {what}", where, fix)


def writable(facts: Facts) -> Found:
    """Each folder a run writes to must take a file."""
    folders = facts.host.surroundings.folders
    if not folders:
        return None
    return [
        error(
            f"cannot be written: {one.why_not}", f"{one.path} ({one.used_for})", _fix(one.used_for)
        )
        for one in folders
        if not one.writable
    ]


def _fix(purpose: str) -> str:
    if purpose.startswith("hub"):
        return f"{ELSEWHERE[purpose]}; a complete model in it is used by its path: --model /path"
    return ELSEWHERE.get(purpose, ELSEWHERE["runs"])


def home(facts: Facts) -> Found:
    """A user without a home, as containers make them, keeps nothing."""
    variables = facts.host.surroundings.environment
    if not variables or variables.get("TUNEWRIGHT_HOME") or variables.get("XDG_DATA_HOME"):
        return None
    if variables.get("HOME", "/") not in ("/", "/nonexistent"):
        return []
    runs = next((one.path for one in facts.host.surroundings.folders if one.used_for == "runs"), "")
    what = f"this user has none: runs go to {runs}" if runs else "this user has none"
    return [
        warning(what, "HOME", "export HOME=/a/folder/that/stays, and TUNEWRIGHT_HOME if not there")
    ]


def better_disk(facts: Facts) -> Found:
    """A small root beside a large disk fills up first."""
    suggested = facts.host.surroundings.suggested_home
    runs = _runs(facts)
    if runs is None:
        return None
    if suggested is None:
        return []
    what = f"{gib(runs.free_bytes)} free, and {suggested} has much more"
    folder = shlex.quote(suggested.rstrip("/") + "/tunewright")
    return [warning(what, f"runs on {runs.path}", f"export TUNEWRIGHT_HOME={folder}")]


def lasting(facts: Facts) -> Found:
    """What lies in memory, or in a container's own layer, is gone with it."""
    runs = _runs(facts)
    if runs is None:
        return None
    if runs.speed == "memory":
        what = "it lies in memory: runs take it away from training, and are gone after a reboot"
        return [warning(what, f"runs on {runs.path}", ELSEWHERE["runs"])]
    if runs.kind == "overlay":
        what = "it lies in the container itself: runs are gone when the container is removed"
        return [
            warning(
                what,
                f"runs on {runs.path}",
                "mount a folder: docker run -v /data:/data, "
                "then export TUNEWRIGHT_HOME=/data/tunewright",
            )
        ]
    return []


def fast(facts: Facts) -> Found:
    """Checkpoints are written while every device waits."""
    runs = _runs(facts)
    if runs is None or runs.speed is None:
        return None
    slow = {"network": "a network disk", "hdd": "a turning disk"}
    if runs.speed not in slow:
        return []
    what = f"{slow[runs.speed]} ({runs.kind}): devices wait while checkpoints are written"
    return [note(what, f"runs on {runs.path}", "save less often: --set save_steps=500")]


def _runs(facts: Facts) -> Disk | None:
    disks = facts.host.surroundings.disks
    return next((disk for disk in disks if "runs" in disk.used_for), None)


CHECKS = (
    Check(id="storage.room", title="disks have room", find=room),
    Check(id="storage.writable", title="folders can be written", find=writable),
    Check(id="storage.home", title="the user has a home", find=home),
    Check(id="storage.better-disk", title="runs are on the largest disk", find=better_disk),
    Check(id="storage.lasting", title="runs are on a disk that stays", find=lasting),
    Check(id="storage.fast", title="runs are on a fast disk", find=fast),
)
