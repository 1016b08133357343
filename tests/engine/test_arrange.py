"""Rows are held out without a leak, and text is packed without a loss."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.advice import advice
from engine.arrange import HELD_OUT, TRAINED_ON, blocks, read
from engine.examples import TextMaker
from engine.failure import RunError
from engine.prepare import prepare, told
from engine.record import write_json
from engine.rows.values import Document
from engine.spec import Spec
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder whose model is only a tokenizer, which is all that preparing reads."""
    make.tokenizer().save_pretrained(tmp_path / "model")
    write_json(
        tmp_path / "fetched.json",
        {"path": str(tmp_path / "model"), "revision": None, "source": "local"},
    )
    return tmp_path


def written(run: Path, name: str, rows: list[Any]) -> str:
    (run / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(run / name)


def spec(run: Path, stage: str, rows: list[Any], seed: int = 42, **data: object) -> Spec:
    return Spec.model_validate(
        {
            "model": {"model": str(run / "model")},
            "data": {"data": written(run, "rows.jsonl", rows), "max_length": 64, **data},
            "method": {"method": "lora", "stage": stage},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 2, "per_device_train_batch_size": 2, "seed": seed},
        }
    )


def column(run: Path, file: str, name: str) -> list[Any]:
    found: list[Any] = read(run / "prepared" / file).column(name).to_pylist()
    return found


PAIRS = [{"prompt": f"q{n // 4}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(40)]


def test_no_prompt_is_both_learnt_and_evaluated_on(run: Path) -> None:
    report = prepare(spec(run, "dpo", PAIRS, eval_split=0.2), run)

    trained, held = (column(run, file, "prompt_ids") for file in (TRAINED_ON, HELD_OUT))
    assert (len(trained), len(held)) == (32, 8) == (report["examples"], report["eval_examples"])
    assert {tuple(ids) for ids in trained}.isdisjoint({tuple(ids) for ids in held})
    assert told(report)[0].endswith("; 32 rows to train on, 8 to evaluate on")


def test_the_same_seed_holds_out_the_same_rows_and_another_seed_others(run: Path) -> None:
    held = []
    for seed in (1, 1, 2, 3, 4):
        prepare(spec(run, "dpo", PAIRS, seed=seed, eval_split=0.2), run)
        held.append(column(run, HELD_OUT, "chosen_ids"))

    assert held[0] == held[1]
    assert any(held[0] != other for other in held[2:])


def test_equal_rows_of_answers_stay_on_one_side(run: Path) -> None:
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"{n % 5}"},
                {"role": "assistant", "content": "a"},
            ]
        }
        for n in range(20)
    ]
    prepare(spec(run, "sft", rows, eval_split=0.3), run)

    trained, held = (column(run, file, "input_ids") for file in (TRAINED_ON, HELD_OUT))
    assert len(held) == 4
    assert len(trained) == 16
    assert {tuple(ids) for ids in trained}.isdisjoint({tuple(ids) for ids in held})


def test_rows_of_one_prompt_cannot_be_held_out(run: Path) -> None:
    with pytest.raises(RunError, match="all 4 rows have the same prompt"):
        prepare(spec(run, "dpo", PAIRS[:4], eval_split=0.5), run)


def test_a_second_file_is_evaluated_on_and_what_is_learnt_too_is_said(run: Path) -> None:
    second = written(
        run, "second.jsonl", [PAIRS[0], {"prompt": "new", "chosen": "a", "rejected": "b"}]
    )
    made = spec(run, "dpo", PAIRS[:8], eval_data=second)
    report = prepare(made, run)

    assert (report["examples"], report["eval_examples"]) == (8, 2)
    assert report["eval"]["kept"] == 2
    (said,) = advice(report, made)
    assert said.startswith("1 of the 2 rows of eval_data is in the training data too")


def test_a_bad_row_of_the_second_file_is_named_with_its_file(run: Path) -> None:
    second = written(run, "second.jsonl", [{"prompt": "p"}])
    with pytest.raises(RunError, match=r"second.jsonl: 1 of 1 rows .* line 1: not in the format"):
        prepare(spec(run, "dpo", PAIRS[:8], eval_data=second), run)
    with pytest.raises(RunError, match="nowhere: no such data file"):
        prepare(spec(run, "dpo", PAIRS[:8], eval_data=str(run / "nowhere")), run)


def test_labelled_rows_are_shuffled_by_the_seed_for_they_are_read_in_order(run: Path) -> None:
    rows = [{"prompt": f"q{n}", "completion": "a", "label": n < 10} for n in range(20)]
    prepare(spec(run, "kto", rows), run)

    labels = column(run, TRAINED_ON, "label")
    assert sorted(labels) == [False] * 10 + [True] * 10
    assert labels != sorted(labels, reverse=True)


