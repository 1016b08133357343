"""From the last hidden state to the loss: TRL's tiles, Hugging Face's logits, a fused kernel.

Sources: trl/kernels/chunked_logprob.py and trl/trainer/utils.py (add_fused_lm_head);
transformers/loss/loss_utils.py (ForCausalLMLoss), and modeling_llama.py before 4.50 for the
shifted copy; modeling_qwen.py of Qwen/Qwen-1_8B; accelerate/utils/operations.py (convert_to_fp32);
unsloth/kernels/cross_entropy_loss.py; liger_kernel/ops/fused_linear_cross_entropy.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wizard.planner.tape.autograd import Gradients, Tape, Tensor
from wizard.planner.tape.meter import Buffer
from wizard.planner.tape.operations import HALF, SINGLE, cast, linear
from wizard.planner.tape.setup import Setup

TILE_TOKENS = 4096
TILE_WORDS = 32768
SCALARS = 8
"""Float32 vectors over the scored tokens that TRL's forward holds while it runs."""


def loss_of(
    tape: Tape, setup: Setup, hidden: Tensor, weight: Tensor
) -> tuple[Tensor, Buffer | None]:
    """The loss, as one float32 with a graph behind it, and what the caller keeps beside it."""
    if setup.scores:
        return scored(tape, setup, hidden, weight), None
    head = setup.stack.loss_head
    if head == "chunked" or setup.preference != "none":
        return chunked(tape, setup, hidden, weight), None
    if head == "fused":
        return fused(tape, setup, hidden, weight), None
    return full(tape, setup, hidden, weight)


def scored(tape: Tape, setup: Setup, hidden: Tensor, weight: Tensor) -> Tensor:
    """A score for every token, of which the last of each row counts (a reward model's head)."""
    tokens = linear(tape, hidden, weight, setup.block.hidden)
    size = tokens.size
    return tape.apply(setup.rows, tokens.width, (tokens,), (), tape.makes(size))


def chunked(tape: Tape, setup: Setup, hidden: Tensor, weight: Tensor) -> Tensor:
    """Log-probabilities of the scored tokens, tile by tile: logits never exist as a whole."""
    width, rows, length = setup.block.hidden, setup.rows, setup.length
    scored = int(setup.scored_fraction * rows * (length - 1))
    picked = _pick(tape, hidden, width=width, positions=rows * (length - 1), scored=scored)
    out = _tiles(tape, setup, picked, weight, scored)
    del picked
    positions = rows * (length - 1)

    def scatter(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(scored * SINGLE)]

    def total(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(positions * SINGLE)]

    spread = tape.apply(positions, SINGLE, (out,), (tape.buffer(positions),), scatter)
    return tape.apply(1, SINGLE, (spread,), (), total)


def _pick(tape: Tape, hidden: Tensor, *, width: int, positions: int, scored: int) -> Tensor:
    """The hidden states of the tokens that are scored; all but the last of a row can be."""
    size, inner_size = hidden.size, positions * width * hidden.width

    def inner(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(inner_size)]

    view = tape.apply(
        hidden.count, hidden.width, (hidden,), (), tape.makes(size), storage=hidden.buffer
    )
    return tape.apply(scored * width, hidden.width, (view,), (), inner)


