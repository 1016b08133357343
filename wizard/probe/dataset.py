"""A data file, read once from end to end in bounded memory."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wizard import paths
from wizard.facts import Dataset
from wizard.probe import preference
from wizard.probe.lengths import TURN_TOKENS, most_tokens
from wizard.probe.records import BadRecord, Record, UnreadableError, read_records
from wizard.probe.rows import Format, RowError, format_of, texts
from wizard.problem import Problem, ProblemError

KEPT_PROBLEMS = 20
KEPT_ROWS = 5
FORMATS = (
    "messages, conversations, instruction with output, text, chosen and rejected, or a completion "
    "with a label"
)


def read_dataset(path: str) -> Dataset:
    """Facts of a JSON or JSON Lines file; bad rows become Problems with their line.

    Raises ProblemError (exit code 4) when the file as a whole cannot be used.
    """
    if not path.strip():
        raise _refused("no data file is named", "", "give a JSON or JSON Lines file")
    file = paths.expanded(path, "--data", exit_code=4)
    _check(path, file)
    counted = _Count()
    try:
        for record in read_records(file):
            counted.add(record)
    except UnreadableError as error:
        raise _refused(error.what, f"{path}, line {error.line}", error.fix) from None
    except OSError as error:
        raise _refused(f"cannot be read: {error.strerror}", path, "check the disk") from None
    _check_rows(path, counted)
    return Dataset(
        path=path,
        format=counted.format,
        rows=counted.rows,
        dropped_rows=counted.dropped_rows,
        disk_bytes=file.stat().st_size,
        longest_row_chars=counted.longest_row_chars,
        longest_row_bytes=counted.longest_row_bytes,
        longest_row_tokens=counted.longest_row_tokens,
        most_turns=counted.most_turns,
        total_chars=counted.total_chars,
        problems=tuple(counted.problems),
        first_rows=tuple(counted.first_rows),
    )


@dataclass(kw_only=True, slots=True)
class _Count:
    """What has been seen so far."""

    format: Format | preference.Shape | None = None
    rows: int = 0
    dropped_rows: int = 0
    longest_row_chars: int = 0
    longest_row_bytes: int = 0
    longest_row_tokens: int = 0
    most_turns: int = 0
    total_chars: int = 0
    problems: list[Problem] = field(default_factory=list)
    first_rows: list[Mapping[str, object]] = field(default_factory=list)

    def add(self, record: Record | BadRecord) -> None:
        if isinstance(record, BadRecord):
            self._drop(record.line, record.what)
            return
        self.format = self.format or preference.shape_of(record.value) or format_of(record.value)
        try:
            self._measure(self._texts(record.value))
        except RowError as error:
            self._drop(record.line, str(error))
            return
        self.rows += 1
        if len(self.first_rows) < KEPT_ROWS and isinstance(record.value, dict):
            self.first_rows.append(record.value)

    def _measure(self, row: Sequence[str]) -> None:
        chars = sum(map(len, row))
        self.total_chars += chars
        self.longest_row_chars = max(self.longest_row_chars, chars)
        content = "\n".join(row).encode("utf-8")
        self.longest_row_bytes = max(self.longest_row_bytes, len(content))
        self.most_turns = max(self.most_turns, len(row))
        turns = TURN_TOKENS * len(row)
        if len(content) + turns > self.longest_row_tokens:  # else it cannot be the longest
            self.longest_row_tokens = max(self.longest_row_tokens, most_tokens(content) + turns)

    def _texts(self, row: object) -> Sequence[str]:
        if self.format is None:
            keys = ", ".join(map(str, list(row)[:5])) if isinstance(row, dict) else "none"
            raise RowError(f"no known format: its keys are {keys or 'none'}")
        if self.format in preference.SHAPES:
            return preference.texts(row, self.format)
        return texts(row, self.format)

    def _drop(self, line: int, what: str) -> None:
        self.dropped_rows += 1
        if len(self.problems) < KEPT_PROBLEMS:
            problem = Problem(what=what, where=f"line {line}", severity="warning", exit_code=4)
            self.problems.append(problem)


def _check(path: str, file: Path) -> None:
    if file.is_dir():
        inside = next(_json_files(file), None)
        raise _refused(
            "a folder, not a file", path, f"did you mean {inside}?" if inside else "give the file"
        )
    if not file.exists():
        raise _refused("no such file", path, _near(file))
    if not file.is_file():
        raise _refused("not a regular file", path, "give a JSON or JSON Lines file")
    if file.stat().st_size == 0:
        raise _refused("the file is empty", path, "give a file with rows")


def _check_rows(path: str, counted: _Count) -> None:
    if counted.rows:
        return
    if not counted.dropped_rows:
        raise _refused("the file has no rows", path, "give a file with rows")
    first, bad = counted.problems[0], counted.dropped_rows
    nothing = "its one row cannot be used" if bad == 1 else f"none of its {bad:,} rows can be used"
    raise _refused(
        f"{nothing}; {first.where}: {first.what}",
        path,
        f"a row needs {FORMATS}",
    )


def _json_files(folder: Path) -> Iterator[Path]:
    yield from sorted(p for p in folder.iterdir() if p.suffix in (".json", ".jsonl"))


def _near(file: Path) -> str:
    try:
        names = [p.name for p in file.parent.iterdir() if p.is_file()]
    except OSError:
        return f"the folder {file.parent} does not exist either"
    near = difflib.get_close_matches(file.name, names, n=1)
    return f"did you mean {file.parent / near[0]}?" if near else "check the path"


def _refused(what: str, where: str, fix: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=4))
