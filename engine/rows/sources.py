"""The sets that the setting `data` names, how many rows each gives, and what their columns mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.rows.formats import FORMATS
from engine.rows.values import DataError, RowError

SEPARATOR = re.compile(r"(?<!\\),")
SAMPLED = re.compile(r"(?P<path>.+?)(?:#(?P<rows>[0-9]+))?(?:\*(?P<weight>[0-9]+(?:\.[0-9]+)?))?")
PLACEHOLDER = re.compile(r"\{\{(NAME|AUTHOR)\}\}")
MOST_ROWS = 10**9
FIX = "write PATH, PATH#ROWS or PATH*WEIGHT, and a comma between sets"


HUBS: Mapping[str, str] = {"hf": "huggingface", "ms": "modelscope"}
"""What stands before a data set on a hub → which hub."""
HUB_SET = re.compile(
    r"(?P<hub>hf|ms):(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)"
    r"(?:@(?P<revision>\w[\w./-]*))?(?::(?:(?P<config>[\w.+-]+)/)?(?P<split>[\w.]+))?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class HubSet:
    """One split of a data set on a hub, written `hf:org/name@revision:configuration/split`."""

    hub: str
    repo: str
    revision: str | None = None
    config: str | None = None
    split: str | None = None

    @property
    def source(self) -> str:
        """Which hub, as the setting `source` calls it."""
        return HUBS[self.hub]

    def at(self, revision: str) -> HubSet:
        """The same at one commit."""
        return replace(self, revision=revision)

    def __str__(self) -> str:
        at = f"@{self.revision}" if self.revision else ""
        config = f"{self.config}/" if self.config else ""
        return f"{self.hub}:{self.repo}{at}" + (f":{config}{self.split}" if self.split else "")


def hub_set(name: str) -> HubSet | None:
    """The data set on a hub that a name stands for, if it does.

    Raises DataError for one that is written wrongly.
    """
    if name.partition(":")[0] not in HUBS:
        return None
    found = HUB_SET.fullmatch(name)
    if found is None:
        raise DataError(
            f"{name}: not the name of a data set on a hub",
            "write hf:org/name, hf:org/name:split, hf:org/name:configuration/split, and "
            "@revision behind the name for an exact one; ms: for ModelScope",
        )
    return HubSet(**found.groupdict())


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One data set."""

    path: Path
    """A file or a folder; for a set on a hub its name."""
    files: tuple[Path, ...] = ()
    """Where the rows of a set on a hub are; empty until it is fetched."""
    rows: int | None = None
    """As many of its usable rows, taken at random; repeated when it has fewer. None takes all."""
    weight: float = 1.0
    """How often a row is seen in an epoch: 2 shows each twice, 0.5 shows a random half."""

    @property
    def parts(self) -> tuple[Path, ...]:
        """Where the rows are: several files for a set on a hub."""
        return self.files or (self.path,)

    @property
    def hub(self) -> HubSet | None:
        """The set on a hub that this is."""
        return None if exists(self.path) else hub_set(str(self.path))

    def rows_of(self, usable: int) -> int:
        """Rows an epoch has from this set."""
        return round((self.rows if self.rows is not None else usable) * self.weight)


def sources(text: str) -> tuple[Source, ...]:
    """The sets in a setting such as `a.jsonl,b.parquet#500,c.csv*0.5`.

    What is a file as it stands is that file, whatever its name has in it; a comma after a
    backslash never separates. Raises DataError for a count or a weight of nothing.
    """
    whole = _path(text)
    if exists(whole):
        return (Source(path=whole),)
    return tuple(_source(part.strip().replace("\\,", ",")) for part in SEPARATOR.split(text))


