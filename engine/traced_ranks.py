"""FSDP's ranks for a trace: rank 0 of a group whose other ranks are only said to be there.

What a rank holds follows from torch's own `fully_shard`, on the units that accelerate makes
(accelerate/utils/fsdp_utils.py, `fsdp2_prepare_model`): each layer, the embedding, and the final
norm with the head, whose weights stay gathered from forward to backward.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.spec import Spec


@contextlib.contextmanager
def ranks_of(spec: Spec) -> Iterator[Any]:
    """Inside, torch.distributed has a group of the spec's ranks whose messages go nowhere.

    Its mesh is made before tensors are fakes: torch reads its ranks from one.
    """
    if spec.parallel.strategy != "fsdp":
        yield None
        return
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=spec.parallel.ranks, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (spec.parallel.ranks,))
    finally:
        dist.destroy_process_group()


def share_out(spec: Spec, model: Any, mesh: Any) -> None:
    """Have a rank hold its share of the model's weights alone; trained ones in float32."""
    import torch
    from accelerate.utils.fsdp_utils import _find_final_norm
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy()
    if spec.model.dtype != "float32":
        policy = MixedPrecisionPolicy(
            param_dtype=getattr(torch, spec.model.dtype), reduce_dtype=torch.float32
        )
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    options: Any = {"mesh": mesh, "mp_policy": policy}
    base = model.get_base_model() if spec.method.method != "full" else model
    for layer in [m for m in model.modules() if type(m).__name__ in base._no_split_modules]:
        fully_shard(layer, reshard_after_forward=True, **options)
    embedding, head = base.get_input_embeddings(), base.get_output_embeddings()
    # Under an adapter accelerate finds no final norm, which then is in the root's unit.
    tail = [module for module in (_find_final_norm(model), head) if module is not None]
    if embedding.weight is head.weight:
        tail.insert(len(tail) - 1, embedding)
    else:
        fully_shard(embedding, reshard_after_forward=True, **options)
    fully_shard(tail, reshard_after_forward=False, **options)
    fully_shard(model, **options)


def local(tensor: Any) -> Any:
    """What of a tensor this rank holds."""
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
