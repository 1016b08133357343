"""Event streams of a run of four ranks on two hosts, healthy or with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from wizard.dashboard.predicted import Predicted
from wizard.dashboard.state import RunState, fold_all

BEGAN = 1_800_000_000.0
GIB = 1024**3
STEPS = 60
PLAN = Predicted(
    memory_bytes=20 * GIB, budget_bytes=22 * GIB, tokens_per_second=4 * 1100.0, max_grad_norm=1.0
)

Change = Callable[[dict[str, Any]], Mapping[str, Any]]


def event(kind: str, t: float, rank: int | None, step: int | None, **fields: Any) -> dict[str, Any]:
    shared = {"t": BEGAN + t, "kind": kind, "rank": rank, "attempt": 0, "rung": 0, "step": step}
    return {**shared, **fields}


def stream(rank: int, steps: int = STEPS) -> list[dict[str, Any]]:
    """One rank: hello, training, a step a second, a pulse every five; it ends in its midst."""
    found = [
        event("hello", 0, rank, None, world_size=4, host=f"node{rank // 2}", pid=100 + rank,
              device="NVIDIA H100 80GB HBM3", memory_total_bytes=80 * GIB),
        event("phase", 1, rank, 0, phase="training", total_steps=5000),
    ]  # fmt: skip
    for step in range(1, steps + 1):
        wobble = 0.01 * ((step * 7 + rank) % 5)
        found.append(
            event("step", 1.0 + step, rank, step, steps=1, seconds=1.0, own_seconds=0.8 + wobble,
                  wait_seconds=0.2 - wobble, data_seconds=0.01, tokens=1000, padded_tokens=1100,
                  memory_allocated_bytes=17 * GIB + step % 3 * GIB // 4,
                  memory_reserved_bytes=20 * GIB, memory_peak_bytes=19.5 * GIB)
        )  # fmt: skip
        if rank == 0:
            found.append(
                event("train", 1.0 + step, 0, step, grad_norm=0.7, learning_rate=1e-4,
                      loss=0.5 + 2 * 0.985**step + 0.04 * ((step * 7) % 5 - 2))
            )  # fmt: skip
        if step % 5 == 0:
            found.append(
                event("pulse", 1.0 + step, rank, step, phase="training", seconds=float(step),
                      utilization_percent=97, sm_clock_mhz=1700, temperature_c=65, power_w=600,
                      power_cap_w=700, memory_used_bytes=20.5 * GIB, pcie_link_width=16, xid=0)
            )  # fmt: skip
    return found


def run_with(change: Change = lambda e: {}, steps: int = STEPS) -> RunState:
    """The state after all four streams, each event changed by what `change` gives for it."""
    events = [e for rank in range(4) for e in stream(rank, steps)]
    changed = [{**e, **change(e)} for e in events]
    changed.sort(key=lambda e: e["t"])
    return fold_all(RunState(name="run"), (e for e in changed if not e.get("dropped")))