def _source(part: str) -> Source:
    if not part:
        raise DataError("a data set has no name", FIX)
    whole = _path(part)
    found = SAMPLED.fullmatch(part)
    if exists(whole) or found is None:
        return Source(path=whole)
    rows = None if found["rows"] is None else int(found["rows"])
    weight = float(found["weight"] or 1)
    if rows is not None and not 0 < rows <= MOST_ROWS:
        raise DataError(f"{part}: a set gives 1 to {MOST_ROWS:,} rows, not {rows:,}", FIX)
    if not 0 < weight <= MOST_ROWS:
        raise DataError(f"{part}: a weight of {weight:g} leaves no row or too many", FIX)
    return Source(path=_path(found["path"]), rows=rows, weight=weight)


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        home = text.partition("/")[0]
        raise DataError(f"nobody here has the home {home}", "write the folder out") from None


def exists(path: Path) -> bool:
    """Whether there is something at a path, also at one that no file can have."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def joined(parts: Sequence[str]) -> str:
    """Several settings `data` as one; commas in the name of a file that is there stay in it."""
    return ",".join(part.replace(",", "\\,") if _is_there(part) else part for part in parts)


def _is_there(text: str) -> bool:
    try:
        return exists(_path(text))
    except DataError:
        return False


def spelt(found: Sequence[Source]) -> str:
    """The setting that names these sets."""
    return ",".join(map(_spelt, found))


def _spelt(source: Source) -> str:
    name = str(source.path).replace(",", "\\,")
    rows = "" if source.rows is None else f"#{source.rows}"
    return name + rows + ("" if source.weight == 1 else f"*{source.weight:g}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How rows are understood before their format is looked for."""

    columns: Mapping[str, str]
    """Our name of a column → its name in the file."""
    values: Mapping[str, str]
    """Placeholder → what stands in its place; empty leaves them."""

    def applies(self, row: Any) -> bool:
        """Whether a row has the columns that are to be renamed."""
        return isinstance(row, dict) and all(name in row for name in self.columns.values())

    def unused(self) -> str:
        """What to say when that was so for no row."""
        names = ", ".join(f"`{name}`" for name in self.columns.values())
        return f"no row has the columns {names} that the setting `columns` names"

    def row(self, row: Any) -> Any:
        """A row under our names, with its placeholders filled in."""
        if self.columns:
            row = self._renamed(row)
        return filled(row, self.values) if self.values else row

    def _renamed(self, row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        missing = [theirs for theirs in self.columns.values() if theirs not in row]
        if missing and any(known.recognises(row) for known in FORMATS):
            return row  # of another set, whose columns have known names
        if missing:
            raise RowError(f"has no column `{missing[0]}`, which `columns` names")
        taken = set(self.columns.values())
        kept = {k: v for k, v in row.items() if k not in taken and k not in self.columns}
        return kept | {ours: row[theirs] for ours, theirs in self.columns.items()}


def reading(
    columns: str | None, model_name: str | None = None, model_author: str | None = None
) -> Reading:
    """The reading that the settings of a data set ask for.

    Raises DataError for a column that no format has.
    """
    values = {"NAME": model_name, "AUTHOR": model_author}
    return Reading(
        columns=_columns(columns) if columns else {},
        values={key: value for key, value in values.items() if value is not None},
    )


def _columns(text: str) -> dict[str, str]:
    found = dict(part.split("=", 1) for part in text.split(","))
    pairs = {ours.strip(): theirs.strip() for ours, theirs in found.items()}
    known = sorted({name for f in FORMATS for name in (*sum(f.keys, ()), *f.optional)})
    for ours in pairs:
        if ours not in known:
            raise DataError(f"columns: `{ours}` is in no format", f"one of {', '.join(known)}")
    return pairs


def filled(value: Any, values: Mapping[str, str]) -> Any:
    """A row with its placeholders replaced in every text, in one pass.

    Works on parsed values, so quotes and line breaks in a name are data like anything else; what
    is put in is not looked at again.
    """
    if isinstance(value, str):
        return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), value)
    if isinstance(value, list):
        return [filled(part, values) for part in value]
    if isinstance(value, dict):
        return {key: filled(part, values) for key, part in value.items()}
    return value
