"""What data would become, as JSON lines: `python -m engine.prepare --preview KEY=VALUE …`.

The child of `tunewright data check` and of the data page. Nothing is written. Keys are settings of
the spec (`data`, `max_length`, `system`, `template`, `columns`, `data_format`, `model_name`,
`model_author`, `seed`, …); `model` is a folder with a tokenizer, `samples` the rows shown (3).
Each line is an object with `kind`, printed as soon as it is known; texts are foreign text:

`sample`   one of the first usable rows: `file`, `unit` (`line` or `row`), `line`, `format`,
           `turns`, `tokens` (left after the cut), `length` (whole), `trained`, `cut`,
           `pieces`: [{`text`, `learnt`}] which joined are what the model sees,
           `ids`: [[token id, its text, learnt], …], `row`: the row as its file has it
`progress` while reading: `rows`, `dropped_rows`, `histogram` so far
`problem`  a row that is not used: `file`, `unit`, `line`, `reason`; the first hundred
`warning`  `text`: something to know before a run
`report`   once, last: `rows`, `kept`, `dropped_rows`, `cut_rows`, `unfilled_rows`,
           `lengths` and `whole_lengths` (after and before the cut: `min`, `p50`, `p90`, `p95`,
           `p99`, `max`; empty when no row is usable), `histogram`: [{`over`, `upto`, `rows`}] of
           whole lengths in tokens, `cuts`: {max_length: rows it would cut}, `total_tokens`,
           `trained_tokens`, `sets`: [{`file`, `format`, `rows`, `usable`, `dropped_rows`,
           `taken`}], `template`, `usable`: whether a run would start with it, `reason` if not
`failed`   instead of a report: `failure`, `message`; the exit code is that of a run
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engine import lengths, prepare, tokenise
from engine.data import IGNORED, ChatTokenizer, Tokens, chat_template
from engine.failure import RunError, classify
from engine.rows import files
from engine.rows.formats import RowFormat, format_named
from engine.rows.sources import Source
from engine.rows.values import Conversation, DataError, RowError
from engine.spec import DataTable, ModelTable, SpecError, parse_setting
from engine.tokenise import Counts, Work

PROGRESS_SECONDS = 0.5
SAMPLES = 3
SHOWN_TOKENS = 4096
"""Of a sample; a longer one is shown up to there."""


def main(words: Sequence[str]) -> int:
    """Print the preview; the exit code."""
    try:
        settings, samples = _settings(words)
        preview(settings, samples)
    except (Exception, KeyboardInterrupt) as error:
        failure = classify(error)
        say("failed", failure=failure.failure, message=failure.message)
        return failure.code
    return 0


def _settings(words: Sequence[str]) -> tuple[dict[str, Any], int]:
    given = dict(word.partition("=")[::2] for word in words)
    samples = given.pop("samples", str(SAMPLES))
    if not samples.isdecimal():
        raise SpecError(f"samples={samples}: write a count of rows")
    return dict(parse_setting(key, value) for key, value in given.items()), int(samples)


def preview(settings: dict[str, Any], samples: int) -> None:
    """Print what the data of these settings would become.

    Raises RunError for data, a model or a template that cannot be used.
    """
    table = _table(DataTable, settings)
    model = _table(ModelTable, settings)
    found = prepare.find_sources(table)
    tokenizer = prepare.load_tokenizer(Path(model.model).expanduser())
    chat = ChatTokenizer(tokenizer, chat_template(model.template, tokenizer), table.max_length)
    work = prepare.work_for(table, chat)
    shown = 0
    for source in found:
        shown += _samples(source, table, work, chat, samples - shown)
    report = _report(found, table, work)
    say("report", template=model.template or "the model's own", **report)


def _table(cls: Any, settings: dict[str, Any]) -> Any:
    """The table of a spec that these settings make, with defaults for the others."""
    return cls(**{key: value for key, value in settings.items() if key in cls.model_fields})


def _samples(source: Source, table: DataTable, work: Work, chat: ChatTokenizer, wanted: int) -> int:
    """Show the first usable rows of a set; how many there were."""
    if wanted <= 0:
        return 0
    shown = itertools.islice(_usable(source, table, work), wanted)
    number = 0
    for line, row, name, content, tokens in shown:
        number += 1
        say(
            "sample",
            file=str(source.path),
            unit=files.file_type(source.path).unit,
            line=line,
            format=name,
            turns=len(content.messages),
            tokens=tokens.kept,
            length=tokens.length,
            trained=tokens.trained,
            cut=tokens.cut,
            row=row,
            **_shown(tokens, chat),
        )
    return number


def _usable(
    source: Source, table: DataTable, work: Work
) -> Iterator[tuple[int, Any, str, Conversation, Tokens]]:
    expected: RowFormat | None = None
    if table.data_format != "auto":
        expected = format_named(table.data_format)
    try:
        for chunk in files.chunks(source.path):
            expected = expected or tokenise.first_format(chunk, work.reading)
            for line, row in chunk.rows():
                try:
                    content = tokenise.read(row, expected, work)
                    tokens = work.maker.tokens(content)
                except RowError:
                    continue
                assert expected is not None
                assert isinstance(content, Conversation)
                assert isinstance(tokens, Tokens)
                yield line, row, expected.name, content, tokens
    except (DataError, OSError):
        return  # told by the report, which reads the whole file


def _shown(tokens: Tokens, chat: ChatTokenizer) -> dict[str, Any]:
    """A row's tokens as text: each, and joined where the loss does not change."""
    pairs = list(zip(tokens.input_ids, tokens.labels, strict=True))[:SHOWN_TOKENS]
    pieces = [
        {"text": chat.text([token for token, _ in part]), "learnt": learnt}
        for learnt, part in itertools.groupby(pairs, key=lambda pair: pair[1] != IGNORED)
    ]
    ids = [[token, chat.text([token]), label != IGNORED] for token, label in pairs]
    return {"pieces": pieces, "ids": ids}


