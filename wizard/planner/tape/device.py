"""Allocator, context and communication together: what the device itself shows, as an interval."""

from __future__ import annotations

from wizard.planner.tape.allocator import at_loss, reserve
from wizard.planner.tape.setup import Interval, Setup
from wizard.planner.tape.step import BACKWARD, FORWARD, HEAD, record

MIB = 1024**2
CONTEXT = Interval(low=300 * MIB, high=650 * MIB)
"""CUDA context and loaded kernels: Ampere to Hopper (pytorch #86509, #107667, #109888)."""
MATRIX_WORKSPACE = Interval(low=16 * MIB, high=64 * MIB)
"""cuBLAS: two handles of 8 MiB, or of 32 on Hopper."""
COMMUNICATION = Interval(low=200 * MIB, high=1100 * MIB)
"""NCCL: a PCIe box with two devices to eight with NVLink (nccl #864, #986, #1685)."""

LOGITS_SLACK = 0.7
"""Where all logits exist at once, the device shows up to this share of what the step makes, beyond
the tensors: more than the allocator's rules explain. Chosen on the fms tables of transformers 4.45
and 4.48 without Liger; the other sources are scored with it in docs/results."""


def device(
    setup: Setup, *, context: Interval = CONTEXT, communication: Interval = COMMUNICATION
) -> Interval:
    """Bytes nvidia-smi shows for a rank: the allocator's, and what lies outside of it."""
    held = reserve(setup)
    low = held.low + context.low + MATRIX_WORKSPACE.low
    high = held.high + _unexplained(setup) + context.high + MATRIX_WORKSPACE.high
    if setup.world_size > 1:
        low, high = low + communication.low, high + communication.high
    return Interval(low=low, high=high)


def _unexplained(setup: Setup) -> int:
    """What may be held beyond the allocator's rules where all logits exist at once, else 0.

    It was taken at the loss, and an allocator gives nothing back: it is there at any later peak.
    """
    if setup.stack.loss_head in ("chunked", "fused") or setup.preference != "none":
        return 0
    made = max(record(setup).peak(part + HEAD) for part in (FORWARD, BACKWARD))
    held, used = at_loss(setup)
    return max(0, used + round(LOGITS_SLACK * made) - held)
