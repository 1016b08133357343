"""Passes of a traced step, stage by stage: what runs beside the pass that learns, and the loss.

Source: trl/trainer/{sft,dpo,kto,reward}_trainer.py, as far as tensors of a row's size go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.spec import Spec


def loss_of(spec: Spec, model: Any, batch: dict[str, Any]) -> Any:
    """The loss of one micro-batch, with its graph."""
    stage = spec.method.stage
    if stage == "reward":
        return _reward(model, batch)
    if stage == "kto":
        _without_gradients(model, batch)
    output = _answer(model, batch)
    logps = output.log_probs.sum(-1)
    # A reference that is the model itself passes while the graph is there; that of a fully trained
    # one has passed before the first step.
    if stage in ("dpo", "kto") and spec.method.method != "full":
        with model.disable_adapter():
            for _ in range(2 if stage == "kto" else 1):
                reference = _without_gradients(model, batch)
        logps = logps - reference
    return -logps.mean()


def _answer(model: Any, batch: dict[str, Any]) -> Any:
    return model(**batch, use_cache=False, fused_lm_head=True)


def _without_gradients(model: Any, batch: dict[str, Any]) -> Any:
    import torch

    with torch.no_grad():
        return _answer(model, batch).log_probs.sum(-1)


def _reward(model: Any, batch: dict[str, Any]) -> Any:
    import torch

    pairs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    rewards = model(**pairs, use_cache=False).logits.squeeze(-1)
    chosen, rejected = torch.chunk(rewards, chunks=2)
    return -torch.nn.functional.logsigmoid(chosen - rejected).mean()
