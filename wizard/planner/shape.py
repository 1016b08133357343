"""A model's dimensions, and what follows from them: matrices, adapters, what is left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from wizard.facts import Model


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Dimensions of a decoder; every count is in elements."""

    hidden: int
    intermediate: int
    """Width of the MLP whose matrices are plain ones; of experts only the shared ones are."""
    passed: int
    """Width of the MLPs that a token passes."""
    layers: int
    heads: int
    attention: int
    """heads × head size."""
    key_value: int
    """key-value heads × head size."""
    vocabulary: int
    parameters: int
    tied: bool

    @property
    def layer_linear(self) -> int:
        """Elements of one layer's plain matrices."""
        square = 2 * self.hidden * (self.attention + self.key_value)
        return square + 3 * self.hidden * self.intermediate

    @property
    def head(self) -> int:
        """Elements of the output head, which is the embedding when tied."""
        return self.vocabulary * self.hidden

    @property
    def linear(self) -> int:
        """Elements of the matrices that are quantised and adapted."""
        outside = self.head * (1 if self.tied else 2)
        return min(self.layers * self.layer_linear, max(0, self.parameters - outside))

    @property
    def unquantised(self) -> int:
        """Embeddings, head, norms, and experts, which are no plain matrices."""
        return self.parameters - self.linear

    def adapter(self, rank: int) -> int:
        """Elements of LoRA matrices on all plain matrices of every layer."""
        widths = 2 * (self.hidden + self.attention) + 2 * (self.hidden + self.key_value)
        mlp = 3 * (self.hidden + self.intermediate) if self.intermediate else 0
        return self.layers * rank * (widths + mlp)


def shape_of(model: Model) -> Shape | None:
    """The shape; None when a dimension is unknown."""
    known = (model.hidden_size, model.num_layers, model.num_heads, model.vocab_size)
    hidden, layers, heads, vocabulary = known
    if not (hidden and layers and heads and vocabulary):
        return None
    head_dim = model.head_dim or hidden // heads
    intermediate = passed = model.intermediate_size or 4 * hidden
    if model.experts:
        intermediate = model.shared_expert_size or 0
        passed = intermediate + (model.experts_per_token or 1) * (model.expert_size or passed)
    without_total = Shape(
        hidden=hidden,
        intermediate=intermediate,
        passed=passed,
        layers=layers,
        heads=heads,
        attention=heads * head_dim,
        key_value=(model.num_kv_heads or heads) * head_dim,
        vocabulary=vocabulary,
        parameters=model.parameters or 0,
        tied=model.tied_embeddings is not False,
    )
    return without_total if model.parameters else _counted(without_total)


def _counted(shape: Shape) -> Shape:
    embeddings = shape.head * (1 if shape.tied else 2)
    norms = shape.hidden * (2 * shape.layers + 1)
    return replace(shape, parameters=shape.layers * shape.layer_linear + embeddings + norms)
