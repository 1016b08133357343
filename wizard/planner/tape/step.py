"""One training step of one rank: recorded at a shallow depth, then exact at the real one.

A further layer adds the same bytes to every region's peak, because what depends on the depth (kept
inputs of layers, gradients that are there) is constant inside a region. What it adds is read off
the layers in the middle: what is there more after one of them than before it, in either pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from wizard.planner.tape import meter as kinds
from wizard.planner.tape.autograd import Leaf, Tape, Tensor
from wizard.planner.tape.heads import loss_of
from wizard.planner.tape.layers import (
    Decoder,
    Layer,
    adapted,
    make_layer,
    matrix_widths,
    other_bytes,
)
from wizard.planner.tape.meter import Meter
from wizard.planner.tape.operations import embedding, unary
from wizard.planner.tape.setup import Block, Setup, UnknownStepError

FORWARD, REFERENCE, BACKWARD = 0, 5, 10
"""First of the five regions of each pass."""
EMBEDDING, BOTTOM, MIDDLE, TOP, HEAD = range(5)
"""Regions of a pass."""
REGIONS = 15
KINDS_OF_REGIONS = (
    *[kinds.ACTIVATIONS] * 4, kinds.LOSS,
    *[kinds.WORKSPACE] * 4, kinds.LOSS,
    *[kinds.WORKSPACE] * 4, kinds.LOSS,
)  # fmt: skip
SHALLOW = 3
"""The least depth that is extrapolated from: bottom, top, and a layer between them."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Bytes of what a step makes and frees, at the peak of each region, kind by kind."""

    by_kind: tuple[tuple[int, ...], ...]
    """Region → bytes of each kind, in the order of `KINDS`."""

    def peak(self, region: int) -> int:
        """Bytes of a region at its peak."""
        return sum(self.by_kind[region])


def record(setup: Setup) -> Recording:
    """The step's own tensors at the real depth; weights and states are not among them.

    Raises UnknownStepError where the layers are none the tape knows.
    """
    return _record(own_recording(setup))


def own_recording(setup: Setup) -> Setup:
    """The setup without what the recording does not read, so that equal ones are made once.

    Raises UnknownStepError where the layers are none the tape knows.
    """
    if setup.method != "full" and not any(adapted(setup, m) for m in matrix_widths(setup.block)):
        raise UnknownStepError("the adapter is on no matrix of a layer")
    stack = replace(
        setup.stack,
        optimizer="none",
        ddp_bucket_view=False,
        fsdp_upcast=False,
        sync_each_batch=False,
        live_parameters=0,
        bucket_elements=None,
        double_quantised=True,
        quantised_sharded=False,
    )
    return replace(
        setup,
        stack=stack,
        weight_dtype="bfloat16" if setup.fsdp and stack.autocast else setup.weight_dtype,
        accumulates=setup.accumulates or setup.shards_gradients or _has_buckets(setup),
        world_size=1,
        strategy="single",
        offload="none",
        first_step=False,
    )


def _has_buckets(setup: Setup) -> bool:
    """Whether gradients are added to buckets that are there already."""
    return setup.strategy == "ddp" and setup.stack.ddp_bucket_view


@lru_cache(maxsize=4096)
def _record(setup: Setup) -> Recording:
    depth, period = setup.block.layers, _period(setup)
    least = _least_depth(setup.block, period)
    shallow = least + (depth - least) % period
    if depth <= shallow or (setup.checkpointing and setup.checkpoint_every > 1):
        return Recording(tuple(run(setup).at_peaks()))
    peaks, growth = _peaks(_at_depth(setup, shallow), period)
    further = (depth - shallow) // period
    return Recording(
        tuple(
            tuple(size + further * more for size, more in zip(at_peak, each, strict=True))
            for at_peak, each in zip(peaks, growth, strict=True)
        )
    )


def _period(setup: Setup) -> int:
    """After how many layers the same kind comes again."""
    return setup.block.full_every if setup.windowed and setup.block.full_every else 1


def _least_depth(block: Block, period: int) -> int:
    """The least depth that holds every kind of layer: bottom, top, and a period between them."""
    kinds_apart = block.positions > 1 and 0 < block.full_every <= block.layers
    return max(2 + period, block.full_every if kinds_apart else 0)


