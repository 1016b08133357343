"""The ladder on a real run: less memory, the same batches in the same order."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.events import EXIT_OK
from engine.ladder import exact_rungs, optimizer_form
from engine.spec import Spec
from tests.runner.conftest import changed
from tests.runner.following import ended
from tests.runner.making import spec
from wizard.runner.follow import Follower
from wizard.runner.launch import start

# Writes which rows every rank learnt in which step, and lets rank 1 run out of memory.
WITNESS = """
if rank == 1 and step == {0: 5, 1: 6}.get(rung):
    raise torch.OutOfMemoryError("CUDA out of memory, as the test wants it")
rows = [ids[mask.bool()].tolist()
        for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"])]
with open(f"witness-{rank}.jsonl", "a") as file:
    file.write(json.dumps([attempt, step, rows]) + chr(10))
"""

Rows = Counter[tuple[int, ...]]


def test_rungs_that_keep_the_optimizer_are_counted_up_to_the_first_that_does_not() -> None:
    main = spec()
    smaller = changed(main, {"per_device_train_batch_size": 1, "gradient_checkpointing": True})
    fused = changed(main, {"optim": "adamw_torch_fused"})
    other = changed(main, {"optim": "adamw_bnb_8bit"})
    assert exact_rungs(main, ()) == 0
    assert exact_rungs(main, (smaller, fused, other, smaller)) == 2


def test_an_optimizer_on_a_disk_never_goes_on_with_a_saved_state() -> None:
    def zero3(**place: Any) -> Spec:
        parallel = {"strategy": "zero3", "num_devices": 2, "offload": "parameters", **place}
        return spec().model_copy(update={"parallel": spec().parallel.model_copy(update=parallel)})

    memory, disk = zero3(), zero3(offload_device="nvme", nvme_path="/n")
    assert exact_rungs(memory, (memory,)) == 1
    assert exact_rungs(disk, (disk,)) == 0
    assert exact_rungs(memory, (disk,)) == 0


def test_a_sharded_optimizer_belongs_to_its_number_of_ranks_and_a_whole_one_does_not() -> None:
    zero = {"strategy": "zero3", "num_devices": 2}
    four = {"num_devices": 4, "strategy": "zero3"}
    batch = {"effective_batch_size": 8, "gradient_accumulation_steps": 2}
    assert optimizer_form(spec(parallel=zero)) != optimizer_form(
        spec(parallel=zero | four, training=batch)
    )
    one = {"strategy": "single", "num_devices": 1}
    alone = spec(parallel=one, training={"gradient_accumulation_steps": 4})
    assert optimizer_form(alone) == optimizer_form(spec())


def learnt(folder: Path) -> dict[int, dict[int, Rows]]:
    """Attempt → step → the rows all ranks learnt in it."""
    found: dict[int, dict[int, Rows]] = defaultdict(lambda: defaultdict(Counter))
    for file in folder.glob("witness-*.jsonl"):
        for line in file.read_text().splitlines():
            attempt, step, rows = json.loads(line)
            found[attempt][step].update(tuple(row) for row in rows)
    return found


@pytest.mark.engine
def test_a_device_that_is_full_climbs_the_ladder_and_no_sample_is_repeated_or_skipped(
    make: Callable[..., Path], sabotage: Callable[[str], None]
) -> None:
    sabotage(WITNESS)
    # 16 rows are two steps of eight: checkpoint-3 lies in the middle of the second epoch.
    folder = make(
        8,
        save_steps=3,
        effective_batch_size=8,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        rungs=(
            {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4},
            {
                "per_device_train_batch_size": 1,
                "gradient_accumulation_steps": 4,
                "optim": "adamw_bnb_8bit",
            },
        ),
    )
    start(folder)
    state = ended(folder)
    assert (state.exit_code, state.rung, state.step) == (EXIT_OK, 2, 8), state.failure
    rows = learnt(folder)
    for step in (4, 5):  # made three times, in two ways to split the batch
        whole = [rows[attempt][step] for attempt in (1, 2) if step in rows[attempt]]
        assert len(whole) == 2
        assert whole[0] == whole[1]
    assert rows[0][4] == rows[1][4]
    made = {**rows[0], **rows[1], **rows[2]}
    assert [sum(made[step].values()) for step in range(1, 9)] == [8] * 8
    for epoch in range(4):
        seen = made[2 * epoch + 1] + made[2 * epoch + 2]
        assert len(seen) == 16
        assert set(seen.values()) == {1}
    losses = dict(Follower(folder).poll().losses)
    assert sorted(losses) == list(range(1, 9))
    texts = [note.text for note in state.warnings]
    assert sum("out of memory" in text for text in texts) == 2
    (anew,) = [text for text in texts if "starts anew" in text]
    assert re.match(r"checkpoint-3 was made with adamw_torch, replicated", anew)
    rates: dict[tuple[int, int], float] = {}
    for line in (folder / "events" / "rank-00000.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "train":
            rates[event["attempt"], event["step"]] = event["learning_rate"]
    for step in (4, 5):  # the schedule of the exact rung, times what rises in twenty steps
        assert rates[2, step] / rates[1, step] == pytest.approx((step - 3) / 20)
