"""Bytes that outlive a step: weights, adapter, gradients, optimizer states; before any sharding.

Sources: bitsandbytes/functional.py (blocks of 64, scales of scales by 256) and optim/optimizer.py
(8-bit states; below 4096 elements 32-bit); transformers/trainer.py (embeddings keep 32-bit states);
torch/optim/adamw.py (states in the weights' format); auto_gptq's qlinear for 4-bit GPTQ.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from wizard.planner.tape.experts import bias_sizes, expert_factors, expert_sizes
from wizard.planner.tape.layers import adapted, has_bias, matrix_widths, other_bytes
from wizard.planner.tape.setup import DTYPE_BYTES, Block, Setup

SMALL_TENSOR = 4096
"""bitsandbytes keeps 32-bit states for fewer elements."""
CODES_BYTES = 2 * 256 * 4
"""Two shared tables of the 8-bit formats."""
QUANTISED_ONCE = 16 * 4
"""A quantised matrix's own table of 16 values."""
QUANTISED_TWICE = 4 + 256 * 4
"""Offset and table of its scales' scales."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Equal tensors of a model."""

    rows: int
    """Output width; 1 for a vector."""
    columns: int
    copies: int
    embedding: bool = False

    @property
    def elements(self) -> int:
        """Elements of one of them."""
        return self.rows * self.columns


@dataclass(frozen=True, kw_only=True, slots=True)
class States:
    """Bytes of an unsharded rank."""

    weights: int
    adapter: int
    gradients: int
    optimizer: int
    step: int
    """What the optimizer needs on top while it runs."""
    reference: int
    """A second model for DPO."""
    trainable: int
    """Elements."""
    trainable_width: int
    """Bytes of a trainable element."""
    parameters: int
    """Elements of the base model."""


@lru_cache(maxsize=4096)
def states(setup: Setup) -> States:
    """Everything that is there from step to step, whatever its rows: those are `inputs`."""
    return _lasting(replace(setup, micro_batch=1, length=1))


@lru_cache(maxsize=1024)
def _lasting(setup: Setup) -> States:
    """The same without the rows of a step: a search asks for few of these."""
    matrices, others = list(_matrices(setup.block)), list(_others(setup))
    parameters = _elements(matrices) + _elements(others)
    weights = _weights(setup, matrices, others) + _rotary_buffers(setup.block)
    full = setup.method == "full"
    trained = [*matrices, *others] if full else list(_adapters(setup))
    width = DTYPE_BYTES[setup.weight_dtype if full else setup.stack.adapter_dtype]
    trainable = _elements(trained)
    has_reference = setup.preference == "model" and full
    return States(
        weights=weights,
        adapter=0 if full else trainable * width,
        gradients=trainable * width,
        optimizer=0 if setup.first_step else _optimizer(setup, trained, width),
        step=_step(setup, trained, width),
        reference=parameters * DTYPE_BYTES[setup.weight_dtype] + _rotary_buffers(setup.block)
        if has_reference
        else 0,
        trainable=trainable,
        trainable_width=width,
        parameters=parameters,
    )


def inputs(setup: Setup) -> int:
    """Token ids, mask and labels of 8 bytes each; masks over pairs of tokens are on the tape."""
    both = 2 if setup.single_answers else 1
    return both * 3 * 8 * setup.tokens


def weight_tensors(setup: Setup) -> Iterator[tuple[int, int]]:
    """(bytes, how many) of the tensors the base model is made of."""
    other, width = other_bytes(setup), DTYPE_BYTES[setup.weight_dtype]
    for group in _others(setup):
        yield group.elements * other, group.copies
    for group in _matrices(setup.block):
        if setup.method != "qlora":
            yield group.elements * width, group.copies
            continue
        packed = (group.elements + 1) // 2
        yield packed, group.copies
        yield _quantised(setup, group) - packed, group.copies


def adapter_tensors(setup: Setup) -> Iterator[tuple[int, int]]:
    """(bytes, how many) of the adapter's tensors."""
    if setup.method != "full":
        for group in _adapters(setup):
            yield group.elements * DTYPE_BYTES[setup.stack.adapter_dtype], group.copies


def trained_tensors(setup: Setup) -> Iterator[tuple[int, int]]:
    """(bytes, how many) of the tensors that learn."""
    yield from weight_tensors(setup) if setup.method == "full" else adapter_tensors(setup)