@pytest.mark.parametrize(
    ("good", "weights", "said"),
    [
        (10, {}, ""),
        (11, {}, ""),
        (5, {}, "5 good and 15 bad answers: .* set desirable_weight=3"),
        (16, {}, "16 good and 4 bad answers: .* set undesirable_weight=4"),
        (5, {"desirable_weight": 3.0}, ""),
        (20, {}, "all answers are labelled good"),
    ],
)
def test_unbalanced_labels_are_said_with_the_weight_that_balances_them(
    run: Path, good: int, weights: dict[str, float], said: str
) -> None:
    rows = [{"prompt": f"q{n}", "completion": "a", "label": n < good} for n in range(20)]
    made = spec(run, "kto", rows)
    method = made.method.model_copy(update=weights)
    made = made.model_copy(update={"method": method})
    found = advice(prepare(made, run), made)

    assert len(found) == bool(said)
    assert not said or re.match(said, found[0])


def test_a_reward_row_has_its_prompt_in_both_answers(run: Path) -> None:
    prepare(spec(run, "reward", PAIRS[:2]), run)

    (row, _) = read(run / "prepared" / TRAINED_ON).to_pylist()
    for name in ("chosen_ids", "rejected_ids"):
        assert row[name][: len(row["prompt_ids"])] == row["prompt_ids"]
        assert len(row[name]) > len(row["prompt_ids"])


def test_text_is_packed_and_every_token_of_it_is_there(run: Path) -> None:
    texts = [f"document {n} says <|im_end|> " * (n % 4 + 1) for n in range(11)]
    report = prepare(spec(run, "pretrain", [{"text": text} for text in texts]), run)

    packed = column(run, TRAINED_ON, "input_ids")
    made = TextMaker(make.tokenizer())
    whole = [token for text in texts for token in made.tokens(Document(text=text)).input_ids]
    assert [token for block in packed for token in block] == whole
    assert {len(block) for block in packed[:-1]} == {64}
    assert report["total_tokens"] == len(whole)
    assert report["trained_tokens"] == len(whole) - len(packed)
    assert report["kept"] == 11
    assert told(report)[0].endswith(f"; {len(packed)} blocks to train on")
    assert whole.count(made.end) == 11  # none of those that the texts spell out


def test_held_out_documents_are_packed_apart(run: Path) -> None:
    rows = [{"text": f"document {n} " * 9} for n in range(20)]
    report = prepare(spec(run, "pretrain", rows, eval_split=0.25), run)

    tokens = sum(map(len, column(run, TRAINED_ON, "input_ids")))
    held = sum(map(len, column(run, HELD_OUT, "input_ids")))
    assert tokens + held == report["total_tokens"]
    assert 0.2 < held / (tokens + held) < 0.3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": ""}, "`text` is empty"),
        ({"text": " \n"}, "`text` is empty"),
        ({"text": 5}, "`text` is not text"),
        ({"body": "x"}, "not in the format `text`"),
        ({"text": "\ud800"}, "not valid Unicode"),
        (None, "not a JSON object"),
    ],
)
def test_a_document_that_cannot_be_used_says_why(run: Path, row: Any, reason: str) -> None:
    with pytest.raises(RunError, match=reason):
        prepare(spec(run, "pretrain", [row]), run)


@pytest.mark.parametrize(
    ("stage", "row", "said"),
    [
        ("sft", PAIRS[0], "in the format `preference`: set stage=dpo or reward"),
        ("sft", {"text": "t"}, "in the format `text`: set stage=pretrain"),
        ("dpo", {"text": "t"}, "not in the format `preference` of this data set"),
    ],
)
def test_rows_of_another_stage_are_refused(
    run: Path, stage: str, row: dict[str, Any], said: str
) -> None:
    with pytest.raises(RunError, match=said):
        prepare(spec(run, stage, [row]), run)


def test_another_run_takes_both_sides_over(run: Path) -> None:
    made = spec(run, "dpo", PAIRS, eval_split=0.2)
    first, second = run / "a", run / "b"
    for folder in (first, second):
        folder.mkdir(mode=0o700)
        shutil.copy(run / "fetched.json", folder)
    report = prepare(made, first)

    assert prepare(made, second) == report
    for name in (TRAINED_ON, HELD_OUT):
        assert (second / "prepared" / name).stat().st_ino == (
            (first / "prepared" / name).stat().st_ino
        )


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=30), max_size=12),
    st.integers(2, 17),
)
def test_blocks_hold_every_token_in_order_but_a_single_last_one(
    documents: list[list[int]], length: int
) -> None:
    stream = [token for document in documents for token in document]
    packed = list(blocks(iter(documents), length))

    lost = 1 if len(stream) % length == 1 else 0
    assert [token for block in packed for token in block] == stream[: len(stream) - lost]
    assert all(len(block) == length for block in packed[:-1])
    assert all(len(block) > 1 for block in packed)
