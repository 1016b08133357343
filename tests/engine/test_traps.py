"""Library defaults that would change memory or speed by a factor, each of which the engine states.

Others are held where they belong: FSDP's gradients in test_shard.py, an adapter's inputs in
test_adapter.py; what experts, ZeRO-3 and pinned memory take, in the planner's tests.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.fetch import read_spec
from tests.engine.conftest import Run

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_base_is_loaded_in_the_number_format_of_the_spec(
    dtype: str, make_run: MakeRun, tiny_model: Path
) -> None:
    """A trainer that is given a name loads float32, whatever the model's files hold."""
    from engine.model import load_base

    run = make_run("full", "single", 1, dtype=dtype, here=True)
    model = load_base(read_spec(run.folder / "spec.toml"), tiny_model, 0)
    assert {str(p.dtype) for p in model.parameters()} == {f"torch.{dtype}"}


def test_gradients_live_in_the_buckets_of_ddp() -> None:
    from accelerate.utils import DistributedDataParallelKwargs

    from engine.shard import share_gradients

    handler = DistributedDataParallelKwargs()
    assert not handler.gradient_as_bucket_view  # there would be two copies of all gradients
    share_gradients(SimpleNamespace(accelerator=SimpleNamespace(ddp_handler=handler)))
    assert handler.to_kwargs()["gradient_as_bucket_view"]
