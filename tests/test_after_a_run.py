"""What can be had of a run without a screen: sentences, JSON, a table, a page."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engine.events import encode
from tests.health_streams import BEGAN, PLAN, STEPS, event, run_with
from wizard.cli import main
from wizard.dashboard.state import fold
from wizard.dashboard.view import Replay, view_of
from wizard.dashboard.words import as_json, sentence
from wizard.language import said
from wizard.report import page
from wizard.report.plots import plot

RECORDED = Path(__file__).parent / "fakes" / "runs" / "restarted"
HOSTILE = "</title><script>alert(1)</script><img src=x onerror=y>\x1b[31m & \" ' \u202e"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(RECORDED, tmp_path / "run")
    (tmp_path / "run" / "run.sh").touch()
    return tmp_path / "run"


def no_constant(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def test_a_stream_of_json_ends_with_the_run_and_each_line_is_whole(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (run / "plan.json").write_text('{"memory": {"device_bytes": 7}}')

    code = main(["watch", str(run), "--json"])

    (line,) = capfd.readouterr().out.splitlines()
    told = json.loads(line, parse_constant=no_constant)
    assert code == 0
    assert (told["schema"], told["exit_code"], told["step"]) == (1, 0, 30)
    assert told["predicted"]["memory_bytes"] == 7
    assert [finding["kind"] for finding in told["health"]] == ["prediction_off"]
    assert told["ranks"]["1"]["utilization_percent"] is None


def test_a_loss_that_is_no_number_is_valid_json() -> None:
    state = fold(run_with(), event("train", 99, 0, 99, loss="nan"))
    told = json.dumps(as_json(view_of(state, PLAN, (), BEGAN + 99)), allow_nan=False)
    assert json.loads(told)["loss"] == "nan"


def test_a_run_says_where_it_is_in_one_sentence() -> None:
    now = BEGAN + STEPS + 2
    assert sentence(view_of(run_with(), PLAN, (), now)) == (
        "Step 60 of 5000, loss 1.2276, 4,000 tok/s, 1h22 left, 4 ranks ok."
    )
    silent = replace(run_with(), stale=(2,))
    assert sentence(view_of(silent, PLAN, (), now)).endswith("left, nothing new from rank 2.")
    ended = replace(run_with(), exit_code=75)
    assert said(sentence(view_of(ended, PLAN, (), now))) == (
        "run ended with 75: stopped on request; it can be resumed."
    )


@pytest.mark.parametrize("every", ["0", "-1", "nan", "soon", "inf"])
def test_a_time_that_is_none_is_refused(
    run: Path, every: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["watch", str(run), f"--every={every}"])
    assert refused.value.code == 2
    assert "is no number of seconds" in capsys.readouterr().err


def test_the_table_has_a_row_for_each_measurement_and_nothing_for_what_is_unknown(
    run: Path,
) -> None:
    with (run / "events" / "rank-00000.jsonl").open("a") as stream:
        stream.write(encode("eval", t=BEGAN, rank=0, step=3, metrics={"eval_loss": 2.5}))
        stream.write(encode("train", t=BEGAN, rank=0, step=4, loss=float("nan")))

    assert main(["metrics", str(run), "-o", "m.csv"]) == 0

    rows = list(csv.DictReader(Path("m.csv").read_text().splitlines()))
    written = "".join(path.read_text() for path in (run / "events").iterdir())
    kinds = [row["kind"] for row in rows]
    for kind in ("step", "train", "eval", "pulse"):
        assert kinds.count(kind) == written.count(f'"kind":"{kind}"')
    assert {row["temperature_c"] for row in rows} == {""}
    assert [row["eval_loss"] for row in rows if row["kind"] == "eval"] == ["2.5"]
    assert rows[-1]["loss"] == "nan"
    assert [row["t"] for row in rows] == sorted(row["t"] for row in rows)


@pytest.mark.slow
def test_parquet_holds_what_csv_holds(run: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    main(["metrics", str(run), "-o", "m.csv"])
    main(["metrics", str(run), "-o", "m.parquet"])
    table = parquet.read_table("m.parquet").to_pylist()
    rows = list(csv.DictReader(Path("m.csv").read_text().splitlines()))
    assert len(table) == len(rows)
    for one, other in zip(table, rows, strict=True):
        assert other == {k: "" if v is None else other[k] for k, v in one.items()}
        assert all(float(other[k]) == v for k, v in one.items() if isinstance(v, int | float))


def test_without_pyarrow_parquet_is_refused_and_nothing_is_left_behind(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["metrics", str(run), "-o", "m.parquet"]) == 2
    assert "pip install pyarrow, or name a .csv file" in capsys.readouterr().err
    assert [path.name for path in Path.cwd().iterdir()] == ["run"]


def test_a_file_that_exists_is_kept_unless_told_otherwise(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("m.csv").write_text("mine")
    assert main(["metrics", str(run), "-o", "m.csv"]) == 2
    assert "--force" in capsys.readouterr().err
    assert Path("m.csv").read_text() == "mine"
    assert main(["metrics", str(run), "-o", "m.csv", "--force"]) == 0
    assert Path("m.csv").read_text().startswith("t,kind,rank")
    assert main(["metrics", str(run), "-o", "m.xlsx"]) == 2
    assert main(["metrics", str(run), "-o", "nowhere/m.csv"]) == 2


class Tags(HTMLParser):
    """Every tag, and whether each that was opened was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.attributes += attrs
        if tag not in ("meta", "line", "circle", "polyline"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "circle", "polyline"):
            assert self.open.pop() == tag


