"""Setup + a device's rates → seconds of an optimizer step, term by term, and which one limits.

A roofline: matrix products run at a share of the peak, everything else at a share of the memory
bandwidth, and no kernel starts faster than the host launches it. Collectives and transfers count
as far as the compute they may hide behind is too short. Three numbers were chosen on measured
rows, see `benchmarks/speed.py`: the matrix shares of Hopper and of consumer cards, and the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from wizard.facts import Device, Measured
from wizard.planner import work
from wizard.planner.tape.setup import DTYPE_BYTES, Setup

AMPERE, HOPPER, CONSUMER = "A100", "Hopper", "consumer"
MATRIX_SHARES: Mapping[str, float] = {AMPERE: 0.65, HOPPER: 0.50, CONSUMER: 0.85}
"""Of the peak that large bfloat16 products reach in training. The tables' figure of a consumer
card is already halved for float32 sums, so that it is nearer to what is reached."""
ATTENTION_SHARES: Mapping[str, float] = {AMPERE: 0.55, HOPPER: 0.35, CONSUMER: 0.55}
"""The same for attention, where only the half that causality leaves is counted: from the figures
of the FlashAttention-2 paper, forward and backward together."""
BANDWIDTH_SHARE = 0.80
"""Of the memory bandwidth that element-wise kernels reach."""
LAUNCH_SECONDS = 15e-6
"""From one kernel to the next when Python, not the device, sets the pace."""
HIDDEN_SHARE = 0.80
"""Of the compute that may overlap a collective that does."""
HOST_LINK_BYTES_PER_SECOND = 22e9
"""PCIe 4 from pinned memory."""
DISK_BYTES_PER_SECOND = 3e9
"""An NVMe disk; `probe --bench` measures this one."""
CPU_ADAM_PARAMETERS_PER_SECOND = 4e9
"""DeepSpeed's on a host of two sockets; `probe --bench` measures this one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What a device attains, not what its data sheet promises."""

    matrix_flops_per_second: float
    attention_flops_per_second: float
    memory_bytes_per_second: float
    link_bytes_per_second: float | None = None
    """Of collectives among the ranks; None when it is unknown."""
    host_link_bytes_per_second: float = HOST_LINK_BYTES_PER_SECOND
    cpu_adam_parameters_per_second: float = CPU_ADAM_PARAMETERS_PER_SECOND
    disk_bytes_per_second: float = DISK_BYTES_PER_SECOND


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """One optimizer step of one rank."""

    seconds: float
    terms: tuple[tuple[str, float], ...]
    """Seconds of each; they sum to `seconds`."""
    tokens_per_second: float
    """Of one rank, padding included."""

    @property
    def limited_by(self) -> str:
        """The largest term."""
        return max(self.terms, key=lambda term: term[1])[0]


def rates_of(
    device: Device, *, measured: Measured | None = None, link_gbs: float | None = None
) -> Rates | None:
    """Rates of a device, measured ones first; None when a needed one is unknown."""
    kind = _generation(device)
    matrix = measured.matmul_tflops if measured else None
    memory = measured.memory_gbs if measured else None
    if matrix is None and device.bf16_tflops:
        matrix = device.bf16_tflops * MATRIX_SHARES[kind]
    if memory is None and device.memory_bandwidth_gbs:
        memory = device.memory_bandwidth_gbs * BANDWIDTH_SHARE
    if not matrix or not memory:
        return None
    host = measured.host_to_device_gbs if measured else None
    adam = measured.cpu_adam_parameters_per_second if measured else None
    return Rates(
        matrix_flops_per_second=matrix * 1e12,
        attention_flops_per_second=matrix * 1e12 * ATTENTION_SHARES[kind] / MATRIX_SHARES[kind],
        memory_bytes_per_second=memory * 1e9,
        link_bytes_per_second=None if link_gbs is None else link_gbs * 1e9,
        host_link_bytes_per_second=host * 1e9 if host else HOST_LINK_BYTES_PER_SECOND,
        cpu_adam_parameters_per_second=adam or CPU_ADAM_PARAMETERS_PER_SECOND,
    )


def _generation(device: Device) -> str:
    """Which of the shares a device has; newer ones than Hopper have Hopper's until measured."""
    capability = device.compute_capability or (0, 0)
    if (9, 0) <= capability < (12, 0):
        return HOPPER
    return AMPERE if capability == (8, 0) else CONSUMER


