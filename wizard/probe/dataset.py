"""Data sets, read once from end to end in bounded memory."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.rows import files, formats, sources
from engine.rows.formats import FORMATS, RowFormat
from engine.rows.sources import HubSet, Reading, Source
from engine.rows.values import DataError, Numbered, RowError
from engine.spec import STAGE_FORMAT, STAGE_OF, wrong_stage
from engine.theirs import why
from wizard import paths
from wizard.facts import Dataset
from wizard.probe import hubset
from wizard.probe.lengths import TURN_TOKENS, Lengths, most_tokens
from wizard.probe.remarks import Labels, Repeats, Wrapped
from wizard.problem import Problem, ProblemError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
KEPT_PROBLEMS = 20
KEPT_ROWS = 5
GIVE = "give JSON Lines, JSON, CSV, Parquet or a folder that `datasets` saved"


def read_dataset(data: str, settings: Mapping[str, Any] | None = None) -> Dataset:
    """Facts of the data sets that `data` names; bad rows become Problems with their line.

    `settings` are those of the spec that say how rows are read. Without a stage among them, the
    first row tells it. Raises ProblemError (exit code 4) when a set as a whole cannot be used.
    """
    asked = settings or {}
    found, reading = _asked(data, asked)
    count = _Count(
        reading=reading,
        stage=asked.get("stage"),
        as_they_are=asked.get("preprocessor") is not None,
    )
    rows, empty = 0, []
    for source in found:
        before, named = count.rows, len(count.problems)
        count.begin(asked.get("data_format"))
        for path in source.parts:
            _check(path)
            _read(count, path, several=len(found) > 1 or len(source.parts) > 1)
        taken = source.rows_of(count.rows - before)
        if before and count.rows == before and named < len(count.problems):
            why = f"none of its rows can be used; {count.problems[named]}"
            raise _refused(why, str(source.path), "repair it, or leave it out")
        rows += taken
        empty += [] if taken else [source]
    _check_rows(data, count)
    for source in empty:
        raise _refused("gives no row", sources.spelt([source]), "raise its weight, or leave it out")
    return Dataset(
        path=data,
        format=count.formats.pop() if len(count.formats) == 1 else None,
        rows=rows,
        usable_rows=count.rows,
        dropped_rows=count.dropped_rows,
        disk_bytes=sum(map(files.source_bytes, found)),
        longest_row_chars=count.longest_row_chars,
        longest_row_bytes=count.longest_row_bytes,
        longest_row_tokens=count.longest_row_tokens,
        most_turns=count.most_turns,
        total_chars=count.total_chars,
        length_counts=count.lengths.counts(),
        problems=tuple(count.problems),
        warnings=(
            *count.labels.warnings(data),
            *count.repeats.warnings(data),
            *count.wrapped.warnings(data),
        ),
        first_rows=tuple(count.first_rows),
    )


def first_row(data: str) -> Mapping[str, Any]:
    """The first row of the data, whatever its columns are called.

    Raises ProblemError when there is none that has columns.
    """
    found, _ = _asked(data, {})
    path = found[0].parts[0]
    _check(path)
    try:
        for _, row in files.rows(path):
            if isinstance(row, Mapping):
                return row
    except DataError as error:
        raise _unreadable(path, error) from None
    except OSError as error:
        raise _refused(f"cannot be read: {why(error)}", str(path), "check the disk") from None
    raise _refused("no row has columns", str(path), "give rows that are objects or tables")


def _read(count: _Count, path: Path, *, several: bool) -> None:
    try:
        count.open(path, several=several)
        for numbered in files.rows(path):
            count.add(numbered)
    except DataError as error:
        raise _unreadable(path, error) from None
    except OSError as error:
        what = f"cannot be read: {why(error)}"
        raise _refused(what, str(path), "check the disk") from None


def absolute_data(data: str, *, hub: bool = False) -> str:
    """The same sets with absolute paths: a run starts in its own folder.

    A set on a hub is fetched and named with its commit. With `hub` a name such as `org/name` that
    is no file is one, too. Raises ProblemError (exit code 4) for what cannot be a path.
    """
    named = _sources(data)
    return sources.spelt([replace(source, path=_located(source, hub)) for source in named])


def _located(source: Source, hub: bool) -> Path:
    name = str(source.path)
    if sources.exists(source.path):
        return _expanded(name)
    if hub and HUB_ID.fullmatch(name.partition(":")[0].partition("@")[0]):
        name = f"hf:{name}"
    if _hub_set(name) is not None:
        return Path(hubset.fetched(name)[0])
    _refuse_hub_id(source.path)
    return _expanded(name)


def _hub_set(name: str) -> HubSet | None:
    try:
        return sources.hub_set(name)
    except DataError as error:
        raise _refused(error.what, "--data", error.fix) from None


def _refuse_hub_id(path: Path) -> None:
    """No hub is asked unless the user says so."""
    known = HUB_ID.fullmatch(str(path)) and not path.suffix
    if known and not sources.exists(path) and not sources.exists(path.parent):
        raise _refused(
            "no such file, and no hub is asked unless you say so",
            str(path),
            f"write hf:{path} or --hub for the data set of that name, ms:{path} for ModelScope's",
        )


def _asked(data: str, settings: Mapping[str, Any]) -> tuple[tuple[Source, ...], Reading]:
    found = tuple(map(_with_files, _sources(data)))
    names = [settings.get(name) for name in ("columns", "model_name", "model_author")]
    try:
        return found, sources.reading(*names)
    except DataError as error:
        raise _refused(error.what, "--set columns", error.fix) from None


def _sources(data: str) -> tuple[Source, ...]:
    if not data.strip():
        raise _refused("no data file is named", "", GIVE)
    if "\0" in data:
        _expanded(data)
    try:
        return sources.sources(data)
    except DataError as error:
        raise _refused(error.what, "--data", error.fix) from None


def _with_files(source: Source) -> Source:
    """A set on a hub with its files, fetched now if need be."""
    if sources.exists(source.path) or _hub_set(str(source.path)) is None:
        return source
    return replace(source, files=hubset.fetched(str(source.path))[1])


def _expanded(path: str) -> Path:
    return paths.expanded(path, "--data", exit_code=4).absolute()


@dataclass(kw_only=True, slots=True)
class _Count:
    """What has been seen so far."""

    reading: Reading
    stage: str | None = None
    as_they_are: bool = False
    """Rows are read by the user's own code first, so that any text in them counts."""
    where: str = ""
    unit: str = "line"
    row_format: RowFormat | None = None
    formats: set[str] = field(default_factory=set)
    rows: int = 0
    renamed_rows: int = 0
    dropped_rows: int = 0
    longest_row_chars: int = 0
    longest_row_bytes: int = 0
    longest_row_tokens: int = 0
    most_turns: int = 0
    total_chars: int = 0
    lengths: Lengths = field(default_factory=Lengths)
    problems: list[Problem] = field(default_factory=list)
    labels: Labels = field(default_factory=Labels)
    repeats: Repeats = field(default_factory=Repeats)
    wrapped: Wrapped = field(default_factory=Wrapped)
    is_text: bool = False
    first_rows: list[Mapping[str, object]] = field(default_factory=list)

    def begin(self, data_format: str | None) -> None:
        """From here on rows are those of another set."""
        named = STAGE_FORMAT.get(self.stage or "")
        named = named or (data_format if data_format not in (None, "auto") else None)
        self.row_format = formats.format_named(named) if named else None

    def open(self, path: Path, *, several: bool) -> None:
        """From here on rows are those of another file."""
        kind = files.file_type(path)
        self.unit, self.is_text = kind.unit, kind is files.TEXT
        self.where = f"{path}, " if several else ""

    def add(self, numbered: Numbered) -> None:
        """Count a row."""
        line, row = numbered
        try:
            texts = self._texts(row)
            self._measure(texts)
        except RowError as error:
            self._drop(line, str(error))
            return
        self.rows += 1
        if self.is_text:
            self.wrapped.add(line, sum(map(len, texts)))
        self.renamed_rows += self.reading.applies(row)
        if len(self.first_rows) < KEPT_ROWS and isinstance(row, dict):
            self.first_rows.append(row)

    def _measure(self, row: Sequence[str]) -> None:
        chars = sum(map(len, row))
        self.total_chars += chars
        self.lengths.add(chars)
        self.longest_row_chars = max(self.longest_row_chars, chars)
        content = "\n".join(row).encode("utf-8")
        self.repeats.add(content)
        self.longest_row_bytes = max(self.longest_row_bytes, len(content))
        self.most_turns = max(self.most_turns, len(row))
        turns = TURN_TOKENS * len(row)
        if len(content) + turns > self.longest_row_tokens:  # else it cannot be the longest
            self.longest_row_tokens = max(self.longest_row_tokens, most_tokens(content) + turns)

    def _texts(self, row: Any) -> Sequence[str]:
        if isinstance(row, RowError):
            raise row
        if self.as_they_are:
            return tuple(_texts_in(row))
        row = self.reading.row(row)
        known = self.row_format = self.row_format or formats.format_of(row)
        content = formats.read(row, known)
        self.stage = self.stage or STAGE_OF.get(known.name, "sft")
        wrong = wrong_stage(known.name, self.stage)
        if wrong:
            raise RowError(wrong)
        self.formats.add(known.name)
        self.labels.add(row, content)
        return content.texts()

    def _drop(self, line: int, what: str) -> None:
        self.dropped_rows += 1
        if len(self.problems) < KEPT_PROBLEMS:
            where = f"{self.where}{self.unit} {line}"
            problem = Problem(what=what, where=where, severity="warning", exit_code=4)
            self.problems.append(problem)


