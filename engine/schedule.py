"""Schedule: how many optimizer steps a run has, and what its last batch lacks."""

from __future__ import annotations

import math
from typing import Any

from engine.spec import Spec


def steps_per_epoch(spec: Spec, rows: int) -> int:
    """Optimizer steps in which every row is seen once."""
    training = spec.training
    rows_at_once = training.per_device_train_batch_size * spec.parallel.ranks
    batches = math.ceil(rows / rows_at_once)
    return max(1, math.ceil(batches / training.gradient_accumulation_steps))


def total_steps(spec: Spec, rows: int) -> int:
    """Optimizer steps of the whole run."""
    training = spec.training
    if training.max_steps > 0:
        return training.max_steps
    return math.ceil(training.num_train_epochs * steps_per_epoch(spec, rows))


def uneven_epoch(spec: Spec, rows: int) -> str | None:
    """What to say of an epoch's last batch when it has no row for some of the ranks.

    Ranks must make as many batches each, or those with more would wait for ever in a collective;
    leaving the last rows out would lose them. So rows from the epoch's start fill it up.
    """
    ranks, at_once = spec.parallel.ranks, spec.training.per_device_train_batch_size
    repeated = -rows % (ranks * at_once)
    if ranks == 1 or not repeated or total_steps(spec, rows) < steps_per_epoch(spec, rows):
        return None
    effective = spec.training.effective_batch_size
    read = f"{rows} packs" if spec.data.packing else f"{rows} rows"
    last = (rows + repeated) % effective or effective
    least = f" and holds {last}, where the other steps hold {effective}" if last < effective else ""
    return (
        f"{read} do not divide evenly among {ranks} ranks × {at_once}: the last step of each "
        f"epoch is filled up with {repeated} of them from its start, learnt twice{least}"
    )


def end_at_last_step(trainer: Any) -> None:
    """Leave a trainer nothing to do that goes on from a checkpoint of the last step.

    The library looks at the number of steps only after one more of them.
    """
    run_epoch = trainer._run_epoch

    def run(*args: Any, **kwargs: Any) -> None:
        if trainer.state.global_step >= trainer.state.max_steps:
            trainer.control.should_training_stop = True
            return
        run_epoch(*args, **kwargs)

    trainer._run_epoch = run
