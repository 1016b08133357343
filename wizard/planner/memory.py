"""Spec + model → predicted peak memory of one rank, part by part.

On accelerators the step is simulated (`wizard.planner.tape`) where its layers are known; CPU ranks,
whose process is measured, and other layers have closed formulas. For CPU ranks
`pytest -m engine -s tests/test_memory_measured.py` prints predicted over measured. For CUDA ranks
the tensors are held to traces of the real step; context, NCCL and allocator are allowances.
"""

from __future__ import annotations

import re

from engine.spec import Spec
from wizard.facts import GIB, Model
from wizard.plan import Memory, MemoryPart
from wizard.planner.budgets import Budget
from wizard.planner.closed_forms import DTYPE_BYTES, Case, live_parts
from wizard.planner.host import RANK_PROCESS_BYTES, disk_bytes, host_bytes
from wizard.planner.shape import shape_of
from wizard.planner.simulated import Simulated, bounded, setup_of, simulated
from wizard.planner.tape.bounds import at_least
from wizard.planner.tape.lifetime import LOADING, SAVING, loading, saving
from wizard.planner.tape.setup import Setup, UnknownStepError
from wizard.planner.tape.simulation import simulate

MIB = 1024**2
CPU_ALLOCATOR_SHARE = 0.45
"""What the C library's allocator holds beyond live short-lived tensors: it seldom gives back.

With it the estimate lies 3 to 29 % above what `tests/test_memory_measured.py` measures."""
WHOLE_MODULE_BYTES = 16
SHORT_LIVED = frozenset({"activations", "layer workspace", "loss"})
UNKNOWN_SHARE, ROUTED_SHARE = 0.35, 0.65
"""Traced steps lay above the closed formulas by up to 0.33 of these on Gemma 3, 0.64 on Mixtral."""
ROUTED = re.compile("moe|mixtral|gpt_oss|deepseek")
ALLOCATOR_SHARE = 0.05
ALLOCATOR_BYTES = 300 * MIB
"""What a caching allocator holds beyond live tensors."""
CONTEXT_BYTES = 600 * MIB
"""CUDA context with its kernels: 0.3 GiB on Ampere to 0.65 GiB on Hopper."""
NCCL_BYTES = 700 * MIB
OUTSIDE = {
    LOADING: "all weights that a rank holds while it loads, and those just being made",
    SAVING: "what a rank holds, and the tensor that is gathered to be written",
}
"""Moments outside of a step → what their one part is."""

LEFT_OUT_ALWAYS = ("page cache of the files read",)


def estimate(spec: Spec, model: Model, budget: Budget) -> Memory:
    """Predicted peak of the busiest rank, of the host and of the disk.

    The peak is the worst moment of loading and of a step, so parts that never meet are not added
    up. No step is simulated where the least it needs is already too much: then the estimate is that
    least, and says so.
    """
    case = _case(spec, model)
    if case is None:
        return _unknown_shape(spec, model, budget)
    setup = _simulated_setup(case, model)
    least = bounded(setup) if setup is not None and _is_over(setup, budget) else ()
    found = None
    if setup is not None and not least:
        found = simulated(setup, evaluates=spec.data.evaluates)
    live = least or (_unsimulated(case, model) if found is None else found.parts)
    moment = "" if found is None else found.moment
    live = (*live, *beside(case))
    outside = {} if setup is None else {LOADING: loading(setup), SAVING: saving(setup)}
    for name, size in outside.items():
        if size > sum(part.bytes for part in live):
            live = (_part("weights", size, OUTSIDE[name]),)
            moment = name
    parts = (*live, *_around(case, live))
    device_bytes = sum(part.bytes for part in parts)
    return Memory(
        parts=parts,
        device_bytes=device_bytes,
        device_budget_bytes=budget.device_bytes,
        host_bytes=host_bytes(case, device_bytes if case.cpu else RANK_PROCESS_BYTES),
        host_budget_bytes=budget.host_bytes,
        left_out=_left_out(case, model, found, at_least=bool(least)),
        moment=moment,
        moments=() if found is None else found.moments,
        at_least=bool(least) and moment not in outside,
        disk_bytes=disk_bytes(case, model),
        disk_budget_bytes=budget.disk_bytes,
    )


