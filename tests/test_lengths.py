"""Lengths of rows: few numbers for all of them, and how long those are that meet in a batch."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean

import pytest

from tests.planning import facts, fixed
from wizard.planner import plans
from wizard.planner.timing import usual_length
from wizard.probe.lengths import Lengths


def lengths(seed: int = 3) -> list[int]:
    draw = random.Random(seed)
    return [max(1, round(draw.lognormvariate(6, 0.8))) for _ in range(4000)]


def test_every_row_is_counted_and_near_its_length() -> None:
    found, rows = Lengths(), lengths()
    for chars in rows:
        found.add(chars)
    counts = found.counts()
    assert sum(count for _, count in counts) == len(rows)
    assert len(counts) < 80
    assert counts[-1][0] >= 0.91 * max(rows)
    assert mean(rows) == pytest.approx(
        sum(chars * count for chars, count in counts) / len(rows), rel=0.06
    )


@pytest.mark.parametrize("micro", [1, 4, 16])
def test_rows_together_are_as_long_as_draws_of_so_many_have_at_most(micro: int) -> None:
    rows, found, draw = lengths(), Lengths(), random.Random(1)
    for chars in rows:
        found.add(chars)
    base = facts("h100x8").dataset
    assert base is not None
    data = replace(
        base,
        rows=len(rows),
        total_chars=sum(rows),
        longest_row_chars=max(rows),
        longest_row_tokens=max(rows),
        length_counts=found.counts(),
    )
    spec = plans(facts("h100x8"), fixed(method="lora", strategy="single"))[0].spec
    spec = spec.model_copy(
        update={
            "data": spec.data.model_copy(update={"max_length": 100_000}),
            "training": spec.training.model_copy(update={"per_device_train_batch_size": micro}),
        }
    )
    drawn = mean(max(draw.choices(rows, k=micro)) for _ in range(4000))
    assert usual_length(spec, data) == pytest.approx(drawn, rel=0.06)
