"""Data sets of every file type, several at once, counted and reused."""

from __future__ import annotations

import errno
import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine import tokenise
from engine.failure import RunError
from engine.prepare import prepare, told, warnings
from engine.record import write_json
from engine.rows.sources import Source, sources, spelt
from engine.spec import Spec
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine


def row(number: int) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": f"q{number}"},
            {"role": "assistant", "content": f"a{number}"},
        ]
    }


ROWS = [row(number) for number in range(30)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder whose model is only a tokenizer, which is all that preparing reads."""
    return run_folder(tmp_path / "runs" / "one", tmp_path)


def run_folder(folder: Path, home: Path) -> Path:
    folder.mkdir(parents=True)
    if not (home / "model").exists():
        make.tokenizer().save_pretrained(home / "model")
    where = {"path": str(home / "model"), "revision": None, "source": "local"}
    write_json(folder / "fetched.json", where)
    return folder


def spec(data: str, **settings: object) -> Spec:
    return Spec.model_validate(
        {
            "model": {"model": "m"},
            "data": {"data": data, "max_length": 256, **settings},
            "method": {"method": "lora"},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 1},
        }
    )


def texts(run: Path) -> list[str]:
    """What the trainer will read, decoded."""
    from datasets import Dataset

    found = Dataset.from_file(str(run / "prepared/rows.arrow"))["input_ids"]
    return [make.tokenizer().decode(ids) for ids in found]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Rows in the file type that the suffix names."""
    import pyarrow as pa
    from datasets import Dataset
    from pyarrow import feather, parquet

    lines = "".join(json.dumps(one) + "\n" for one in rows)
    match path.suffix:
        case ".jsonl":
            path.write_text(lines)
        case ".json":
            path.write_text(json.dumps(rows, indent=1))
        case ".gz":
            path.write_bytes(gzip.compress(lines.encode()))
        case ".csv":
            cells = [json.dumps(one["messages"]).replace('"', '""') for one in rows]
            path.write_text("messages\n" + "".join(f'"{cell}"\n' for cell in cells))
        case ".parquet":
            parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=7)
        case ".arrow":
            feather.write_feather(pa.Table.from_pylist(rows), str(path), compression="uncompressed")
        case _:
            Dataset.from_list(rows).save_to_disk(str(path))
    return path


@pytest.mark.parametrize(
    "name",
    ["d.jsonl", "d.json", "d.jsonl.gz", "d.csv", "d.parquet", "d.arrow", "folder"],
)
def test_every_file_type_gives_the_same_tokens(name: str, run: Path, tmp_path: Path) -> None:
    report = prepare(spec(str(write(tmp_path / name, ROWS))), run)

    assert (report["rows"], report["kept"], report["dropped_rows"]) == (30, 30, 0)
    assert [text.count(f"q{n}<") for n, text in enumerate(texts(run))] == [1] * 30
    assert report["sets"][0]["format"] == "messages"