def _unsimulated(case: Case, model: Model) -> tuple[MemoryPart, ...]:
    """Closed formulas; on a device with an allowance for what they do not know of the layers."""
    live = live_parts(case)
    if case.cpu:
        return live
    routed = model.architecture is not None and ROUTED.search(model.architecture) is not None
    share = ROUTED_SHARE if routed else UNKNOWN_SHARE
    size = sum(part.bytes for part in live if part.name in SHORT_LIVED) * share
    text = f"layers not simulated: {share} × activations and loss; plan --trace counts them"
    return (*live, _part("allowance", size, text)) if size else live


def beside(case: Case) -> tuple[MemoryPart, ...]:
    """What lives beside the step: a frozen adapter it is held to, modules trained whole."""
    return (*_reference(case), *_whole_modules(case))


def _beside_bytes(case: Case) -> int:
    return sum(part.bytes for part in beside(case))


def _reference(case: Case) -> tuple[MemoryPart, ...]:
    """The adapter that training is held to, where one is gone on with: a frozen copy."""
    method = case.spec.method
    if method.adapter is None or method.stage not in ("dpo", "kto"):
        return ()
    size = case.adapter * case.trainable_bytes
    text = f"the adapter as it was: {case.adapter:,} × {case.trainable_bytes} B"
    return (_part("reference", size, text),)


def _whole_modules(case: Case) -> tuple[MemoryPart, ...]:
    """Embedding and output head trained whole beside an adapter: each a copy, with its states."""
    named = {name.strip() for name in (case.spec.method.modules_to_save or "").split(",")}
    count = len(named & {"embed_tokens", "lm_head"})
    if not count:
        return ()
    elements = case.shape.head * (1 if case.shape.tied else count)
    text = f"{elements:,} × {WHOLE_MODULE_BYTES} B (float32 copy, gradient, two moments)"
    return (_part("modules trained whole", elements * WHOLE_MODULE_BYTES, text),)


def _simulated_setup(case: Case, model: Model) -> Setup | None:
    return None if case.cpu else setup_of(case.spec, model, case.shape)


def _is_over(setup: Setup, budget: Budget) -> bool:
    """Whether the least a step needs is more than there is."""
    return budget.device_bytes is not None and _with_around(at_least(setup), setup) > (
        budget.device_bytes
    )


def _with_around(live_bytes: float, setup: Setup) -> float:
    around = ALLOCATOR_BYTES + CONTEXT_BYTES + NCCL_BYTES * (setup.world_size > 1)
    return live_bytes * (1 + ALLOCATOR_SHARE) + around


def fits(spec: Spec, model: Model, budget: Budget) -> bool:
    """Whether the estimate fits."""
    case = _case(spec, model)
    setup = None if case is None else _simulated_setup(case, model)
    if case is None or setup is None or budget.device_bytes is None:
        return estimate(spec, model, budget).fits
    if not _could_fit(case, setup, model, budget):
        return False
    try:
        step_bytes = simulate(setup).allocated_peak_bytes + _beside_bytes(case)
    except UnknownStepError:
        return estimate(spec, model, budget).fits
    return _has_room(max(step_bytes, _outside(setup)), setup, budget)


def could_fit(spec: Spec, model: Model, budget: Budget) -> bool:
    """Whether nothing that is known without simulating a step speaks against it."""
    case = _case(spec, model)
    return case is None or _could_fit(case, _simulated_setup(case, model), model, budget)


def could_rest(spec: Spec, model: Model, budget: Budget) -> bool:
    """The same without the step: what is known against any micro-batch, recomputed or not."""
    case = _case(spec, model)
    return case is None or _could_rest(case, _simulated_setup(case, model), model, budget)


def _could_fit(case: Case, setup: Setup | None, model: Model, budget: Budget) -> bool:
    if not _could_rest(case, setup, model, budget):
        return False
    return setup is None or _has_room(at_least(setup) + _beside_bytes(case), setup, budget)


def _could_rest(case: Case, setup: Setup | None, model: Model, budget: Budget) -> bool:
    host = host_bytes(case, RANK_PROCESS_BYTES)
    if budget.host_bytes is not None and host > budget.host_bytes:
        return False
    if budget.disk_bytes is not None and disk_bytes(case, model) > budget.disk_bytes:
        return False
    return setup is None or _has_room(_outside(setup), setup, budget)


def _has_room(live_bytes: int, setup: Setup, budget: Budget) -> bool:
    """Whether a device holds these, and what lies around them."""
    device_bytes = budget.device_bytes
    return device_bytes is None or round(_with_around(live_bytes, setup)) <= device_bytes


