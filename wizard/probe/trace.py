"""The step of a plan on fake tensors, traced by a child that has the training libraries."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from engine import spec as specs
from engine.spec import Spec
from engine.theirs import quoted
from wizard.facts import Model
from wizard.planner.traced import Traced
from wizard.probe import running
from wizard.probe.running import Ran, Run
from wizard.problem import Problem, ProblemError

LIMIT_SECONDS = 600.0
"""Far more than tracing takes: seconds for dense models, minutes where the machine is busy."""


def trace(spec: Spec, model: Model, run: Run = running.run) -> Traced:
    """Trace a spec's step; only the model's config.json is read.

    Raises ProblemError (exit code 2) where this step cannot be traced, (1) where tracing failed.
    """
    if spec.parallel.device_kind == "cpu":
        raise _refused(
            "a CPU rank is not traced: its process is what counts, and that is measured", "--trace"
        )
    if model.path is None:
        raise _refused(
            "its config.json is not on this machine",
            model.name,
            "name a folder that has it; the weights are not read",
        )
    with tempfile.TemporaryDirectory(prefix="tunewright-trace-") as folder:
        file = Path(folder) / "spec.toml"
        file.write_text(specs.dumps(spec), encoding="utf-8")
        command = [sys.executable, "-m", "engine.trace", str(file), model.path]
        ran = run(command, LIMIT_SECONDS)
    return _read(ran)


def _read(ran: Ran) -> Traced:
    try:
        found: dict[str, Any] = json.loads(ran.out.strip().rpartition("\n")[2])
    except ValueError:
        found = {}
    if "error" in found:
        raise _refused(str(found["error"]), "--trace")
    if not ran.ok or "allocated_peak_bytes" not in found:
        raise ProblemError(_failed(ran))
    return Traced(
        allocated_peak_bytes=int(found["allocated_peak_bytes"]),
        moment=str(found["moment"]),
        moments=tuple((str(name), int(size)) for name, size in found["moments"].items()),
        parameters=int(found["parameters"]),
        trainable=int(found["trainable"]),
        seconds=float(found["seconds"]),
    )


def _failed(ran: Ran) -> Problem:
    last = ran.err.strip().rpartition("\n")[2]
    last = quoted(last) if last else "it said nothing"
    what = f"did not end within {LIMIT_SECONDS:.0f} s" if ran.timed_out else f"failed: {last}"
    missing = "No module named" in ran.err
    fix = "install the training libraries: ./install.sh" if missing else "plan without --trace"
    return Problem(what=f"tracing {what}", where="--trace", fix=fix, exit_code=1)


def _refused(what: str, where: str, fix: str = "plan without --trace") -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=2))
