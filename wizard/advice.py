"""How a run ended → the cause in a sentence, and what to do about it, as commands."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from engine.events import EXIT_MEANING, EXIT_OK, EXIT_STOPPED


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One thing to do next."""

    label: str
    command: str
    """For a shell, the run's name quoted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """Why a run is where it is, and the ways on, the best first."""

    cause: str
    actions: tuple[Action, ...]


CAUSES: Mapping[str, str] = {
    "gpu_oom": "A device ran out of memory, and no fallback in less memory was left or allowed.",
    "host_oom": "The host's memory was full, so the kernel ended a process of the run.",
    "nan": "The loss left the finite numbers: most often the learning rate is too high, or a row "
    "is broken.",
    "comm_timeout": "A rank stopped answering, and the others can only wait for it.",
    "comm_failed": "The ranks lost their connection to each other.",
    "killed": "A process of the run was ended from outside: by a person, a scheduler, or a lack "
    "of memory that the kernel did not report.",
    "lost_device": "A device failed or was taken away while the run used it.",
    "no_devices": "The devices that the run asks for are not all here or not free.",
    "bad_data": "The data cannot be trained on as it is.",
    "bad_spec": "The settings of the run contradict each other or the machine.",
    "disk_full": "The run could not write: the disk is full, read-only, or the folder is gone.",
    "ddp_graph": "A parameter got no gradient, or two in one step, which DDP does not allow.",
    "user_code": "Code that the run plugs in raised an error; the message names its file and line.",
    "unknown": "An error that has no class of its own: the log of the rank says more.",
}
LOST = "Everything that ran is gone, and nobody was left to write how it ended."
REBOOTED = "The machine was restarted while the run was going on."

_ACTIONS: Mapping[str, tuple[str, ...]] = {
    "gpu_oom": ("least_memory", "log"),
    "host_oom": ("resume", "least_memory"),
    "nan": ("slower", "log"),
    "comm_timeout": ("log", "resume"),
    "comm_failed": ("resume", "log"),
    "killed": ("resume", "log"),
    "lost_device": ("doctor", "resume", "replan"),
    "no_devices": ("probe", "replan"),
    "bad_data": ("resume_fixed", "log"),
    "bad_spec": ("replan", "log"),
    "disk_full": ("prune", "resume"),
    "ddp_graph": ("replan", "log"),
}
_OTHERWISE = ("log", "resume")


def advise(
    run: str,
    *,
    exit_code: int | None,
    failure: str | None,
    rank: int | None = None,
    learning_rate: float | None = None,
    rebooted: bool = False,
    tested: bool = False,
) -> Advice:
    """What to say of a run that ended; `run` is its name or folder as a command takes it.

    `tested` is a run of which only the smoke test was made; `exit_code` is None where nobody
    recorded the end.
    """
    name = shlex.quote(run)
    if exit_code == EXIT_OK and tested:
        action = _act("start the run itself", f"resume {name}")
        return Advice(cause="The smoke test passed.", actions=(action,))
    if exit_code == EXIT_OK:
        return Advice(cause="Finished.", actions=(_act("talk to it", f"chat {name}"),))
    if exit_code is None:
        cause = REBOOTED if rebooted else LOST
        return Advice(cause=cause, actions=(_known("resume", name), _known("log", name)))
    if exit_code == EXIT_STOPPED:
        return Advice(cause="Stopped on request.", actions=(_known("resume", name),))
    wanted = _ACTIONS.get(failure or "", _OTHERWISE)
    cause = CAUSES.get(failure or "", EXIT_MEANING.get(exit_code, CAUSES["unknown"]))
    actions = [_known(key, name, rank=rank, learning_rate=learning_rate) for key in wanted]
    return Advice(cause=cause, actions=tuple(actions))


def _known(
    key: str, name: str, *, rank: int | None = None, learning_rate: float | None = None
) -> Action:
    log = f"logs {name}" + ("" if rank is None else f" --rank {rank}")
    lower = f" --set learning_rate={learning_rate / 3:.2g}" if learning_rate else ""
    known = {
        "resume": ("resume", f"resume {name}"),
        "resume_fixed": ("mend the data, then", f"resume {name}"),
        "replan": ("replan", f"retry {name}"),
        "least_memory": ("replan for less memory", f"retry {name} --goal least-memory"),
        "slower": ("try again with a lower rate", f"retry {name}{lower}"),
        "prune": ("free space", f"runs prune {name}"),
        "log": ("open log", log),
        "doctor": ("look at the machine", "doctor"),
        "probe": ("see what is here", "probe"),
    }
    return _act(*known[key])


def _act(label: str, command: str) -> Action:
    return Action(label=label, command=f"tunewright {command}")