@lru_cache(maxsize=4096)
def step_time(
    setup: Setup, rates: Rates | None, *, micro_steps: int = 1, to_disk: bool = False
) -> StepTime | None:
    """Seconds of an optimizer step; None when the device, or the link it needs, is unknown.

    What is offloaded waits in host memory, or `to_disk`.
    """
    if rates is None or (_collective_bytes(setup, 1) and rates.link_bytes_per_second is None):
        return None
    micro = _micro_terms(setup, rates)
    compute = sum(micro.values())
    terms = {name: seconds * micro_steps for name, seconds in micro.items()}
    terms["optimizer"] = _optimizer_seconds(setup, rates)
    terms["communication"] = _exposed_seconds(setup, rates, compute, micro_steps)
    terms["offload"] = _offload_seconds(setup, rates, micro_steps)
    terms["disk"] = _disk_seconds(setup, rates, micro_steps) if to_disk else 0.0
    seconds = sum(terms.values())
    return StepTime(
        seconds=seconds,
        terms=tuple((name, value) for name, value in terms.items() if value),
        tokens_per_second=setup.tokens * micro_steps / seconds,
    )


def _micro_terms(setup: Setup, rates: Rates) -> dict[str, float]:
    """Forward and backward of one micro-batch."""
    flops, memory = rates.matrix_flops_per_second, rates.memory_bytes_per_second
    streamed = work.weight_bytes(setup) * work.passes(setup) / memory
    terms = {
        "matrix products": max(work.matrix_flops(setup) / flops, streamed),
        "adapters": work.adapter_flops(setup) / flops + work.adapter_bytes(setup) / memory,
        "attention": work.attention_flops(setup) / rates.attention_flops_per_second
        + work.score_bytes(setup) / memory,
        "element-wise kernels": work.elementwise_bytes(setup) / memory,
        "4-bit unpacking": work.unpacked_bytes(setup) / memory,
        "loss head": work.head_flops(setup) / flops + work.head_bytes(setup) / memory,
    }
    launches = work.kernels(setup) * LAUNCH_SECONDS
    return {**terms, "kernel launches": max(0.0, launches - sum(terms.values()))}


def _optimizer_seconds(setup: Setup, rates: Rates) -> float:
    """Weights, gradients and states read and written once; foreach passes over them thrice."""
    if setup.offload != "none":
        return 0.0
    sharded = setup.strategy not in ("single", "ddp")
    wide = sharded or DTYPE_BYTES[work.trained_dtype(setup)] == 4
    each = 28 if wide else 14
    if setup.stack.optimizer == "adamw_foreach":
        each *= 3
    elif setup.stack.optimizer in ("adamw_8bit", "adamw_paged_8bit"):
        each = 10
    return each * work.trained(setup) / work.shards(setup) / rates.memory_bytes_per_second


def _collective_bytes(setup: Setup, micro_steps: int) -> float:
    """Bytes a rank sends in a step."""
    ranks = setup.world_size
    if ranks == 1:
        return 0.0
    share = (ranks - 1) / ranks
    gradients = 2 * work.trained(setup)
    if setup.strategy in ("single", "ddp"):
        return 2 * share * gradients
    if setup.strategy in ("zero1", "zero2"):
        reductions = micro_steps if setup.strategy == "zero2" else 1
        return share * gradients * (reductions + 1)
    return micro_steps * share * (2 * work.base_bytes(setup) + gradients)


def _exposed_seconds(setup: Setup, rates: Rates, micro_seconds: float, micro_steps: int) -> float:
    """What of the collectives no compute hides."""
    sent = _collective_bytes(setup, micro_steps)
    if not sent or rates.link_bytes_per_second is None:
        return 0.0
    seconds = sent / rates.link_bytes_per_second
    backward = micro_seconds * 2 / 3
    behind = {
        "ddp": backward,
        "zero1": 0.0,
        "zero2": backward * micro_steps,
    }.get(setup.strategy, micro_seconds * micro_steps)
    return max(0.0, seconds - HIDDEN_SHARE * behind)


def _offload_seconds(setup: Setup, rates: Rates, micro_steps: int) -> float:
    """Gradients down, the CPU's step, weights up; parameters that wait on the host come twice."""
    if setup.offload == "none":
        return 0.0
    own = work.trained(setup) / work.shards(setup)
    moved = 4 * own
    if setup.offload == "parameters":
        moved += 2 * work.base_bytes(setup) / work.shards(setup) * micro_steps
    adam = work.trained(setup) / rates.cpu_adam_parameters_per_second
    return moved / rates.host_link_bytes_per_second + adam


def _disk_seconds(setup: Setup, rates: Rates, micro_steps: int) -> float:
    """States are read and written in each step, weights read in each pass, by all ranks at once."""
    states = 2 * 12 * work.trained(setup)
    weights = 2 * work.base_bytes(setup) * micro_steps if setup.offload == "parameters" else 0
    return (states + weights) / rates.disk_bytes_per_second