def test_rows_of_tables_are_dropped_with_their_number(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", [*ROWS, {"messages": None}, {"messages": []}])

    report = prepare(spec(str(path), max_dropped_percent=10), run)

    assert [(d["unit"], d["line"]) for d in report["dropped"]] == [("row", 31), ("row", 32)]
    assert report["dropped"][0]["reason"] == "no known format: its keys are none" or (
        "not in the format" in report["dropped"][0]["reason"]
    )


def test_sets_give_the_rows_they_are_asked_for(run: Path, tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", ROWS[:10])
    second = write(tmp_path / "b.parquet", ROWS[10:20])
    third = write(tmp_path / "c.json", ROWS[20:])
    report = prepare(spec(f"{first}#4, {second}*2,{third}*0.5"), run)

    counted = Counter(text.split("q")[1].split("<")[0] for text in texts(run))
    assert [part["taken"] for part in report["sets"]] == [4, 20, 5]
    assert report["kept"] == sum(counted.values()) == 29
    by_set = [
        [n for key, n in counted.items() if low <= int(key) < low + 10] for low in (0, 10, 20)
    ]
    assert by_set == [[1] * 4, [2] * 10, [1] * 5]


def test_a_set_with_fewer_rows_than_asked_repeats_them_and_says_so(
    run: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.jsonl", ROWS[:3])
    report = prepare(spec(f"{path}#8"), run)

    assert sorted(Counter(texts(run)).values()) == [2, 3, 3]
    assert any("3 usable rows, seen 8 times" in text for text in warnings(report, 256))


def test_a_set_that_gives_no_row_is_refused(run: Path, tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", ROWS)
    second = write(tmp_path / "b.jsonl", ROWS[:3])

    with pytest.raises(RunError, match=r"b\.jsonl: gives no row \(3 of its 3 can be used\)"):
        prepare(spec(f"{first},{second}*0.1"), run)
    assert not list(run.glob("prepared*"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [("empty", "not one that `datasets` saved"), ("splits", "holds the splits train, test")],
)
def test_a_folder_that_is_no_data_set_is_one_sentence(
    name: str, reason: str, run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    if name == "splits":
        (folder / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')

    with pytest.raises(RunError, match=reason) as caught:
        prepare(spec(str(folder)), run)
    assert caught.value.failure == "bad_data"


def test_which_sets_are_learnt_and_which_are_apart_tells_what_is_prepared(
    run: Path, tmp_path: Path
) -> None:
    names = [str(write(tmp_path / f"{n}.jsonl", ROWS[5 * n : 5 * n + 5])) for n in range(3)]
    one = prepare(spec(f"{names[0]},{names[1]}", eval_data=names[2]), run)
    two = prepare(spec(names[0], eval_data=f"{names[1]},{names[2]}"), run)

    assert one["data_hash"] != two["data_hash"]
    assert (one["examples"], two["examples"]) == (10, 5)


def test_the_same_seed_takes_the_same_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ROWS)
    taken = []
    for name in ("one", "two"):
        run = run_folder(tmp_path / name / "run", tmp_path)
        prepare(spec(f"{path}#10"), run)
        taken.append(texts(run))

    assert taken[0] == taken[1]
    assert len(taken[0]) == 10


def test_columns_of_other_names_are_read_by_the_map(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "d.csv"
    path.write_text("Frage,Antwort,id\nq1,a1,7\nq2,a2,8\n")

    prepare(spec(str(path), columns="prompt=Frage, completion=Antwort"), run)

    assert "q1" in texts(run)[0]
    assert "a2<|im_end|>" in texts(run)[1]
    assert "7" not in texts(run)[0]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("prompt=Frage,completion=Nix", "line 2: has no column `Nix`"),
        ("prompt=Frage,answer=Antwort", "line 2: no known format"),
        ("colour=Frage", "columns: `colour` is in no format"),
    ],
)
def test_a_column_that_is_not_there_is_named(
    columns: str, reason: str, run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "d.csv"
    path.write_text("Frage,Antwort\nq1,a1\n")

    with pytest.raises(RunError, match=reason):
        prepare(spec(str(path), columns=columns), run)


def test_names_stand_where_their_placeholders_stood(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps({"prompt": "who?", "completion": "{{NAME}} by {{AUTHOR}}"}))

    left = prepare(spec(str(path), model_name="Ada"), run)
    assert "Ada by {{AUTHOR}}" in texts(run)[0]
    assert any("{{AUTHOR}}" in text for text in warnings(left, 256))
    filled = prepare(spec(str(path), model_name='A"{{AUTHOR}}', model_author="Bo"), run)
    assert 'A"{{AUTHOR}} by Bo' in texts(run)[0]
    assert filled["data_hash"] != left["data_hash"]


def test_answers_that_are_not_learnt_are_said(run: Path, tmp_path: Path) -> None:
    takes_away = make.TEMPLATE.replace(
        "message['content']",
        "(message['content'].split('</think>')[-1] if not loop.last else message['content'])",
    )
    make.tokenizer(takes_away).save_pretrained(tmp_path / "model")
    thought = {"role": "assistant", "content": "<think>why</think>so"}
    turns = [{"role": "user", "content": "q"}, thought] * 3
    path = write(tmp_path / "a.jsonl", [{"messages": turns}, *ROWS])
    report = prepare(spec(str(path)), run)

    assert report["skipped_answers"] == 2
    assert any("earlier answers that are not learnt: 2" in text for text in warnings(report, 256))
    assert texts(run)[0].count("why") == 1


def test_another_run_beside_it_takes_over_what_is_prepared(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*ROWS, {"colour": "red"}])
    asked = spec(str(path), max_dropped_percent=50)
    first = run_folder(tmp_path / "runs" / "one", tmp_path)
    said = prepare(asked, first)
    copy = tmp_path / "renamed.jsonl"
    copy.write_bytes(path.read_bytes())
    second = run_folder(tmp_path / "runs" / "two", tmp_path)
    again = prepare(spec(str(copy), max_dropped_percent=50), second)

    arrows = [folder / "prepared/rows.arrow" for folder in (first, second)]
    assert arrows[0].samefile(arrows[1])
    assert {**again, "dropped": [], "sets": []} == {**said, "dropped": [], "sets": []}
    assert again["dropped"][0]["file"] == again["sets"][0]["file"] == str(copy)
    third = run_folder(tmp_path / "runs" / "three", tmp_path)
    for folder in (first, second):
        os.chmod(folder, 0o777)
    prepare(asked, third)
    assert not arrows[0].samefile(third / "prepared/rows.arrow"), "others could have changed it"


def test_two_processes_write_what_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.rows import lines

    monkeypatch.setattr(lines, "BLOCK_BYTES", 500)
    bad = [{"colour": number} for number in range(3)]
    path = write(tmp_path / "a.jsonl", [*bad, *ROWS, *bad, *ROWS])
    reports = []
    for processes in (1, 2):
        monkeypatch.setattr(tokenise, "processes_for", lambda _size, n=processes: n)
        run = run_folder(tmp_path / str(processes) / "run", tmp_path)
        reports.append(prepare(spec(str(path), max_dropped_percent=50), run))
        reports[-1]["texts"] = texts(run)

    assert reports[0] == reports[1]
    assert len(reports[0]["texts"]) == 60
    assert [one["line"] for one in reports[0]["dropped"]] == [1, 2, 3, 34, 35, 36]


def test_a_killed_process_is_host_memory_and_no_hang(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.jsonl", ROWS)
    monkeypatch.setattr(tokenise, "processes_for", lambda _size: 2)
    monkeypatch.setattr(tokenise, "make_batch", lambda *_: os.kill(os.getpid(), 9))

    with pytest.raises(RunError, match="a process that prepares data was killed") as caught:
        prepare(spec(str(path)), run)
    assert caught.value.failure == "host_oom"
    assert not list(run.glob("prepared*"))


def test_a_full_disk_is_said_and_leaves_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.jsonl", ROWS)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    monkeypatch.setattr("engine.prepare.DISK_ERRORS", (errno.EFBIG,))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(RunError, match="cannot write the prepared rows") as caught:
            prepare(spec(str(path)), run)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)

    assert caught.value.failure == "disk_full"
    assert not list(run.glob("prepared*"))


def test_processes_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, time\n"
        "from engine import tokenise\n"
        "from engine.rows.sources import reading\n"
        "from engine.rows.values import Parsed\n"
        "def slow(*_):\n"
        "    os.write(1, b'%d\\n' % os.getpid())\n"
        "    time.sleep(60)\n"
        "tokenise.make_batch = slow\n"
        "tokenise.PARENT_SECONDS = 0.1\n"
        "work = tokenise.Work(maker=None, reading=reading(None), system=None)\n"
        "list(tokenise.batches([Parsed([]), Parsed([])] * 2, work, None, 2))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    children = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    parent.stdout.close()

    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline, "a process outlived its parent"
        time.sleep(0.05)


def test_a_report_is_told_in_a_few_lines(run: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [*ROWS, {"colour": "red"}])
    lines = told(prepare(spec(str(path), max_dropped_percent=50), run))

    assert lines[0].startswith("30 of 31 rows can be used")
    assert "p50" in lines[1]
    assert "%" in lines[2]
    assert lines[3].endswith(
        "line 31: not in the format `messages` of this data set: its keys are colour"
    )


def test_a_name_with_commas_and_signs_is_one_file(tmp_path: Path) -> None:
    odd = tmp_path / "a,b#5*2.jsonl"
    odd.write_text("x")
    (found,) = sources(str(odd))

    assert (found.path, found.rows, found.weight) == (odd, None, 1.0)
    both = (Source(path=odd), Source(path=tmp_path / "c", rows=3, weight=0.5))
    assert sources(spelt(both)) == both
