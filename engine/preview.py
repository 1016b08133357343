"""What data would become, as JSON lines: `python -m engine.prepare --preview KEY=VALUE …`.

The child of `tunewright data check` and of the data page. Nothing is written. Keys are settings of
the spec (`data`, `max_length`, `system`, `template`, `columns`, `data_format`, `model_name`,
`model_author`, `stage`, …); `model` is a folder with a tokenizer, `samples` the rows shown (3).
Each line is an object with `kind`, printed as soon as it is known; texts are foreign text:

`sample`   one of the first usable rows: `file`, `unit` (`line` or `row`), `line`, `format`,
           `turns`, `tokens` (left after the cut), `length` (whole), `trained`, `cut`,
           `pieces`: [{`text`, `learnt`}] which joined are what the model sees,
           `ids`: [[token id, its text, learnt], …], `row`: the row as its file has it
`progress` while reading: `rows`, `dropped_rows`, `histogram` so far
`problem`  a row that is not used: `file`, `unit`, `line`, `reason`; the first hundred
`warning`  `text`: something to know before a run
`report`   once, last: `rows`, `kept`, `dropped_rows`, `cut_rows`, `unfilled_rows`,
           `skipped_answers` (without a loss: the template takes their reasoning away),
           `lengths` and `whole_lengths` (after and before the cut: `min`, `p50`, `p90`, `p95`,
           `p99`, `max`; empty when no row is usable), `histogram`: [{`over`, `upto`, `rows`}] of
           whole lengths in tokens, `cuts`: {max_length: rows it would cut}, `total_tokens`,
           `trained_tokens`, `sets`: [{`file`, `format`, `rows`, `usable`, `dropped_rows`,
           `taken`, `repeats`}], `template`, `usable`: whether a run would start with it, and
           `reason` if not
`failed`   instead of a report: `failure`, `message`; the exit code is that of a run
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from engine import lean, lengths, plugins, prepare, sets, tokenise
from engine.data import IGNORED
from engine.examples import DocumentTokens, JudgedTokens, PairTokens, maker
from engine.failure import RunError, classify
from engine.methods import STAGE_OF, Stage
from engine.rows import files, sources
from engine.rows.formats import Readable
from engine.rows.sources import Source
from engine.rows.values import DataError, RowError
from engine.settings import parse_setting
from engine.spec import DataTable, ModelTable, SpecError
from engine.tokenise import Counts, Work

PROGRESS_SECONDS = 0.5
SAMPLES = 3
SHOWN_TOKENS = 4096
"""Of a sample; a longer one is shown up to there."""


def main(words: Sequence[str]) -> int:
    """Print the preview; the exit code."""
    try:
        settings, samples = _settings(words)
        if not settings.get("preprocessor"):
            lean.only_tokenizers()
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
    found = sets.find_sources(table.data)
    stage = settings.get("stage") or _stage_of(found, table, settings.get("preprocessor"))
    tokenizer = prepare.load_tokenizer(Path(model.model).expanduser())
    made = maker(stage, tokenizer, model.template, table.max_length)
    own = plugins.preprocessor(settings.get("preprocessor"), None)
    work = sets.work_for(table, stage, made, own)
    shown = 0
    for place, source in enumerate(found):
        share = math.ceil((samples - shown) / (len(found) - place))
        shown += _samples(source, work, tokenizer, share)
    report = _report(found, table, work, sets.cut_length(stage, table))
    template = "none" if stage == "pretrain" else model.template or "the model's own"
    say("report", template=template, stage=stage, **report)


def _stage_of(found: Sequence[Source], table: DataTable, code: str | None) -> Stage:
    """The stage that rows of such a format are for."""
    if table.data_format != "auto":
        return STAGE_OF.get(table.data_format, "sft")
    try:
        reading = sources.reading(table.columns, table.model_name, table.model_author)
        own = plugins.preprocessor(code, None)
        chunks = files.chunks(found[0].parts[0])
        named = (tokenise.first_format(chunk, reading, own) for chunk in chunks)
        first = next((row_format for row_format in named if row_format is not None), None)
    except (DataError, OSError):
        first = None  # told later, when all of it is read
    return STAGE_OF.get(first.name, "sft") if first else "sft"


def _table(cls: Any, settings: dict[str, Any]) -> Any:
    """The table of a spec that these settings make, with defaults for the others."""
    return cls(**{key: value for key, value in settings.items() if key in cls.model_fields})


def _samples(source: Source, work: Work, tokenizer: Any, wanted: int) -> int:
    """Show the first usable rows of a set; how many there were."""
    if wanted <= 0:
        return 0
    shown = itertools.islice(_usable(source, work), wanted)
    number = 0
    for line, row, name, content, example in shown:
        number += 1
        say(
            "sample",
            file=str(source.path),
            unit=sets.unit_of(source),
            line=line,
            format=name,
            turns=len(content.texts()),
            tokens=example.kept,
            length=example.length,
            trained=example.trained,
            cut=example.kept < example.length,
            row=row,
            **_shown(example, tokenizer),
        )
    return number


def _usable(
    source: Source, work: Work
) -> Iterator[tuple[int, Any, str, Readable, tokenise.Example]]:
    expected = work.expected
    try:
        for chunk in itertools.chain.from_iterable(map(files.chunks, source.parts)):
            expected = expected or tokenise.first_format(chunk, work.reading, work.preprocessor)
            for line, row in work.rows(chunk):
                try:
                    content = tokenise.read(row, expected, work)
                    example = work.maker.tokens(content)
                except RowError:
                    continue
                assert expected is not None
                yield line, row, expected.name, content, example
    except (DataError, OSError):
        return  # told by the report, which reads the whole file


def _shown(example: Any, tokenizer: Any) -> dict[str, Any]:
    """A row's tokens as text: each, and joined where the loss does not change."""

    def text(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    parts = [(ids, learnt) for ids, learnt in _parts(example) if ids]
    pieces = [{"text": text(ids[:SHOWN_TOKENS]), "learnt": learnt} for ids, learnt in parts]
    each = [(token, learnt) for ids, learnt in parts for token in ids][:SHOWN_TOKENS]
    ids = [[token, text([token]), learnt] for token, learnt in each]
    return {"pieces": pieces, "ids": ids}


def _parts(example: Any) -> list[tuple[list[int], bool]]:
    """The tokens of a row in order, apart where the loss changes, and whether they are learnt.

    Of a pair: the prompt, the chosen answer, the rejected one.
    """
    if isinstance(example, PairTokens):
        prompt, skip = example.prompt_ids, len(example.prompt_ids)
        answers = [example.chosen_ids, example.rejected_ids]
        if example.total == sum(map(len, answers)):  # both begin with the prompt
            answers = [ids[skip:] for ids in answers]
        return [(prompt, False), *((ids, True) for ids in answers)]
    if isinstance(example, JudgedTokens):
        return [(example.prompt_ids, False), (example.completion_ids, True)]
    if isinstance(example, DocumentTokens):
        return [(example.input_ids, True)]
    pairs = list(zip(example.input_ids, example.labels, strict=True))
    return [
        ([token for token, _ in part], learnt)
        for learnt, part in itertools.groupby(pairs, key=lambda pair: pair[1] != IGNORED)
    ]


def _report(
    found: Sequence[Source], table: DataTable, work: Work, cut_length: int | None
) -> dict[str, Any]:
    whole, parts, reasons = Counts(), [], []
    named: list[dict[str, Any]] = []
    for source in found:
        counts, said, broken = _count(source, work, whole)
        for row in sets.dropped_rows(source, counts)[: tokenise.NAMED_ROWS - len(named)]:
            say("problem", **row)
            named.append(row)
        whole.add(counts)
        parts.append(sets.set_report(source, counts, said))
        reasons += [broken] if broken else []
    reason = reasons[0] if reasons else sets.refusal(whole, table, found, named, work.reading)
    summary = sets.summary(whole, cut_length)
    if whole.total_tokens:
        for text in prepare.warnings({**summary, "sets": parts}, table.max_length):
            say("warning", text=text)
    return {
        **summary,
        "sets": parts,
        "cuts": lengths.cut_at(whole.lengths),
        "usable": reason is None,
        "reason": reason,
    }


def _count(source: Source, work: Work, before: Counts) -> tuple[Counts, str | None, str | None]:
    """What became of a set's rows, their format, and what broke it off."""
    counts, said, told = Counts(), None, time.monotonic()
    try:
        for batch in sets.set_batches(source, work):
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