def _report(found: Sequence[Source], table: DataTable, work: Work) -> dict[str, Any]:
    whole, sets, reasons, named = Counts(), [], [], []
    for source in found:
        counts, said, broken = _count(source, table, work, whole)
        for row in prepare.dropped_rows(source, counts)[: tokenise.NAMED_ROWS - len(named)]:
            say("problem", **row)
            named.append(row)
        whole.add(counts)
        sets.append(prepare.set_report(source, counts, said))
        reasons += [broken] if broken else []
    reason = reasons[0] if reasons else prepare.refusal(whole, table, found, named)
    summary = prepare.summary(whole, table.max_length)
    if whole.total_tokens:
        for text in prepare.warnings({**summary, "sets": sets}, table.max_length):
            say("warning", text=text)
    return {
        **summary,
        "sets": sets,
        "cuts": lengths.cut_at(whole.lengths),
        "usable": reason is None,
        "reason": reason,
    }


def _count(
    source: Source, table: DataTable, work: Work, before: Counts
) -> tuple[Counts, str | None, str | None]:
    """What became of a set's rows, their format, and what broke it off."""
    counts, said, told = Counts(), None, time.monotonic()
    try:
        for batch in prepare.set_batches(source, table, work):
            counts.add(batch.counts)
            said = said or batch.format
            if time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                _progress(before, counts)
    except RunError as error:
        if error.failure != "bad_data":
            raise
        return counts, said, str(error)
    return counts, said, None


def _progress(before: Counts, counts: Counts) -> None:
    both = Counts()
    both.add(before)
    both.add(counts)
    say(
        "progress",
        rows=both.rows,
        dropped_rows=both.dropped_rows,
        histogram=lengths.histogram(both.lengths),
    )


def say(kind: str, **fields: Any) -> None:
    """Print one JSON line at once; ASCII, so that any text can be written."""
    sys.stdout.write(json.dumps({"kind": kind, **fields}, default=str) + "\n")
    sys.stdout.flush()
