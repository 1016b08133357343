"""Over all ranks every row is seen once in each epoch, for numbers that do not divide evenly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.batches import ByLength
from engine.packing import best_fit
from tests.engine.conftest import Run
from tests.engine.together import train_together
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]
NOTING = """
from engine.recipes.sft import Trainer


class Noting(Trainer):
    def training_step(self, model, inputs, *others, **more):
        joined = inputs.get("position_ids")
        with open(f"{self.args.output_dir}/../seen-{self.args.process_index}", "a") as file:
            for number, ids in enumerate(inputs["input_ids"].tolist()):
                if joined is None:
                    starts = [0, int(inputs["attention_mask"][number].sum())]
                else:
                    places = joined[number].tolist()
                    starts = [at for at, place in enumerate(places) if place == 0] + [len(ids)]
                for start, end in zip(starts, starts[1:]):
                    file.write(f"{self.state.epoch:.3f} {ids[start:end]}\\n")
        return super().training_step(model, inputs, *others, **more)
"""


def test_every_row_is_seen_once_in_each_epoch_by_one_of_the_ranks(
    make_run: MakeRun, tmp_path: Path
) -> None:
    code, rows = tmp_path / "noting.py", tmp_path / "rows.jsonl"
    code.write_text(NOTING)
    make.data_file(rows, rows=17)
    common: dict[str, Any] = {
        "data": str(rows),
        "trainer": f"{code}:Noting",
        "max_steps": -1,
        "num_train_epochs": 2,
        "max_length": 256,
        "effective_batch_size": 4,
        "gradient_accumulation_steps": 1,
    }
    plain, grouped, packed = (
        make_run("lora", "ddp", 2, here=True, **common, **other)
        for other in ({}, {"group_by_length": True}, {"packing": True})
    )
    printed = train_together([run.folder for run in (plain, grouped, packed)], 2)

    assert [run.codes() for run in (plain, grouped, packed)] == [[0, 0]] * 3, printed
    for run in (plain, grouped):
        seen = counted(run)
        assert len(seen) == 17
        # 17 rows on 2 ranks × 2 make 5 batches of 4: the last has 3 from its epoch's start.
        assert sum(seen.values()) == 2 * 20
        assert sorted(seen.values())[:11] == [2] * 11
        assert any("17 rows do not divide evenly" in e["text"] for e in run.events("warn"))
    packs = packed.read("prepared/report.json")["examples"]
    assert packs % 4
    seen = counted(packed)
    assert len(seen) == 17
    assert min(seen.values()) == 2
    assert wasted(grouped) < wasted(plain)


def counted(run: Run) -> Counter[str]:
    lines = [line for rank in (0, 1) for line in (run.folder / f"seen-{rank}").open()]
    return Counter(line.split(" ", 1)[1] for line in lines)


def wasted(run: Run) -> float:
    """Share of the tokens that went through the model as padding."""
    steps = [step for rank in (0, 1) for step in run.events("step", rank)]
    return 1 - sum(s["tokens"] for s in steps) / sum(s["padded_tokens"] for s in steps)


def test_groups_of_like_length_hold_every_row_and_differ_between_epochs() -> None:
    sampler = ByLength([n % 13 + 1 for n in range(101)], 8, seed=3)
    first = list(sampler)
    assert list(sampler) == first  # a resumed run has the same order
    sampler.set_epoch(1)
    second = list(sampler)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(101))


def test_packs_of_a_large_file_are_made_in_parts_and_lose_no_token() -> None:
    import pyarrow as pa

    from engine import packing

    rows = [[n] * (1 + n % 7) for n in range(2500)]
    column = pa.array(rows, pa.list_(pa.int32()))
    table = pa.table({"input_ids": column, "labels": column})
    made = list(packing.packed(iter(_tables(table)), 16))
    packs = [pack for part in made for pack in part.column("input_ids").to_pylist()]
    found = [token for pack in packs for token in pack]
    assert sorted(found) == sorted(token for row in rows for token in row)
    for part in made:
        for ids, labels, sizes in zip(
            *(part.column(name).to_pylist() for name in ("input_ids", "labels", "seq_lengths")),
            strict=True,
        ):
            assert ids == labels
            assert sum(sizes) == len(ids) <= 16
            assert [len(set(ids[a : a + n])) for a, n in _places(sizes)] == [1] * len(sizes)


def _tables(table: Any) -> list[Any]:
    return [table.slice(start, 100) for start in range(0, len(table), 100)]


def _places(sizes: list[int]) -> list[tuple[int, int]]:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return list(zip(starts, sizes, strict=True))


def test_a_row_as_long_as_a_pack_has_one_alone() -> None:
    assert best_fit([5, 5, 5], 5) == [[0], [1], [2]]
    assert best_fit([], 5) == []
