"""A slow rank is named under every strategy, though all ranks' steps take equally long; by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine.events import EXIT_OK
from tests.runner.following import ended
from wizard.dashboard.health_ranks import slowness, stragglers
from wizard.runner.launch import start

pytestmark = pytest.mark.slow
SLOW_RANK_1 = """
if rank == 1:
    time.sleep(0.06)
"""


@pytest.mark.parametrize("strategy", ["ddp", "zero2", "zero3", "fsdp"])
def test_the_rank_whose_own_work_takes_longer_is_the_straggler(
    strategy: str, make: Callable[..., Path], sabotage: Callable[[str], None]
) -> None:
    sabotage(SLOW_RANK_1)
    folder = make(100)
    spec = folder / "spec.toml"
    spec.write_text(spec.read_text().replace('strategy = "ddp"', f'strategy = "{strategy}"'))
    start(folder)
    state = ended(folder)
    assert state.exit_code == EXIT_OK
    (finding,) = stragglers(state)
    assert finding.ranks == (1,)
    assert slowness(state)[1] > 1.5