def _texts_in(value: Any) -> Iterator[str]:
    """Every text inside a row of any form."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts_in(inner)


def _check(path: Path) -> None:
    try:
        there = path.exists()
    except OSError:
        there = False
    if not there:
        raise _refused("no such file", str(path), _near(path))
    if path.is_dir():
        return
    if not path.is_file():
        raise _refused("not a regular file", str(path), GIVE)
    if path.stat().st_size == 0:
        raise _refused("the file is empty", str(path), "give a file with rows")


def _unreadable(path: Path, error: DataError) -> ProblemError:
    where = str(path)
    if error.line is not None:  # then its first bytes could be read
        where += f", {files.file_type(path).unit} {error.line}"
    return _refused(error.what, where, error.fix)


def _check_rows(data: str, count: _Count) -> None:
    if count.rows and count.reading.columns and not count.renamed_rows:
        raise _refused(count.reading.unused(), data, "name the columns as the file does")
    if count.rows:
        return
    if not count.dropped_rows:
        raise _refused("the file has no rows", data, "give a file with rows")
    first, bad = count.problems[0], count.dropped_rows
    nothing = "its one row cannot be used" if bad == 1 else f"none of its {bad:,} rows can be used"
    needed = ", ".join(known.in_words() for known in FORMATS)
    raise _refused(
        f"{nothing}; {first.where}: {first.what}",
        data,
        ""
        if "set stage=" in first.what
        else f"a row needs {needed}; --set columns=ours=theirs names other columns",
    )


def _near(file: Path) -> str:
    try:
        names = [p.name for p in file.parent.iterdir()]
    except OSError:
        return f"the folder {file.parent} does not exist either"
    near = difflib.get_close_matches(file.name, names, n=1)
    return f"did you mean {file.parent / near[0]}?" if near else "check the path"


def _refused(what: str, where: str, fix: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=4))
