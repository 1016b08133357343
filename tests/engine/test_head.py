"""The head of CPU ranks gives what TRL's own gives, for the tokens that are learnt."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.engine

WORDS, WIDTH, TOKENS = 257, 32, 40
ALL = ("log_probs", "entropy", "log_sum_sq_probs", "mean_logits", "is_top1")


def results(
    function: Any, *, dtype: Any, trained: bool, bias: bool, softcap: float | None, scale: float
) -> list[Any]:
    """What a head says of the tokens, and its gradients of hidden states, weights and bias."""
    import torch

    torch.manual_seed(1)
    hidden = torch.randn(TOKENS, WIDTH).to(dtype).requires_grad_()
    weight = torch.randn(WORDS, WIDTH).to(dtype).requires_grad_(trained)
    added = torch.randn(WORDS).to(dtype).requires_grad_(trained) if bias else None
    targets = torch.randint(0, WORDS, (TOKENS,))
    found = function.apply(hidden, weight, added, targets, 0.7, 100, softcap, scale, ALL)
    (found[0] * torch.linspace(-1, 1, TOKENS)).sum().backward()
    gradients = [tensor.grad for tensor in (hidden, weight, added) if tensor is not None]
    return [*found, *gradients]


@pytest.mark.parametrize("block", [10**9, WORDS * 7])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(("bias", "softcap", "scale"), [(False, None, 1.0), (True, 3.0, 0.5)])
def test_the_head_of_a_cpu_rank_agrees_with_the_librarys(
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    trained: bool,
    bias: bool,
    softcap: float | None,
    scale: float,
) -> None:
    import torch
    from trl.kernels import ChunkedLogProbFunction

    from engine import head

    monkeypatch.setattr(head, "BLOCK_ELEMENTS", block)
    monkeypatch.setattr(head, "FOLDED_ELEMENTS", WORDS * 3)
    case: dict[str, Any] = {
        "dtype": torch.float32,
        "trained": trained,
        "bias": bias,
        "softcap": softcap,
        "scale": scale,
    }
    wanted, found = results(ChunkedLogProbFunction, **case), results(head.LogProbs, **case)
    assert len(wanted) == len(found)
    for one, other in zip(wanted, found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(other.float(), one.float(), rtol=1e-4, atol=1e-5)


def test_a_rows_padding_and_prompt_reach_no_head_of_a_cpu_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch
    import trl.trainer.utils as library
    from transformers import LlamaConfig, LlamaForCausalLM

    from engine import head

    for name in ("_use_triton", "_ChunkedLogProbFunction"):
        monkeypatch.setattr(library, name, getattr(library, name))
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=WORDS, hidden_size=WIDTH, intermediate_size=WIDTH, **sizes)
    )
    library.add_fused_lm_head(model, outputs=("log_probs", "entropy", "is_top1"))
    ids = torch.arange(24).reshape(2, 12)
    labels = torch.where(ids % 12 > 8, ids, -100)
    asked = {"input_ids": ids, "labels": labels, "fused_lm_head": True}
    wanted = model(**asked)
    seen: list[int] = []
    forward = head.LogProbs.forward

    def counted(ctx: Any, hidden: Any, *rest: Any) -> Any:
        seen.append(len(hidden))
        return forward(ctx, hidden, *rest)

    monkeypatch.setattr(head.LogProbs, "forward", staticmethod(counted))
    head.fit("cpu")
    found = model(**asked)
    assert seen == [6]
    torch.testing.assert_close(found.loss, wanted.loss)
    torch.testing.assert_close(found.entropy, wanted.entropy)
    assert torch.equal(found.is_top1, wanted.is_top1)
    empty = model(**{**asked, "labels": torch.full_like(labels, -100)})
    empty.loss.backward()
    assert not empty.loss
    assert not any(tensor.grad.any() for tensor in model.parameters())


def test_the_planner_counts_the_logits_that_the_head_makes() -> None:
    from engine import head
    from wizard.planner import closed_forms

    assert closed_forms.CPU_LOGITS == head.BLOCK_ELEMENTS
    assert closed_forms.CPU_FOLDED == head.FOLDED_ELEMENTS
