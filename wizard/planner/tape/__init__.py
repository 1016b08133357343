"""A training step simulated as a tape of operations: live tensors, and the allocator under them."""

from __future__ import annotations

from wizard.planner.tape.allocator import reserve, reserved
from wizard.planner.tape.device import device
from wizard.planner.tape.simulation import simulate

__all__ = ["device", "reserve", "reserved", "simulate"]
