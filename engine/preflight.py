"""Before anything is loaded: are the devices of the spec here? Prints what to make visible."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.devices import NoAnswerError, devices_here
from engine.events import EXIT_BAD_SPEC, EXIT_NO_DEVICES, EXIT_OK
from engine.failure import RunError
from engine.fetch import read_spec
from engine.spec import ParallelTable

VARIABLES = {"cuda": "CUDA_VISIBLE_DEVICES", "npu": "ASCEND_RT_VISIBLE_DEVICES"}


class MissingDevicesError(Exception):
    """Fewer devices are here than the run asks for."""


def visible(
    wanted: ParallelTable, here: Sequence[str], allowed: str | None, count: int | None = None
) -> tuple[str, str]:
    """(value of the variable that makes devices visible, what to tell the user or "").

    `here` names the devices of this machine; `allowed` is the variable as it was found: a
    scheduler's choice among them. `count` are wanted on this machine, all of the run when None.
    Raises MissingDevicesError when the devices do not suffice.
    """
    count = wanted.num_devices if count is None else count
    missing = [device for device in wanted.devices if device not in here]
    if len(wanted.devices) == count and not missing:
        return ",".join(wanted.devices), ""
    offered = here if allowed is None else [part for part in allowed.split(",") if part]
    if len(offered) < count:
        raise MissingDevicesError(
            f"the run asks for {count} {wanted.device_kind} devices and "
            f"{len(offered)} are here: change num_devices in spec.toml and RANKS in run.sh"
        )
    taken = ",".join(offered[:count])
    note = f"{', '.join(missing)} not on this machine: taking {taken}" if missing else ""
    return taken, note


def check(spec: Path, ranks: int, nodes: int = 1) -> str:
    """The value for the variable that makes devices visible; empty for CPU ranks.

    `nodes` machines have as many `ranks` each. Raises RunError (bad_spec) for a spec that cannot
    be used, MissingDevicesError for too few devices, NoAnswerError for a driver that hangs.
    """
    wanted = read_spec(spec).parallel
    if wanted.ranks != ranks * nodes:
        on = f" on each of {nodes} machines" if nodes > 1 else ""
        raise RunError(
            "bad_spec",
            f"{spec}: num_devices makes {wanted.ranks} ranks, but run.sh starts {ranks}{on}: "
            "change RANKS in run.sh too",
        )
    if wanted.device_kind == "cpu":
        return ""
    kind = wanted.device_kind
    chosen, note = visible(wanted, devices_here(kind), os.environ.get(VARIABLES[kind]), ranks)
    if note:
        _say(note)
    return chosen


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


def main(given: list[str] | None = None) -> int:
    """Print what to make visible; the exit code."""
    parser = argparse.ArgumentParser(prog="engine.preflight", description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--ranks", type=int, required=True, help="on this machine")
    parser.add_argument("--nodes", type=int, default=1, help="machines of the run")
    options = parser.parse_args(given)
    try:
        print(check(options.spec, options.ranks, options.nodes))  # noqa: T201
    except RunError as error:
        _say(str(error))
        return EXIT_BAD_SPEC
    except (MissingDevicesError, NoAnswerError) as error:
        _say(str(error))
        return EXIT_NO_DEVICES
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
