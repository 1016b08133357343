"""What the releases and kernels of the loss cost, in bytes per logit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from wizard.planner.tape import simulate
from wizard.planner.tape.setup import Block, Setup, Stack

BLOCK = Block(
    hidden=1024, intermediate=2048, layers=4, heads=8, kv_heads=8, head_dim=128, vocab=128000
)
"""Its vocabulary is so large that every peak is at the loss."""
SETUP = Setup(block=BLOCK, method="lora", micro_batch=2, length=2048)
LOGITS = SETUP.tokens * BLOCK.vocab


def bytes_a_logit(**stack: Any) -> float:
    """Bytes of the loss moment over those of a fused head, for each logit."""
    found = [
        dict(simulate(replace(SETUP, stack=Stack(**options))).moments)["loss"]
        for options in (stack, {"loss_head": "fused"})
    ]
    return (found[0] - found[1]) / LOGITS


def test_each_release_of_the_loss_has_its_bytes() -> None:
    plain = bytes_a_logit(loss_head="full")
    assert round(plain) == 12
    assert round(bytes_a_logit(loss_head="full_shifted") - plain) == 2
    assert round(bytes_a_logit(loss_head="full_upcast") - plain) == 0


def test_qwen_1s_loss_is_as_wide_as_autocast_makes_it() -> None:
    assert round(bytes_a_logit(loss_head="full_narrow") - bytes_a_logit(loss_head="full")) == 0
    pure = [
        bytes_a_logit(loss_head=head, autocast=False) for head in ("full_narrow", "full_upcast")
    ]
    assert [round(each) for each in pure] == [6, 12]


def test_a_kernel_that_writes_over_the_logits_needs_no_log_softmax() -> None:
    for head, saved in (("full_shifted", 4), ("full_upcast", 4)):
        plain = bytes_a_logit(loss_head=head)
        assert round(plain - bytes_a_logit(loss_head=head, kernel_loss=True)) == saved


def test_returned_logits_that_live_on_are_there_in_backward() -> None:
    kept = bytes_a_logit(loss_head="full", outputs_kept=True)
    assert round(kept - bytes_a_logit(loss_head="full")) == 4
