"""Spec + model → bytes a run takes of the host's memory and of its disk.

Sources: deepspeed/runtime/zero/stage_1_and_2.py and stage3.py (buffers of an offloaded optimizer);
torch's CachingHostAllocator (pinned memory comes in powers of two); transformers' modeling_utils
and accelerate's fsdp_utils (who loads what).
"""

from __future__ import annotations

from wizard.facts import Model
from wizard.planner.closed_forms import FEWER_STATES, NF4_BYTES, Case

MIB = 1024**2
RANK_PROCESS_BYTES = 960 * MIB
"""A rank's process with the training libraries loaded, measured without the weights."""
SUB_GROUP_ELEMENTS = 10**9
"""ZeRO-3 keeps the optimizer's states in parts of this many elements."""
MASTER, MOMENTS = 4, 8
"""Bytes of a float32 copy of a parameter, and of Adam's two moments."""
AIO_BYTES = 5 * 10**8 * 4
"""Pinned buffers of a rank whose parameters wait on a disk: five of 1e8 elements."""


def host_bytes(case: Case, process_bytes: int) -> int:
    """Host memory of all ranks: their processes, and the larger of loading and of what follows."""
    later = _offloaded(case) + _saving(case)
    return case.ranks * process_bytes + max(_loading(case), later)


def _loading(case: Case) -> int:
    """What waits in host memory while the model is loaded; files that are mapped do not count.

    Under FSDP the first rank has the whole model, in float32 where its weights are trained.
    """
    if not case.fsdp or case.qlora or case.cpu:
        return 0
    return case.shape.parameters * (MASTER if case.full else case.weight_bytes)


def _saving(case: Case) -> int:
    """What rank 0 gathers to write: all that is trained, under FSDP in float32."""
    if case.cpu or not (case.zero3 or case.fsdp):
        return 0
    return case.trainable * (MASTER if case.fsdp else case.weight_bytes)


def _offloaded(case: Case) -> int:
    """Host bytes of what is moved off the devices, over all ranks."""
    parallel = case.spec.parallel
    if parallel.offload == "none":
        return 0
    if parallel.offload_device == "nvme":
        return case.ranks * AIO_BYTES
    own = -(-case.trainable // case.ranks)
    frozen = 0 if case.full else -(-_frozen_bytes(case) // case.ranks)
    if case.fsdp:
        # Shards and their gradients are float32; only the shards are pinned.
        return case.ranks * (_pinned(case, own * MASTER + frozen) + own * (MASTER + MOMENTS))
    whole, rest = divmod(own, SUB_GROUP_ELEMENTS) if case.zero3 else (0, own)
    each = whole * _states(case, SUB_GROUP_ELEMENTS) + _states(case, rest)
    if parallel.offload == "parameters":
        each += _pinned(case, own * 2 if case.full else frozen + own * 2)
    return case.ranks * each


def _frozen_bytes(case: Case) -> int:
    """Of the weights that are not trained; those of QLoRA's layers are 4-bit."""
    if not case.qlora:
        return case.shape.parameters * case.weight_bytes
    return round(case.shape.linear * NF4_BYTES) + case.shape.unquantised * case.weight_bytes


def _states(case: Case, elements: int) -> int:
    """Float32 copy and gradients and a 16-bit buffer, each pinned; moments, which are not."""
    pinned = (elements * MASTER, elements * MASTER, elements * 2)
    return sum(_pinned(case, size) for size in pinned) + elements * MOMENTS


def _pinned(case: Case, size: int) -> int:
    """Bytes of a pinned buffer: the next power of two; CPU ranks pin nothing."""
    return size if case.cpu or size <= 0 else 1 << (size - 1).bit_length()


def disk_bytes(case: Case, model: Model) -> int:
    """What a run writes: checkpoints, one of them while an old one is still there, and the result.

    Beside them the model's files, where they have to be fetched, and what waits on a disk.
    """
    trained = case.trainable * (2 if case.full and case.weight_bytes == 2 else MASTER)
    keeps = case.spec.training.save_total_limit + 1
    fetched = 0 if model.path else case.shape.parameters * 2
    waiting = 0
    if case.spec.parallel.offload_device == "nvme":
        waiting = case.trainable * (MASTER + MOMENTS) + case.shape.parameters * case.weight_bytes
    return keeps * (trained + _saved_states(case)) + trained + fetched + waiting


def _saved_states(case: Case) -> int:
    """Bytes of the optimizer's states in a checkpoint."""
    if case.deepspeed:
        return case.trainable * (MASTER + MOMENTS)
    if case.spec.training.optim in FEWER_STATES:
        return round(case.trainable * FEWER_STATES[case.spec.training.optim][0])
    if case.spec.training.optim in ("adamw_bnb_8bit", "paged_adamw_8bit"):
        return case.trainable * 2
    return case.trainable * 2 * case.trainable_bytes
