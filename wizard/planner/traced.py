"""A plan's memory with the tensors that a trace of the real step counted, in place of simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wizard.plan import Memory, MemoryPart
from wizard.planner.memory import ALLOCATOR_BYTES, ALLOCATOR_SHARE

AROUND = frozenset({"allocator", "context", "communication"})
"""Parts that are no tensors of the step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traced:
    """What a step on fake tensors came to, in bytes of one rank."""

    allocated_peak_bytes: int
    moment: str
    """When the peak is: `forward`, `backward` or `optimizer step`."""
    moments: tuple[tuple[str, int], ...]
    """Peak of each moment."""
    parameters: int
    trainable: int
    seconds: float
    """What tracing took."""


def tensor_bytes(memory: Memory) -> int:
    """Predicted live tensors at the peak, without what lies around them."""
    return sum(part.bytes for part in memory.parts if part.name not in AROUND)


def with_trace(memory: Memory, traced: Traced) -> Memory:
    """The estimate that rests on the traced tensors; allocator and context as before."""
    slack = round(traced.allocated_peak_bytes * ALLOCATOR_SHARE + ALLOCATOR_BYTES)
    step = MemoryPart(
        name="tensors",
        bytes=traced.allocated_peak_bytes,
        formula=f"traced on the installed libraries, peak in {traced.moment}",
    )
    around = tuple(
        replace(part, bytes=slack) if part.name == "allocator" else part
        for part in memory.parts
        if part.name in AROUND
    )
    parts = (step, *around)
    return replace(
        memory,
        parts=parts,
        device_bytes=sum(part.bytes for part in parts),
        moment=traced.moment,
        at_least=False,
        left_out=tuple(line for line in memory.left_out if "simulated step" not in line),
    )