def _tiles(tape: Tape, setup: Setup, picked: Tensor, weight: Tensor, scored: int) -> Tensor:
    """The fused head: one tile of logits at a time, in both directions."""
    width = setup.block.hidden
    computes = HALF if tape.autocasts else picked.width
    tile_size = min(scored, TILE_TOKENS) * TILE_WORDS * computes
    cast_size = TILE_WORDS * width * computes if weight.width != computes else 0
    picked_width, weight_width, words = picked.width, weight.width, weight.count
    needs, weight_needs = picked.node is not None, weight.node is not None

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        of_hidden = tape.buffer(scored * width * SINGLE) if needs else None
        of_weight = tape.buffer(words * SINGLE) if weight_needs else None
        tile = tape.buffer(tile_size)
        cast_tile = tape.buffer(cast_size)
        del cast_tile
        if needs and picked_width != SINGLE:
            of_hidden_narrow: Buffer | None = tape.buffer(scored * width * picked_width)
        else:
            of_hidden_narrow = of_hidden
        if weight_needs and weight_width != SINGLE:
            of_weight = tape.gradient(words * weight_width)
        del tile
        return [of_hidden_narrow, of_weight]

    tile, cast_tile = tape.buffer(tile_size), tape.buffer(cast_size)
    scalars = tape.buffer(SCALARS * scored * SINGLE)
    if picked_width != computes:
        cast_rows = tape.buffer(min(scored, TILE_TOKENS) * width * computes)
        del cast_rows
    normaliser = tape.buffer(scored * SINGLE)
    result = tape.buffer(scored * SINGLE)
    saved = (picked.buffer, None, normaliser)
    out = tape.apply(scored, SINGLE, (picked, weight), saved, backward, storage=result)
    del tile, cast_tile, scalars
    return out


def full(tape: Tape, setup: Setup, hidden: Tensor, weight: Tensor) -> tuple[Tensor, Buffer | None]:
    """All logits, in the weights' format and in float32; and those that are returned."""
    stack = setup.stack
    logits = linear(tape, hidden, weight, setup.block.hidden)
    if stack.loss_head == "full_upcast":
        logits = cast(tape, logits, SINGLE)
    if stack.loss_head == "full_narrow":
        loss = narrow_cross_entropy(tape, logits)
    else:
        shifted = stack.loss_head != "full"
        loss = cross_entropy(tape, logits, shifted=shifted, kernel=stack.kernel_loss)
    returned = logits.buffer
    if tape.autocasts and stack.float32_outputs and logits.width == HALF:
        returned = tape.buffer(logits.count * SINGLE)
    return loss, returned if stack.outputs_kept else None


def cross_entropy(tape: Tape, logits: Tensor, *, shifted: bool, kernel: bool) -> Tensor:
    """Log-softmax and negative log-likelihood in float32, or both in one kernel."""
    single = cast(tape, logits, SINGLE)
    size = single.count * SINGLE

    def over_logits(_gradient: Buffer, saved: Sequence[Any]) -> Gradients:
        return [saved[0]]

    chosen = (
        tape.apply(single.count, SINGLE, (single,), (), tape.makes(size)) if shifted else single
    )
    if kernel:
        return tape.apply(1, SINGLE, (chosen,), (chosen.buffer,), over_logits)
    log_softmax = tape.apply(
        chosen.count, SINGLE, (chosen,), (), tape.makes(size), saves_output=True
    )
    del chosen, single
    return tape.apply(1, SINGLE, (log_softmax,), (log_softmax.buffer,), tape.makes(size))


def narrow_cross_entropy(tape: Tape, logits: Tensor) -> Tensor:
    """A shifted copy in the logits' own format; log-softmax in it too, where nothing autocasts."""
    shifted = tape.apply(logits.count, logits.width, (logits,), (), tape.makes(logits.size))
    wide = cast(tape, shifted, SINGLE) if tape.autocasts else shifted
    made = tape.makes(wide.size)
    log_softmax = tape.apply(wide.count, wide.width, (wide,), (), made, saves_output=True)
    del shifted, wide
    return tape.apply(1, SINGLE, (log_softmax,), (log_softmax.buffer,), made)


def fused(tape: Tape, setup: Setup, hidden: Tensor, weight: Tensor) -> Tensor:
    """Loss and gradients of the hidden state and of the head in one forward pass, in chunks."""
    width, tokens, words = setup.block.hidden, setup.tokens, setup.block.vocab
    computes = HALF if tape.autocasts else hidden.width
    chunks = -(-words // width)
    chunk = -(-tokens // chunks)
    of_hidden = tape.buffer(hidden.size)
    of_weight = tape.gradient(weight.size) if weight.node is not None else None
    logits = tape.buffer(chunk * words * (computes + SINGLE))
    del logits

    def backward(_gradient: Buffer, saved: Sequence[Any]) -> Gradients:
        return [saved[0], saved[1]]

    return tape.apply(1, SINGLE, (hidden, weight), (of_hidden, of_weight), backward)
