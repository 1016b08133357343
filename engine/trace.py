"""Trace: the tensor peak of a spec's step, by running it on fake tensors; needs no device.

`python -m engine.trace SPEC MODEL` prints one JSON object. MODEL is a folder with config.json; the
weights are not read. The step is that of the installed libraries: the model's own layers, PEFT's
adapter, bitsandbytes' 4-bit layers, TRL's tiled loss, torch's optimizer. What runs on a device
alone, such as kernels' workspaces and an 8-bit optimizer's states, is added by formula.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.theirs import why

if TYPE_CHECKING:
    import torch

    from engine.spec import Spec

TRACED = ("single", "ddp", "fsdp")
STEPS = 2
"""The first makes the optimizer's states, the second is a step like all later ones."""


class UntraceableError(ValueError):
    """A spec whose step cannot be traced; the text says why."""


def main() -> int:
    """Print what was found; 0 when traced, 2 when this step cannot be."""
    parser = argparse.ArgumentParser(prog="engine.trace", description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("model", type=Path)
    options = parser.parse_args()
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    from engine.spec import loads

    try:
        found = trace(loads(options.spec.read_text(encoding="utf-8")), options.model)
    except UntraceableError as error:
        print(json.dumps({"error": str(error)}))  # noqa: T201
        return 2
    print(json.dumps(found))  # noqa: T201
    return 0


def trace(spec: Spec, folder: Path) -> dict[str, Any]:
    """Bytes at the peak of each moment of a step, over full micro-batches of `max_length` tokens.

    Raises UntraceableError.
    """
    _check(spec)
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from engine.fakes import real_devices_do, with_values
    from engine.traced_ranks import local, ranks_of, share_out
    from engine.tracer import Tracer

    began = time.monotonic()
    rows, length = _rows(spec), spec.data.max_length
    tracer = Tracer(scored_tokens=rows * (length - 1))
    model = _on_meta(spec, folder)
    parameters = sum(p.numel() for p in model.parameters())
    model = _adapted(spec, model)
    with (
        ranks_of(spec) as mesh,
        FakeTensorMode(allow_non_fake_inputs=True),
        real_devices_do(tracer),
        tracer.seeing_resizes(),
    ):
        with_values(model, getattr(torch, spec.model.dtype))
        if spec.parallel.strategy == "fsdp":
            share_out(spec, model, mesh)
        _prepare(spec, model)
        trained = [p for p in model.parameters() if p.requires_grad]
        for tensor in _tensors(model):
            tracer.hold(local(tensor))
        held_bytes = tracer.live_bytes
        _steps(spec, model, trained, tracer)
    peaks = {moment: peak for moment, peak in tracer.peaks.items() if moment}
    moment = max(peaks, key=peaks.__getitem__)
    return {
        "schema": 1,
        "allocated_peak_bytes": peaks[moment],
        "moment": moment,
        "moments": peaks,
        "model_bytes": held_bytes,
        "parameters": parameters,
        "trainable": sum(p.numel() for p in trained),
        "seconds": round(time.monotonic() - began, 2),
    }


def _check(spec: Spec) -> None:
    from engine import adapter

    strategy = spec.parallel.strategy
    if strategy not in TRACED:
        why = (
            "a device of it holds a part of the layers, and works on its own"
            if strategy == "layer_split"
            else "DeepSpeed lays its shares out in real memory, which fakes have none of"
        )
        raise UntraceableError(
            f"strategy={strategy} is not traced, only {', '.join(TRACED)}: {why}; the plan's "
            "simulated step is what there is, or two steps on the device"
        )
    if spec.parallel.offload != "none":
        raise UntraceableError(
            f"offload={spec.parallel.offload} is not traced: what moves to the host and when is "
            "settled on a device; the plan's simulated step is what there is"
        )
    if adapter.takes_from_weights(spec):
        raise UntraceableError(
            f"init_lora_weights={spec.method.init_lora_weights} is not traced: it is made of "
            "weights, and there are none"
        )
    if spec.model.attn_implementation == "flash_attention_2":
        raise UntraceableError(
            "attn_implementation=flash_attention_2 runs on a device alone; sdpa can be traced"
        )


def _on_meta(spec: Spec, folder: Path) -> Any:
    """The model as shapes alone."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

    from engine.model import dtype_of

    loader: Any = AutoModelForCausalLM
    settings: dict[str, Any] = {}
    if spec.method.stage == "reward":
        loader, settings = AutoModelForSequenceClassification, {"num_labels": 1}
    try:
        config = AutoConfig.from_pretrained(str(folder), trust_remote_code=False, **settings)
        with torch.device("meta"):
            model = loader.from_config(
                config,
                dtype=dtype_of(spec),
                attn_implementation=spec.model.attn_implementation,
                trust_remote_code=False,
            )
    except (ValueError, OSError, ImportError) as error:
        raise UntraceableError(
            f"{folder}: transformers makes no model of it: {why(error)}"
        ) from None
    model.config.use_cache = False
    text = model.config.get_text_config()
    if text.pad_token_id is None:  # a model that scores looks for it, as training gives it one
        text.pad_token_id = model.config.pad_token_id = 0
    model.train()
    return model


def _adapted(spec: Spec, model: Any) -> Any:
    """The model with 4-bit layers and the adapter, where the method asks for them."""
    import torch

    from engine import adapter
    from engine import model as models
    from engine.fakes import quantised

    if spec.method.method == "qlora":
        quantised(model, models.quantization(spec))
    if spec.method.method == "full":
        return model
    from peft import get_peft_model

    adapter.check_modules(spec, model)
    model = get_peft_model(model, adapter.new_config(spec, None), low_cpu_mem_usage=True)
    # TRL holds the adapter of a 4-bit model in bfloat16, everything else PEFT holds in float32.
    narrow = spec.method.method == "qlora" and spec.model.dtype == "bfloat16"
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if narrow and parameter is not None and parameter.requires_grad:
                module._parameters[name] = torch.nn.Parameter(parameter.to(torch.bfloat16))
    adapter.leave_casts_to_autocast(spec, model)
    return model


def _prepare(spec: Spec, model: Any) -> None:
    """What the trainer does to a model before its first step."""
    from trl.trainer.utils import add_fused_lm_head

    adapted = spec.method.method != "full"
    base = model.get_base_model() if adapted else model
    if spec.training.gradient_checkpointing:
        base.activation_checkpointing_enable({"use_reentrant": False})
        if adapted:
            model.enable_input_require_grads()
    if spec.method.stage != "reward":
        add_fused_lm_head(base, outputs=("log_probs", "entropy", "is_top1"))


def _steps(spec: Spec, model: Any, trained: list[Any], tracer: Any) -> None:
    """Whole optimizer steps; the peaks of the last one stay."""
    import torch

    from engine.traced_stages import loss_of

    training, rows = spec.training, _rows(spec)
    optimizer = _optimizer(spec, model, trained)
    autocast = spec.model.dtype != "float32"
    dtype = getattr(torch, spec.model.dtype)
    buckets = spec.parallel.strategy == "ddp"
    with tracer:
        if buckets:
            # DDP's buckets are the gradients, and stay from step to step.
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
        batch, beside = _batch(spec, rows)
        if rows > 1:
            _masks_inside(spec, model, rows)
        for step in range(STEPS):
            if step == STEPS - 1:
                tracer.peaks.clear()
            for _ in range(min(2, training.gradient_accumulation_steps)):
                with tracer.during("forward"), _autocast(autocast, dtype):
                    loss = loss_of(spec, model, batch)
                with tracer.during("backward"):
                    loss.backward()
                del loss
            with tracer.during("optimizer step"):
                if training.max_grad_norm > 0:
                    torch.nn.utils.clip_grad_norm_(trained, training.max_grad_norm)
                optimizer.step()
            if not buckets:
                optimizer.zero_grad(set_to_none=True)
        beside.clear()


def _rows(spec: Spec) -> int:
    """Sequences that pass through the model at once."""
    return spec.training.per_device_train_batch_size * spec.method.sequences_per_row


def _batch(spec: Spec, rows: int) -> tuple[dict[str, Any], list[Any]]:
    """(what the model is given, what lies beside it): rows of equal length."""
    import torch

    length = spec.data.max_length
    ids, labels, mask = (torch.zeros(rows, length, dtype=torch.long) for _ in range(3))
    beside = [mask]
    if spec.method.stage == "kto":
        # The same answers beside other prompts.
        beside += [torch.zeros(rows, length, dtype=torch.long) for _ in range(3)]
    return {"input_ids": ids, "labels": labels}, beside


def _masks_inside(spec: Spec, model: Any, rows: int) -> None:
    """Have the decoder given a mask of all pairs, one for each kind of layer, when it is called.

    Where several rows share a micro-batch, it makes them itself of the collator's mask, by looking
    at values, which a fake has not; and it lets go of them when the last layer has run.
    """
    import torch

    config, length = model.config.get_text_config(), spec.data.max_length
    eager = spec.model.attn_implementation == "eager"
    dtype = getattr(torch, spec.model.dtype) if eager else torch.bool
    kinds = sorted(set(getattr(config, "layer_types", None) or ()))

    def with_masks(_module: Any, arguments: Any, named: dict[str, Any]) -> tuple[Any, Any]:
        masks = {kind: torch.ones(rows, 1, length, length, dtype=dtype) for kind in kinds or [""]}
        mask = masks if len(kinds) > 1 else next(iter(masks.values()))
        return arguments, {**named, "attention_mask": mask}

    base = model.get_base_model() if spec.method.method != "full" else model
    base.base_model.register_forward_pre_hook(with_masks, with_kwargs=True)


@contextlib.contextmanager
def _autocast(enabled: bool, dtype: torch.dtype) -> Iterator[None]:
    import torch

    with torch.autocast("cpu", dtype=dtype) if enabled else contextlib.nullcontext():
        yield


def _optimizer(spec: Spec, model: Any, trained: list[Any]) -> Any:
    import torch

    from engine.fakes import EightBitAdam

    kind = spec.training.optim
    if kind == "adamw_bnb_8bit":
        tables = [m.weight for m in model.modules() if isinstance(m, torch.nn.Embedding)]
        return EightBitAdam(trained, wide=tables)
    fused = kind == "adamw_torch_fused"
    # On an accelerator torch's plain AdamW goes through all tensors at once.
    at_once = not fused and spec.parallel.device_kind != "cpu"
    return torch.optim.AdamW(trained, lr=1e-5, fused=fused, foreach=at_once)


def _tensors(model: Any) -> Iterator[Any]:
    """Every tensor that a model holds, and those that 4-bit weights keep beside themselves."""
    for parameter in model.parameters():
        yield parameter
        state = getattr(parameter, "quant_state", None)
        if state is not None:
            yield from (state.absmax, state.code, state.offset)
            yield from (state.state2.absmax, state.state2.code)
    yield from model.buffers()


if __name__ == "__main__":
    sys.exit(main())