def optimizer_tensors(setup: Setup) -> Iterator[tuple[int, int]]:
    """(bytes, how many) of the optimizer's states."""
    full, kind = setup.method == "full", setup.stack.optimizer
    width = DTYPE_BYTES[setup.weight_dtype if full else setup.stack.adapter_dtype]
    trained = [*_matrices(setup.block), *_others(setup)] if full else _adapters(setup)
    for group in trained:
        if kind in ("adamw_fused", "adamw_foreach"):
            yield group.elements * width, 2 * group.copies
        elif kind == "adamw_8bit":
            yield _eight_bit(group) // 2, 2 * group.copies
        elif kind == "adafactor":
            yield _factored(group), group.copies


def _elements(groups: list[Group]) -> int:
    return sum(group.elements * group.copies for group in groups)


def _matrices(block: Block) -> Iterator[Group]:
    """What 4-bit formats quantise."""
    for width_in, width_out in matrix_widths(block).values():
        yield Group(rows=width_out, columns=width_in, copies=block.layers)


def _others(setup: Setup) -> Iterator[Group]:
    """Embeddings, head, routed experts, norms and biases."""
    block = setup.block
    words = Group(rows=block.vocab, columns=block.hidden, copies=1, embedding=True)
    yield words
    if setup.scores:
        yield Group(rows=1, columns=block.hidden, copies=1)
    elif not block.tied:
        yield Group(rows=block.vocab, columns=block.hidden, copies=1)
    for rows, columns in expert_sizes(block):
        yield Group(rows=rows, columns=columns, copies=block.layers)
    yield Group(rows=1, columns=block.hidden, copies=block.norms * block.layers + 1)
    if block.qk_norm:
        yield Group(rows=1, columns=block.head_dim, copies=2 * block.layers)
    for count in bias_sizes(block):
        yield Group(rows=1, columns=count, copies=block.layers)
    if block.sinks:
        yield Group(rows=1, columns=block.heads, copies=block.layers)
    for name, (_, width_out) in matrix_widths(block).items():
        if has_bias(block, name):
            yield Group(rows=1, columns=width_out, copies=block.layers)


def _adapters(setup: Setup) -> Iterator[Group]:
    rank, layers = setup.lora_rank, setup.block.layers
    for name, (width_in, width_out) in matrix_widths(setup.block).items():
        if adapted(setup, name):
            yield Group(rows=rank, columns=width_in, copies=layers)
            yield Group(rows=width_out, columns=rank, copies=layers)
    for factors in expert_factors(setup):
        for rows, columns in factors:
            yield Group(rows=rows, columns=columns, copies=layers)


def _weights(setup: Setup, matrices: list[Group], others: list[Group]) -> int:
    other = _elements(others) * other_bytes(setup)
    if setup.method != "qlora":
        return _elements(matrices) * DTYPE_BYTES[setup.weight_dtype] + other
    return sum(_quantised(setup, group) * group.copies for group in matrices) + other


def _quantised(setup: Setup, matrix: Group) -> int:
    """Bytes of one 4-bit matrix with its scales."""
    elements = matrix.elements
    packed = (elements + 1) // 2
    if setup.quantisation == "gptq4":
        groups = -(-elements // 128)
        return packed + groups * 2 + groups // 2 + matrix.columns * 4
    blocks = -(-elements // 64)
    if setup.stack.double_quantised:
        return packed + blocks + -(-blocks // 256) * 4 + QUANTISED_ONCE + QUANTISED_TWICE
    return packed + blocks * 4 + QUANTISED_ONCE


def _rotary_buffers(block: Block) -> int:
    """Inverse frequencies, and the unscaled ones beside them; Gemma's scale of embedded tokens."""
    return block.positions * 2 * (block.head_dim // 2) * 4 + 4 * block.gemma


def _optimizer(setup: Setup, trained: list[Group], width: int) -> int:
    kind = setup.stack.optimizer
    if kind in ("adamw_fused", "adamw_foreach"):
        return 2 * width * _elements(trained)
    if kind == "adamw_8bit":
        return sum(_eight_bit(group) * group.copies for group in trained) + CODES_BYTES
    if kind == "adafactor":
        return sum(_factored(group) * group.copies for group in trained)
    return 0


def _eight_bit(group: Group) -> int:
    elements = group.elements
    if elements < SMALL_TENSOR or group.embedding:
        return 8 * elements
    return 2 * elements + 2 * 4 * -(-elements // 256)


def _factored(group: Group) -> int:
    """A mean per row and per column instead of one per element."""
    return 4 * (group.rows + group.columns if group.rows > 1 else group.columns)


def _step(setup: Setup, trained: list[Group], width: int) -> int:
    kind = setup.stack.optimizer
    if kind == "adamw_foreach":
        return setup.stack.step_copies * width * _elements(trained)
    if kind == "adafactor":
        return 8 * max(group.elements for group in trained)
    return 0
