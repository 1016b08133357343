"""Head: the loss of a CPU rank, of the tokens that are learnt and with few passes over memory.

TRL's own is made for devices with Triton. Without it, it takes the tokens that are not learnt as
well, folds tiles of logits one operation at a time, and multiplies gradients in float32. Here the
logits of some tokens are made at once and become the gradient in place.
"""

from __future__ import annotations

from typing import Any

import torch

BLOCK_ELEMENTS = 2**26
"""Logits that exist at once: tokens × words of the vocabulary."""
FOLDED_ELEMENTS = 2**20
"""Logits that are held in float32 at once, few enough for a processor's own memory."""


def fit(kind: str) -> None:
    """Give TRL's models this head, where the ranks are CPU processes."""
    if kind != "cpu":
        return
    import trl.trainer.utils as library

    library._use_triton = _takes_learnt_tokens
    library._ChunkedLogProbFunction = LogProbs


def own_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    """Cross-entropy of the logits [rows, tokens, words] that a model's own forward gave.

    TRL's loss calls the layers and the head by itself; what code of the model's does between or
    behind them, such as a scale of the logits, is only in its forward. `num_items_in_batch` are
    the learnt tokens of all ranks; without it, as in evaluations, the mean is that of the rows.
    """
    logits, targets = outputs.logits[:, :-1], labels[:, 1:]
    total = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100, reduction="sum"
    )
    count = (targets != -100).sum() if num_items_in_batch is None else num_items_in_batch
    return total / torch.as_tensor(count, device=total.device).clamp(min=1)


def _takes_learnt_tokens(_device: torch.device) -> bool:
    """Whether TRL hands over the tokens that are learnt, and not all."""
    return True