def tags_of(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    tags.close()
    assert tags.open == []
    return tags


def test_the_report_of_a_run_is_one_page_that_needs_no_other(run: Path) -> None:
    assert main(["report", str(run), "-o", "r.html"]) == 0

    text = Path("r.html").read_text()
    tags = tags_of(text)
    assert tags.seen["svg"] == 5
    assert {"script", "img", "link", "iframe", "object", "a"} & set(tags.seen) == set()
    assert not [name for name, _ in tags.attributes if name in ("src", "href", "onload")]
    assert "2.13.0+cpu" in text
    assert "5.6086 → 5.5746" in text
    assert Path("r.html").stat().st_mode & 0o077 == 0


def test_text_of_others_is_never_markup_in_a_report() -> None:
    state = fold(
        replace(run_with(), name=HOSTILE),
        event("failed", 99, 1, 60, failure=HOSTILE, message=HOSTILE),
    )
    named = fold(state, event("hello", 99, 2, None, device=HOSTILE, host="secret-host"))
    plan = {
        "title": HOSTILE,
        "decisions": [
            {"setting": HOSTILE, "value": HOSTILE, "reason": HOSTILE},
            {"setting": "model", "value": "/secret/folder/tiny", "reason": "yours"},
            3,
        ],
        "memory": {"parts": [{"name": HOSTILE, "bytes": 3, "formula": HOSTILE}]},
        "facts": {"host": {"hostname": "secret-host", "cpu_name": HOSTILE}, "software": []},
    }

    text = page(view_of(named, PLAN, (), BEGAN), plan, {"measured": 4}, {HOSTILE: HOSTILE})

    assert {"script", "img"} & set(tags_of(text).seen) == set()
    assert "\x1b" not in text
    assert "secret" not in text
    assert "<td>tiny</td>" in text
    assert text.count("&lt;script&gt;") > 8


@pytest.mark.parametrize("damaged", [None, [], "x", {"facts": 3, "decisions": {}, "memory": []}])
def test_a_run_of_which_little_is_known_has_a_report(damaged: Any) -> None:
    tags_of(page(view_of(run_with(steps=1), PLAN, (), BEGAN), damaged, damaged, {}))


def test_a_curve_that_does_not_move_is_drawn_and_a_single_point_is_not() -> None:
    assert "nan" not in plot("flat", [(1, 0.0), (2, 0.0)])
    assert plot("one", [(1, 2.0)]) == ""


def test_a_replay_stays_within_the_run() -> None:
    frames = tuple(replace(run_with(steps=2), step=n, updated=BEGAN + n) for n in range(5))
    replay = Replay(frames=frames, at=4)
    assert replay.moved(9).state.step == 4
    assert replay.moved(-9).state.step == 0
    assert replay.slider(80).startswith("[" + "-" * 10)
    assert replay.moved(-9).slider(80).startswith("[|-")
    assert len(replay.slider(80)) == len(replay.moved(-2).slider(80)) <= 80