def _outside(setup: Setup) -> int:
    """Bytes of the larger moment outside of a step, whatever its rows."""
    return max(loading(setup), saving(setup))


def least_bytes(spec: Spec, model: Model) -> int | None:
    """What a rank needs at least, without a step's activations; None where that is not known."""
    case = _case(spec, model)
    setup = None if case is None else _simulated_setup(case, model)
    if case is None or setup is None:
        return None
    live = max(at_least(setup) + _beside_bytes(case), _outside(setup))
    return round(_with_around(live, setup))


def _case(spec: Spec, model: Model) -> Case | None:
    shape = shape_of(model)
    if shape is None:
        return None
    return Case(spec=spec, shape=shape, weight_bytes=DTYPE_BYTES[spec.model.dtype])


def _around(case: Case, live: tuple[MemoryPart, ...]) -> tuple[MemoryPart, ...]:
    """What lies around the live tensors."""
    if case.cpu:
        return _around_on_cpu(live)
    slack = sum(part.bytes for part in live) * ALLOCATOR_SHARE + ALLOCATOR_BYTES
    share = f"{ALLOCATOR_SHARE:.0%} of the above + {_gib(ALLOCATOR_BYTES)}, freed and kept by torch"
    parts = [
        _part("allocator", slack, share),
        _part("context", CONTEXT_BYTES, f"CUDA context and kernels, {_gib(CONTEXT_BYTES)}"),
    ]
    if case.ranks > 1:
        parts.append(_part("communication", NCCL_BYTES, f"NCCL buffers, {_gib(NCCL_BYTES)}"))
    return tuple(parts)


def _around_on_cpu(live: tuple[MemoryPart, ...]) -> tuple[MemoryPart, ...]:
    slack = sum(p.bytes for p in live if p.name in SHORT_LIVED) * CPU_ALLOCATOR_SHARE
    held = f"{CPU_ALLOCATOR_SHARE} × activations and loss: freed, but not given back"
    libraries = f"Python with the training libraries, {_gib(RANK_PROCESS_BYTES)}"
    return (_part("allocator", slack, held), _part("process", RANK_PROCESS_BYTES, libraries))


def _left_out(
    case: Case, model: Model, found: Simulated | None, *, at_least: bool
) -> tuple[str, ...]:
    parts = list(LEFT_OUT_ALWAYS)
    if found is None:
        parts.append("evaluation and saving")
    if at_least:
        parts.append("what a step needs beyond this, which is too much already")
    if not case.cpu:
        parts.append("workspaces inside matrix kernels")
        parts.append("host pages of the CUDA libraries")
    if found is None and not case.cpu and not at_least:
        parts.append(f"a simulated step: {_why_closed(model)}, so closed formulas are used")
        parts.append("workspaces inside attention kernels")
    if found is None and model.architecture and ROUTED.search(model.architecture):
        parts.append("activations of routed experts")
    if case.spec.parallel.devices_per_rank > 1:
        parts.append("layers that differ: embedding and head are counted on every device")
    if found is not None and case.zero3 and not case.full:
        parts.append("what reentrant checkpointing does otherwise than the kind simulated")
    if found is None and case.spec.method.lora_dropout > 0 and not case.full:
        parts.append("dropout masks of the adapter")
    return tuple(parts)


def _why_closed(model: Model) -> str:
    if not model.architecture:
        return "the model's architecture is unknown"
    return (
        f"the layers, the adapter, the size or the optimizer of this {model.architecture} are "
        "none it knows"
    )


def _unknown_shape(spec: Spec, model: Model, budget: Budget) -> Memory:
    """Weights alone, when config.json does not give the dimensions."""
    size = DTYPE_BYTES[spec.model.dtype]
    count = model.parameters or 0
    weights = _part("weights", count * size, f"{count:,} × {size} B")
    return Memory(
        parts=(weights,),
        device_bytes=weights.bytes,
        device_budget_bytes=budget.device_bytes,
        host_bytes=spec.parallel.ranks * RANK_PROCESS_BYTES,
        host_budget_bytes=budget.host_bytes,
        left_out=("everything but the weights: the model's dimensions are unknown",),
    )


def _part(name: str, size: float, formula: str) -> MemoryPart:
    return MemoryPart(name=name, bytes=round(size), formula=formula)


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