def block_tokens(words: int) -> int:
    """Tokens whose logits exist at once."""
    return max(1, BLOCK_ELEMENTS // words)


class LogProbs(torch.autograd.Function):  # type: ignore[misc]
    """Log-probabilities of `targets`, and what else is asked for, as TRL's function gives them.

    With z the logits of a token and t its target, d(log p_t)/dz = [j = t] - p_j. A gradient of
    log p_t scales all of that alike, so its product with the weights is made in forward, and no
    logits are kept for it. A head that is trained needs them again: those of one block are kept,
    of more they are made anew.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        temperature: float,
        _tile_words: int,
        softcap: float | None,
        scale: float,
        outputs: tuple[str, ...],
    ) -> tuple[torch.Tensor | None, ...]:
        """(log-probabilities, entropy, log of Σp², mean logit, is the target the likeliest).

        `hidden` is tokens × width, `weight` words × width; each result has a number for a token,
        and is None where `outputs` does not name it.
        """
        dtype = (
            torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
        )
        fold = _Fold(softcap, scale, temperature, outputs)
        block = block_tokens(len(weight))
        narrow = weight.to(dtype)
        of_hidden = ctx.needs_input_grad[0]
        of_head = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]
        parts, products, kept = [], [], None
        for start in range(0, max(len(hidden), 1), block):
            chosen = slice(start, start + block)
            logits = _logits(hidden[chosen], narrow, bias, dtype)
            parts.append(fold(logits, targets[chosen], differentiate=of_hidden or of_head))
            if of_hidden:
                products.append(logits @ narrow)
            kept = logits if of_head and len(hidden) <= block else None
        product = torch.cat(products) if products else None
        ctx.save_for_backward(hidden, weight, bias, targets, product, kept)
        ctx.dtype, ctx.fold = dtype, fold
        results = fold.joined(parts)
        ctx.mark_non_differentiable(*(result for result in results[1:] if result is not None))
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None, *_: Any) -> tuple[Any, ...]:
        """The gradients of hidden states, weights and bias."""
        hidden, weight, bias, targets, product, kept = ctx.saved_tensors
        if gradient is None:
            return (None,) * 9
        each = gradient.float().unsqueeze(-1)
        of_hidden = (each * product).to(hidden.dtype) if product is not None else None
        if not (ctx.needs_input_grad[1] or ctx.needs_input_grad[2]):
            return (of_hidden, *(None,) * 8)
        from trl.trainer.utils import maybe_gather_lm_head_ctx

        with maybe_gather_lm_head_ctx(weight, bias):
            of_head = _of_head(ctx, (hidden, weight, bias, targets), each, kept)
        return (of_hidden, *of_head, *(None,) * 6)


def _of_head(
    ctx: Any, inputs: tuple[Any, ...], each: torch.Tensor, kept: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients of weights and bias."""
    hidden, weight, bias, targets = inputs
    if kept is not None:
        scaled = (each * hidden).to(ctx.dtype)
        of_bias = None if bias is None else (each * kept).sum(0).to(bias.dtype)
        return (kept.t() @ scaled).to(weight.dtype), of_bias
    narrow = weight.to(ctx.dtype)
    total = torch.zeros_like(weight, dtype=torch.float32)
    total_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
    block = block_tokens(len(weight))
    for start in range(0, len(hidden), block):
        chosen = slice(start, start + block)
        logits = _logits(hidden[chosen], narrow, bias, ctx.dtype)
        ctx.fold(logits, targets[chosen], differentiate=True)
        # Sums of blocks that are rounded to 16 bits one by one would drift.
        scaled = each[chosen] * hidden[chosen]
        total.addmm_(logits.t().float(), scaled)
        if total_bias is not None:
            total_bias += (each[chosen] * logits).sum(0)
    return total.to(weight.dtype), None if total_bias is None else total_bias.to(bias.dtype)


def _logits(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    narrow = None if bias is None else bias.to(dtype)
    return torch.nn.functional.linear(hidden.to(dtype), weight, narrow)


class _Fold:
    """Logits of a block → numbers of its tokens; the logits become d(log p of the target)/dz."""

    def __init__(
        self, softcap: float | None, scale: float, temperature: float, outputs: tuple[str, ...]
    ) -> None:
        self.softcap, self.scale, self.temperature = softcap, scale, temperature
        self.outputs = ("log_probs", *outputs)

    def __call__(
        self, logits: torch.Tensor, targets: torch.Tensor, *, differentiate: bool
    ) -> dict[str, torch.Tensor]:
        """What is asked for, a number for a token."""
        rows = max(1, FOLDED_ELEMENTS // logits.shape[1])
        parts = [
            self._rows(some, these.unsqueeze(-1), differentiate=differentiate)
            for some, these in zip(logits.split(rows), targets.split(rows), strict=True)
        ]
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def _rows(
        self, logits: torch.Tensor, targets: torch.Tensor, *, differentiate: bool
    ) -> dict[str, torch.Tensor]:
        single = logits.float()
        slope: torch.Tensor | float = self.scale / self.temperature
        scaled = self.softcap is not None or slope != 1
        if self.softcap is not None:
            bent = torch.tanh(single * (self.scale / self.softcap))
            single, slope = bent * (self.softcap / self.temperature), (1 - bent * bent) * slope
        elif scaled:
            single = single * slope
        log = torch.log_softmax(single, -1)
        found = {"log_probs": log.gather(-1, targets).squeeze(-1)}
        if "mean_logits" in self.outputs:
            found["mean_logits"] = single.mean(-1)
        if "is_top1" in self.outputs:
            found["is_top1"] = log.argmax(-1) == targets.squeeze(-1)
        if "log_sum_sq_probs" in self.outputs:
            found["log_sum_sq_probs"] = torch.logsumexp(2 * log, -1)
        if not differentiate and "entropy" not in self.outputs:
            return found
        shares = log.exp()
        if "entropy" in self.outputs:
            found["entropy"] = -(log.mul_(shares)).sum(-1)
        if differentiate:
            shares.neg_().scatter_add_(-1, targets, torch.ones_like(targets, dtype=shares.dtype))
            logits.copy_(shares.mul_(slope) if scaled else shares)
        return found

    def joined(self, parts: list[dict[str, torch.Tensor]]) -> tuple[torch.Tensor | None, ...]:
        """The results of all blocks, in the order of TRL's."""
        names = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")
        return tuple(
            torch.cat([part[name] for part in parts]) if name in self.outputs else None
            for name in names
        )