Bytes = tuple[int, ...]
"""Of each kind."""


@lru_cache(maxsize=4096)
def _peaks(setup: Setup, period: int) -> tuple[tuple[Bytes, ...], tuple[Bytes, ...]]:
    """Peak of each region of a shallow model, which models of any depth share, and its growth.

    That is what a further period of layers adds to it.
    """
    meter = run(setup)
    forward = _middle(meter, FORWARD, TOP, period)
    backward = _middle(meter, BACKWARD, BOTTOM, period)
    *peaks, low, high, first, last = meter.at([*meter.peaks(), *forward, *backward])
    none = (0,) * len(low)
    made = _less(high, low)
    # Casts are kept until forward ends, though backward may have no use for them.
    kept = _less(made, _let_go(meter, *forward))
    left = _less(kept, _less(first, last))
    # Of equal layers the one peaks that has most around it: layers not yet gone back through, or
    # gradients of those that are.
    most = max(kept, left, key=sum)
    growth = (none, none, *[made] * 3, *[kept] * 5, left, left, most, kept, kept)
    happens = (each if any(peak) else none for peak, each in zip(peaks, growth, strict=True))
    return tuple(peaks), tuple(happens)


def _middle(meter: Meter, first_region: int, after: int, period: int) -> tuple[int, int]:
    """Length of the story where a pass enters the middle, and a period of layers later."""
    inside = meter.entered(first_region + MIDDLE)
    places = [*inside, *meter.entered(first_region + after)]
    return places[0], places[period]


def _less(a: Bytes, b: Bytes) -> Bytes:
    return tuple(x - y for x, y in zip(a, b, strict=True))


def _let_go(meter: Meter, start: int, end: int) -> Bytes:
    """What was taken in a part of forward and given back between its last layer and backward."""
    last = meter.entered(FORWARD + HEAD)[0]
    taken = {number for number in meter.story[start:end] if number >= 0}
    found = [0] * len(kinds.KINDS)
    for event in meter.story[last : meter.forward_ends]:
        if ~event in taken:
            found[meter.kinds[~event]] += meter.sizes[~event]
    return tuple(found)


def forget() -> None:
    """Drop every recording made so far."""
    _record.cache_clear()
    _peaks.cache_clear()
    _evaluated.cache_clear()


def _at_depth(setup: Setup, layers: int) -> Setup:
    return replace(setup, block=replace(setup.block, layers=layers))


def recorded_evaluation(setup: Setup) -> tuple[int, ...]:
    """Peak of each region of a pass that keeps nothing for backward; it has no depth."""
    own = own_recording(setup)
    shallow = SHALLOW + (own.block.layers - SHALLOW) % _period(own)
    return _evaluated(_at_depth(own, min(shallow, own.block.layers)))


@lru_cache(maxsize=4096)
def _evaluated(setup: Setup) -> tuple[int, ...]:
    meter = Meter(KINDS_OF_REGIONS)
    tape = Tape(meter, autocasts=setup.stack.autocast, keeps_gradients=False)
    model = _Model(tape, setup)
    with tape.no_grad():
        loss, held = model.forward(FORWARD)
        if setup.preference in ("model", "adapter"):
            model.reference().forward(REFERENCE)
        del loss, held
    peaks = [sum(kinds_of_region) for kinds_of_region in meter.at_peaks()]
    return tuple(max(peaks[FORWARD + part], peaks[REFERENCE + part]) for part in range(HEAD + 1))


def run(setup: Setup) -> Meter:
    """Forward and backward of one micro-batch, operation by operation, at the given depth."""
    meter = Meter(KINDS_OF_REGIONS)
    tape = Tape(meter, autocasts=setup.stack.autocast, keeps_gradients=not setup.accumulates)
    model = _Model(tape, setup)
    loss, held = model.forward(FORWARD)
    if setup.preference in ("model", "adapter"):
        with tape.no_grad():
            model.reference().forward(REFERENCE)
    meter.forward_ends = len(meter.story)
    tape.backward(loss)
    del loss, held
    meter.backward_ends = len(meter.story)
    return meter


