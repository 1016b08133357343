"""What ends a run when the one who started it leaves, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from wizard.probe import cgroup
from wizard.probe.reading import entries, exists, line, text

SHELLS = frozenset(("bash", "sh", "dash", "zsh", "fish", "ksh", "tcsh", "csh", "busybox"))
TINY_INITS = frozenset(
    ("tini", "docker-init", "dumb-init", "catatonit", "podman-init", "s6-svscan")
)
LOGIND_FOLDERS = ("usr/lib/systemd", "run/systemd", "etc/systemd")
"""Later ones win."""
LONGEST_ANCESTRY = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What ends a run, and how it lives on."""

    what: str
    fix: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Starter:
    """Who would start a run: this process, as its surroundings see it."""

    user: str
    environment: Mapping[str, str]
    container: str | None = None
    wsl: bool = False
    pid: str = "self"
    """Its folder in /proc."""


def what_ends_runs(root: Path, starter: Starter) -> Ending | None:
    """The first of these that holds; None when a detached run lives on."""
    return (
        _slurm(root, starter)
        or _notebook(starter)
        or (_container(root, starter) if starter.container else None)
        or _logind(root, starter)
        or (_wsl() if starter.wsl else None)
    )


def _slurm(root: Path, starter: Starter) -> Ending | None:
    groups = " ".join(cgroup.paths(root))
    inside = re.search(r"/job_(\d+)(?:/step_(\w+))?", groups)
    job = starter.environment.get("SLURM_JOB_ID") or (inside and inside[1])
    if not job:
        return None
    batch = bool(inside and inside[2] == "batch") or (
        "SLURM_JOB_ID" in starter.environment and "SLURM_STEP_ID" not in starter.environment
    )
    if batch:
        return Ending(
            what=f"SLURM ends everything of job {job} when its script ends or its time is over",
            fix="let the job's script wait: tunewright run --follow, as its last line",
        )
    return Ending(
        what=f"SLURM ends everything of job {job} when the step that holds this shell ends",
        fix="submit the run's script instead: sbatch run.sh, with the time it needs",
    )


def _notebook(starter: Starter) -> Ending | None:
    for variable, name in (("COLAB_RELEASE_TAG", "Colab"), ("KAGGLE_KERNEL_RUN_TYPE", "Kaggle")):
        if variable in starter.environment:
            return Ending(
                what=f"{name} takes the machine back when the notebook is idle or disconnected",
                fix="keep the notebook open, and the run's folder on a disk that stays",
            )
    return None


def _container(root: Path, starter: Starter) -> Ending | None:
    """A container ends with its first process; that is trouble when it is our own shell."""
    ancestors = _ancestors(root, starter.pid)
    if not ancestors or ancestors[-1] != "1":
        return None  # entered from outside: docker exec, kubectl exec, ssh
    first = "1"
    if _command(root, first) in TINY_INITS and len(ancestors) > 1:
        first = ancestors[-2]
    name = _command(root, first)
    if name not in SHELLS:
        return None
    return Ending(
        what=f"this container ends, and every run in it, when its first shell ({name}) is left",
        fix="leave it with Ctrl-P Ctrl-Q, or start the container detached (docker run -d … "
        "sleep infinity) and enter with docker exec -it",
    )


def _logind(root: Path, starter: Starter) -> Ending | None:
    session = any("/session-" in path and path.endswith(".scope") for path in cgroup.paths(root))
    manager = any("/user@" in path for path in cgroup.paths(root))
    lingers = exists(root / "var/lib/systemd/linger" / starter.user)
    linger = f"sudo loginctl enable-linger {starter.user}"
    if session and _kills(_settings(root), starter.user):
        first = "" if lingers else f"{linger}, then "
        return Ending(
            what="logind ends all that a session started when you log out (KillUserProcesses=yes)",
            fix=f"{first}start it outside the session: systemd-run --user --scope tunewright run …",
        )
    if manager and not session and not lingers and starter.user != "root":
        return Ending(
            what="this shell belongs to your service manager, which ends with your last session",
            fix=linger,
        )
    return None


def _wsl() -> Ending:
    return Ending(
        what="Windows stops WSL some time after its last window is closed, runs or not",
        fix="keep a window open, or put vmIdleTimeout=-1 below [wsl2] in %USERPROFILE%\\.wslconfig "
        "and run wsl --shutdown once",
    )


def _kills(settings: Mapping[str, str], user: str) -> bool:
    if settings.get("KillUserProcesses", "no").lower() not in ("yes", "true", "1", "on"):
        return False
    spared = settings.get("KillExcludeUsers", "root").split()
    only = settings.get("KillOnlyUsers", "").split()
    return user not in spared and (not only or user in only)


def _settings(root: Path) -> dict[str, str]:
    """What logind was told. A line that is commented out in its own file is the built-in value."""
    built_in: dict[str, str] = {}
    told: dict[str, str] = {}
    for folder in LOGIND_FOLDERS:
        main = root / folder / "logind.conf"
        built_in.update(_pairs(main, commented=True))
        told.update(_pairs(main))
    for _, file in sorted(_drop_ins(root).items()):
        told.update(_pairs(file))
    return {**built_in, **told}


def _drop_ins(root: Path) -> dict[str, Path]:
    """Files beside logind.conf by name: of two with one name the later folder's counts."""
    return {
        file.name: file
        for folder in LOGIND_FOLDERS
        for file in entries(root / folder / "logind.conf.d")
        if file.suffix == ".conf"
    }


def _pairs(file: Path, *, commented: bool = False) -> dict[str, str]:
    pattern = r"#\s*(Kill\w+)\s*=\s*(.*)" if commented else r"\s*(Kill\w+)\s*=\s*(.*)"
    found = (re.match(pattern, row) for row in text(file).splitlines())
    return {match[1]: match[2].strip() for match in found if match}


def _ancestors(root: Path, pid: str) -> list[str]:
    """Process ids from the parent up to the first one that has none here."""
    found: list[str] = []
    while len(found) < LONGEST_ANCESTRY:
        fields = line(root / "proc" / pid / "stat").rpartition(")")[2].split()
        pid = fields[1] if len(fields) > 1 else "0"
        if pid == "0":
            break
        found.append(pid)
    return found


def _command(root: Path, pid: str) -> str:
    return line(root / "proc" / pid / "comm")
