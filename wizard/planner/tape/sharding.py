"""What a rank holds of the states, and what sharing them costs in each part of a step.

Sources: torch/nn/parallel/distributed.py (buckets beside the gradients);
deepspeed/runtime/zero/stage_1_and_2.py, stage3.py and partitioned_param_coordinator.py, traced on
eight ranks; accelerate/utils/fsdp_utils.py and torch's fully_shard, traced on eight and 64.
"""

from __future__ import annotations

from dataclasses import dataclass

from wizard.planner.tape.experts import expert_factors, expert_sizes
from wizard.planner.tape.layers import matrix_widths
from wizard.planner.tape.setup import DTYPE_BYTES, Setup
from wizard.planner.tape.states import States
from wizard.planner.tape.step import EMBEDDING, HEAD, TOP

MASTER = 4
"""Bytes of a float32 copy of a 16-bit parameter."""
MOMENTS = 8
"""Bytes of Adam's two float32 moments."""
PREFETCH_ELEMENTS = 5 * 10**7
"""DeepSpeed's `stage3_prefetch_bucket_size`."""
SUB_GROUP_ELEMENTS = 10**9
"""ZeRO-3 steps this many of its own parameters at a time."""
DOUBLE = 8
"""Bytes of float64, in which DeepSpeed sums a gradient's norm."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """Bytes of one rank, beside what the tape itself makes."""

    weights: int
    adapter: int
    optimizer: int
    reference: int
    buckets: int = 0
    """Copies of gradients on their way to other ranks, there all the time."""
    transit: int = 0
    """Such copies that are there in backward only."""
    early: int = 0
    """Gradients of earlier micro-batches, there from the start."""
    late: int = 0
    """Gradients held at the last layer of backward, where the tape hands them over."""
    top: int | None = None
    """Gradients held at the first layers of backward; None where room for all is made at once."""
    last: int = 0
    """Gradients at the optimizer step."""
    step: int = 0
    """What the optimizer needs on top."""


def share(setup: Setup, states: States) -> Share:
    """What one rank of the setup holds."""
    if setup.strategy in ("zero1", "zero2"):
        return _zero12(setup, states)
    if setup.strategy == "zero3":
        return _zero3(setup, states)
    if setup.fsdp:
        return _fsdp(setup, states)
    copied = setup.strategy == "ddp" and not setup.stack.ddp_bucket_view
    # Buckets that are the gradients themselves stay from step to step.
    stays = setup.accumulates or (setup.strategy == "ddp" and setup.stack.ddp_bucket_view)
    early = states.gradients if stays else 0
    return Share(
        weights=states.weights,
        adapter=states.adapter,
        optimizer=states.optimizer,
        reference=states.reference,
        buckets=states.gradients if copied else 0,
        early=early,
        late=early,
        last=states.gradients,
        step=states.step,
    )


def gathered(setup: Setup, states: States, region: int, *, backward: bool) -> int:
    """Bytes of other ranks' weights that are here while a region of a pass runs."""
    if setup.strategy == "zero3":
        return _gathered_zero3(setup, states)
    if setup.strategy == "fsdp1":
        return _gathered_fsdp1(setup, region, backward=backward)
    if setup.strategy == "fsdp2":
        return _gathered_fsdp2(setup, states, region, backward=backward)
    return 0


