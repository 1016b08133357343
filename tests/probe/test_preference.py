"""The probe knows rows of text, of pairs and of labels, and measures their longest sequence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wizard.probe.dataset import read_dataset
from wizard.problem import ProblemError

USER = {"role": "user", "content": "What?"}
LONG = {"role": "assistant", "content": "That, certainly."}
SHORT = {"role": "assistant", "content": "No."}


def written(folder: Path, *rows: Any) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("row", "shape", "chars"),
    [
        ({"text": "plain text"}, "text", 10),
        ({"prompt": "What?", "chosen": "That, certainly.", "rejected": "No."}, "preference", 21),
        ({"chosen": [USER, SHORT], "rejected": [USER, LONG]}, "preference", 21),
        ({"messages": [USER], "chosen": LONG, "rejected": SHORT}, "preference", 21),
        ({"messages": [USER, SHORT], "rejected_response": "That, certainly."}, "preference", 21),
        ({"instruction": "What?", "chosen": "No.", "rejected": "Yes."}, "preference", 9),
        ({"prompt": "What?", "completion": "No.", "label": False}, "kto", 8),
        ({"messages": [USER, SHORT], "label": True}, "kto", 8),
        ({"instruction": "What?", "output": "No.", "kto_tag": 1}, "kto", 8),
        ({"messages": [USER, SHORT], "label": "news"}, "messages", 8),
        ({"instruction": "What?", "output": "No.", "text": "all of it"}, "alpaca", 8),
    ],
)
def test_a_row_is_known_by_its_keys(
    tmp_path: Path, row: dict[str, Any], shape: str, chars: int
) -> None:
    found = read_dataset(written(tmp_path, row))

    assert found.format == shape
    assert found.longest_row_chars == chars


def test_rows_of_another_shape_are_named_with_their_line(tmp_path: Path) -> None:
    pair = {"prompt": "p", "chosen": "a", "rejected": "b"}
    found = read_dataset(
        written(
            tmp_path, pair, {"text": "t"}, {**pair, "chosen": ""}, {**pair, "chosen": 5}, [pair]
        )
    )

    said = [str(problem) for problem in found.problems]
    assert (found.rows, found.dropped_rows) == (1, 4)
    assert "not in the format `preference` of this data set: its keys are text" in said[0]
    assert "`chosen` is empty" in said[1]
    assert "`chosen` is neither text nor turns" in said[2]
    assert "not a JSON object" in said[3]


def test_text_that_is_empty_is_no_row(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="`text` is empty"):
        read_dataset(written(tmp_path, {"text": " "}))