class _Model:
    """Embedding, layers and head of one setup on one tape."""

    def __init__(self, tape: Tape, setup: Setup) -> None:
        block, full, other = setup.block, setup.method == "full", other_bytes(setup)
        words = block.vocab * block.hidden
        self.tape = tape
        self.setup = setup
        self.decoder = Decoder(tape, setup)
        self.embedding = tape.parameter(words, other, trainable=full)
        self.head = self.embedding
        if setup.scores:
            self.head = tape.parameter(block.hidden, other, trainable=True)
        elif not block.tied:
            self.head = tape.parameter(words, other, trainable=full)
        self.norm = tape.parameter(block.hidden, other, trainable=full)
        self.layers: list[Layer] = [
            make_layer(tape, setup, index, trainable=full) for index in range(block.layers)
        ]

    def reference(self) -> _Model:
        """The model DPO compares with: a frozen copy, or this one without its adapter."""
        if self.setup.method == "full":
            return _Model(self.tape, replace(self.setup, method="lora", lora_targets=()))
        other = _Model.__new__(_Model)
        other.__dict__.update(self.__dict__)
        other.layers = [layer.without_adapter() for layer in self.layers]
        return other

    def forward(self, first_region: int) -> tuple[Tensor, object]:
        """(the loss, what stays alive beside it)."""
        with self.tape.caching_casts():
            hidden, angles = self._decoded(first_region)
            loss, returned = loss_of(self.tape, self.setup, hidden, self.head)
            return loss, (*angles, returned)

    def _decoded(self, first_region: int) -> tuple[Tensor, tuple[object, ...]]:
        """(the last hidden state, the angles that layers keep).

        As in transformers, embedded tokens and masks have names of their own until it returns.
        """
        tape, setup = self.tape, self.setup
        self._enter(first_region, EMBEDDING)
        embedded = self._embed()
        shared = self._shared(embedded)
        hidden = embedded
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            part = TOP if index == last else MIDDLE if index else BOTTOM
            self._enter(first_region, part, index)
            if setup.checkpointing and index % setup.checkpoint_every == 0:
                hidden = tape.checkpoint(self.decoder.layer, layer, hidden, shared)
            else:
                hidden = self.decoder.layer(layer, hidden, shared)
        self._enter(first_region, HEAD)
        hidden = self.decoder.norm(hidden, self.norm, setup.block.hidden)
        block = setup.block
        kinds_kept = block.positions if 0 < block.full_every <= block.layers else 1
        return hidden, shared[: 2 * kinds_kept]

    def _enter(self, first_region: int, region: int, layer: int = 0) -> None:
        self.tape.meter.enter(first_region + region)
        self.tape.backward_place = (BACKWARD + region, layer)

    def _embed(self) -> Tensor:
        tape, setup, hidden = self.tape, self.setup, self.setup.block.hidden
        if self.embedding.node is not None:
            result = embedding(tape, self.embedding, setup.tokens, hidden)
            return unary(tape, result) if setup.block.gemma else result
        width = self.embedding.width
        storage = tape.buffer(setup.tokens * hidden * width)
        if setup.block.gemma:
            # Scaled into a tensor of their own.
            storage = tape.buffer(setup.tokens * hidden * width)
        result = Tensor(setup.tokens * hidden, width, storage)
        if setup.checkpointing and tape.gradients_enabled:
            # Checkpointing passes no gradient unless its input asks for one.
            result.node = Leaf(keeps=False)
        return result

    def _shared(self, hidden: Tensor) -> tuple[object, ...]:
        """Cosines, sines and masks over all pairs of tokens: every layer is handed them."""
        tape, setup = self.tape, self.setup
        # gpt-oss has those of half a head, which serve both halves.
        angles = setup.length * setup.block.head_dim * hidden.width // (1 + setup.block.sinks)
        parts = [tape.buffer(angles) for _ in range(2 * setup.block.positions)]
        if setup.attention == "eager":
            pairs = setup.rows * setup.length**2 * hidden.width
            parts += [tape.buffer(pairs) for _ in range(setup.masks)]
        elif setup.attention == "sdpa":
            masks = setup.masks if setup.padded else int(setup.windowed)
            parts += [tape.buffer(setup.rows * setup.length**2) for _ in range(masks)]
        return tuple(parts)