def _per_rank(total: int, setup: Setup) -> int:
    return -(-total // setup.world_size)


def _bucket(setup: Setup) -> int:
    """Elements of DeepSpeed's bucket."""
    return setup.stack.bucket_elements or setup.block.hidden**2


def _zero12(setup: Setup, states: States) -> Share:
    """Whole weights; a share of the float32 copy and of Adam's moments."""
    width, own = states.trainable_width, _per_rank(states.trainable, setup)
    offloaded = setup.offload != "none"
    # Gradients of whole tensors are kept, and one rank's share may lie inside a single one; those
    # whose states are offloaded go to the host, one while the next is made.
    kept = (2 * _largest(setup) if offloaded else max(own, _largest(setup))) * width
    early = states.gradients if setup.strategy == "zero1" else own * width
    temporary = own * (width + MASTER + _square_root(setup))
    norm = min(own, _largest(setup)) * DOUBLE
    return Share(
        weights=states.weights,
        adapter=states.adapter,
        optimizer=0 if offloaded else own * (MASTER + MOMENTS),
        reference=states.reference,
        transit=2 * _bucket(setup) * width,
        early=early if setup.accumulates and not offloaded else 0,
        late=_late(setup, early, kept),
        last=0 if offloaded else kept,
        step=0 if offloaded else max(temporary, norm),
    )


def _late(setup: Setup, early: int, kept: int) -> int:
    """ZeRO-1 keeps all gradients, which the tape does; ZeRO-2 the old share beside the new one."""
    if setup.strategy == "zero2":
        return kept * (2 if setup.accumulates and setup.offload == "none" else 1)
    return early if setup.accumulates and setup.offload == "none" else 0


def _square_root(setup: Setup) -> int:
    """Bytes per element of the temporary that AdamW over all tensors at once makes."""
    return MASTER if setup.stack.optimizer == "adamw_foreach" else 0


def _largest(setup: Setup) -> int:
    """Elements of the largest trainable tensor."""
    block, rank = setup.block, setup.lora_rank
    widths = matrix_widths(block)
    if setup.method == "full":
        tensors = [*widths.values(), *expert_sizes(block)]
        return max(block.vocab * block.hidden, *(i * o for i, o in tensors))
    sizes = [max(i, o) * rank for i, o in widths.values()]
    sizes += [rows * columns for factors in expert_factors(setup) for rows, columns in factors]
    return max(sizes, default=0)


def _frozen(setup: Setup, states: States) -> int:
    """Bytes of a rank's share of what is not trained."""
    if setup.method == "full":
        return 0
    if setup.method == "qlora" and not setup.stack.quantised_sharded:
        return states.weights
    return _per_rank(states.weights, setup)


def _zero3(setup: Setup, states: States) -> Share:
    """A share of everything."""
    width, own = states.trainable_width, _per_rank(states.trainable, setup)
    bucket = _bucket(setup) * width
    frozen = 0 if setup.offload == "parameters" else _frozen(setup, states)
    trained = 0 if setup.offload == "parameters" else own * width
    if setup.offload != "none":
        return Share(
            weights=frozen + (trained if setup.method == "full" else 0),
            adapter=0 if setup.method == "full" else trained,
            optimizer=0,
            reference=0,
            buckets=bucket,
        )
    step = min(own, SUB_GROUP_ELEMENTS) * (MASTER + width + _square_root(setup))
    return Share(
        weights=frozen + (trained if setup.method == "full" else 0),
        adapter=0 if setup.method == "full" else trained,
        optimizer=own * (MASTER + MOMENTS),
        reference=_per_rank(states.reference, setup),
        buckets=bucket,
        early=own * width,
        late=own * width,
        last=own * width,
        step=step,
    )


def _gathered_zero3(setup: Setup, states: States) -> int:
    """DeepSpeed keeps what it will need again soon, and fetches ahead."""
    width = DTYPE_BYTES[setup.weight_dtype]
    head, layer = setup.block.vocab * setup.block.hidden, _layer_elements(setup)
    prefetch, elements = min(PREFETCH_ELEMENTS, 9 * _bucket(setup) // 10), states.parameters
    if setup.method == "qlora":
        # 4-bit weights are packed into elements of the others' format, which are counted.
        elements, layer = states.weights // width, _unit(setup) // width
    kept = max(min(elements, setup.stack.live_parameters), head)
    return min(elements, kept + layer + prefetch) * width


def _layer_elements(setup: Setup) -> int:
    return sum(i * o for i, o in matrix_widths(setup.block).values()) + _routed_elements(setup)


def _routed_elements(setup: Setup) -> int:
    """Elements of a layer's experts, which no 4-bit format takes."""
    return sum(rows * columns for rows, columns in expert_sizes(setup.block))


def _fsdp(setup: Setup, states: States) -> Share:
    """A share of everything; trained shards are float32 where mixed precision asks for it."""
    if setup.offload == "parameters":
        # Shards, their gradients and the optimizer's states live on the host.
        return Share(weights=0, adapter=0, optimizer=0, reference=0)
    upcast = setup.stack.autocast and setup.stack.fsdp_upcast
    width = MASTER if upcast else states.trainable_width
    own = _per_rank(states.trainable, setup)
    temporary = own * width if setup.stack.optimizer == "adamw_foreach" else 0
    shared = setup.stack.sync_each_batch
    waiting = own * width if shared else states.gradients
    early = waiting if setup.accumulates else 0
    unsharded = 0 if shared else early
    full = setup.method == "full"
    scale = width / states.trainable_width
    # Kept inputs go as gradients come, layer by layer: one end of backward or the other is worse.
    below = (setup.block.layers - 2) / setup.block.layers * _layers_share(setup, states)
    return Share(
        weights=own * width if full else _frozen(setup, states),
        adapter=0 if full else own * width,
        optimizer=round(_per_rank(states.optimizer, setup) * scale),
        reference=_per_rank(states.reference, setup),
        early=early,
        top=max(early, unsharded + round(own * width * (1 - below))),
        late=max(unsharded, own * width),
        last=own * width,
        step=temporary,
    )


def _layers_share(setup: Setup, states: States) -> float:
    """Share of the trainable elements that is in layers."""
    if setup.method != "full":
        return 1.0
    return setup.block.layers * _layer_elements(setup) / states.trainable


def _unit(setup: Setup) -> int:
    """Bytes of one layer's weights when they are gathered."""
    elements, experts = _layer_elements(setup), _routed_elements(setup)
    if setup.method != "qlora":
        return elements * _computes(setup)
    if not setup.stack.quantised_sharded:
        return 0
    return (elements - experts) * 9 // 16 + experts * _computes(setup)


def _computes(setup: Setup) -> int:
    return 2 if setup.stack.autocast else DTYPE_BYTES[setup.weight_dtype]


def head_bytes(setup: Setup) -> int:
    """Bytes of the embedding, or of the head, when gathered."""
    return setup.block.vocab * setup.block.hidden * _computes(setup)


def _gathered_fsdp1(setup: Setup, region: int, *, backward: bool) -> int:
    """One flat tensor per layer, the next one fetched meanwhile; the root keeps its own."""
    unit = _unit(setup)
    root = head_bytes(setup) * (1 if setup.block.tied else 2)
    trained = setup.method == "full"
    if trained and region == HEAD:
        # The last layer has given its own back before the head runs.
        return root
    if backward and trained:
        # Gradients of the root are put together in one flat tensor at the very end.
        return root + (root if region == EMBEDDING else 4 * unit)
    return root + (2 * unit if region != EMBEDDING else 0)


def _gathered_fsdp2(setup: Setup, states: States, region: int, *, backward: bool) -> int:
    """A unit's weights, and what was gathered to unpack them; as traced on `fully_shard`.

    In forward that buffer stays until the next unit is unpacked, in backward the next one is
    already gathered. Final norm and trained head are one unit; beside an adapter TRL's loss gathers
    the head itself.
    """
    unit, words = _unpacked(setup, states), head_bytes(setup)
    trained = setup.method == "full"
    if not backward:
        head = 2 * words if trained else words + unit
        return {EMBEDDING: max(2 * words, words + 2 * unit), HEAD: head}.get(region, 2 * unit)
    if region == HEAD:
        return words + unit
    if region == EMBEDDING:
        return words if trained else 0
    # Float32 gradients of the unit above are on their way.
    return 2 * unit + (2 * (words if region == TOP else unit) if trained else 0)


def _unpacked(setup: Setup, states: States) -> int:
    """Bytes of one layer as FSDP2 gathers it, with its adapter."""
    if setup.method == "full":
        return _unit(setup)
    return _unit(setup) + states.trainable // setup.block.layers * _computes(setup)


def unpacked_fsdp2(setup: Setup, states: States) -> int:
    """What is gathered while a layer, or the head, is unpacked in forward, and the one before."""
    unit = _unpacked(setup, states)
    return max(3 * unit, 2 * head_bytes(setup) + unit)
