"""Prepare: data sets become tokens on disk, once, with a report of what was kept and why not.

`python -m engine.prepare spec.toml --run RUN` is the stage of a run. With `--preview` it shows
instead what a data set would become, as JSON lines, and writes nothing: see `engine.preview`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine import lean, own_code, plugins, sets, tokenise
from engine.adapter import check_folder, other_base
from engine.advice import advice
from engine.arrange import HELD_OUT, TRAINED_ON, arrange
from engine.data import chat_template
from engine.examples import maker
from engine.failure import DISK_ERRORS, RunError, command
from engine.fetch import read_fetched, read_spec
from engine.record import read_json, tell, write_json
from engine.rowfile import RowFile, keep_only
from engine.rows.sources import Source
from engine.spec import Spec
from engine.theirs import why
from engine.tokenise import NAMED_ROWS, Counts, Work

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "config.json")
DROPPED_TOLD = 20
PROGRESS_SECONDS = 5.0
PREPARED_VERSION = 5
"""Counts up when the same data and settings make other tokens than before."""


def prepare(spec: Spec, run: Path) -> dict[str, Any]:
    """Make `prepared/` unless it is there already; its report.

    Raises RunError: bad_data for a file or too many rows that cannot be used, bad_spec for a
    model without a usable tokenizer or template.
    """
    for warning in plugins.keep(spec, run):
        tell(run, {}, "warn", text=warning)
    fetched = read_fetched(run)
    model = fetched.path
    check_folder(spec)
    found = sets.find_sources(spec.data.data, fetched.data)
    apart = sets.find_sources(spec.data.eval_data, fetched.data) if spec.data.eval_data else ()
    if spec.model.trust_remote_code:
        own_code.check_unchanged(model, fetched.code)
        own_code.copy_once(model)
    tokenizer = load_tokenizer(model, trusted=spec.model.trust_remote_code)
    made = maker(spec.method.stage, tokenizer, spec.model.template, spec.data.max_length)
    own = plugins.preprocessor(spec.plugins.preprocessor, run)
    code = plugins.digests(spec, run)[str(own.file)] if own else None
    data_hash = _hash(spec, (found, apart), model, _template(spec, tokenizer), code)
    there = _read_report(run)
    if there is not None and there["data_hash"] == data_hash:
        return there
    work = sets.work_for(spec.data, spec.method.stage, made, own)
    part = run / "prepared.tmp"
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
    except FileNotFoundError:  # it is not made again: somebody removed it
        raise RunError("disk_full", f"{run}: the run folder is gone") from None
    try:
        report = _taken_over(run, part, data_hash, (found, apart)) or _write(
            spec, found, apart, work, part, _Progress(run)
        )
        report = {**report, "data_hash": data_hash, "template": _template_name(spec)}
        write_json(part / "report.json", report)
    except BaseException as error:
        shutil.rmtree(part, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            raise RunError(
                "disk_full", f"{run}: cannot write the prepared rows: {why(error)}"
            ) from None
        raise
    shutil.rmtree(run / "prepared", ignore_errors=True)
    os.replace(part, run / "prepared")
    return report


def load_tokenizer(model: Path, *, trusted: bool = False) -> Any:
    """The tokenizer of a model folder, run by no code of the model's unless that is `trusted`.

    Raises RunError (bad_spec) when there is none that can say where its tokens come from.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(model), trust_remote_code=trusted)
    except Exception as error:
        raise RunError(
            "bad_spec", f"{model}: its tokenizer cannot be loaded ({why(error)})"
        ) from None
    if not tokenizer.is_fast:
        raise RunError("bad_spec", f"{model}: needs a tokenizer.json")
    return tokenizer


def _template_name(spec: Spec) -> str:
    if spec.method.stage == "pretrain":
        return "none"
    return spec.model.template or "the model's own"


def _template(spec: Spec, tokenizer: Any) -> str:
    plain = spec.method.stage == "pretrain"
    return "" if plain else chat_template(spec.model.template, tokenizer)


def _taken_over(
    run: Path, part: Path, data_hash: str, both: Sequence[Sequence[Source]]
) -> dict[str, Any] | None:
    """What another run beside this one prepared of the same rows by the same settings."""
    for file in sorted(run.parent.glob("*/prepared/report.json")):
        other = file.parent.parent
        report = _read_report(other)
        if other == run or report is None or report["data_hash"] != data_hash or not _is_own(other):
            continue
        with suppress(OSError):
            for name in (TRAINED_ON, HELD_OUT):
                if name == TRAINED_ON or report["eval_examples"]:
                    _link(file.parent / name, part / name)
            learnt, held = (
                _under_names(r, s) for r, s in zip((report, report["eval"]), both, strict=True)
            )
            return {**learnt, "eval": held if report["eval"] else None}
        for name in (TRAINED_ON, HELD_OUT):
            (part / name).unlink(missing_ok=True)
    return None


def _link(there: Path, here: Path) -> None:
    """Prepared rows are never changed, so two runs can share them; a copy where links end."""
    try:
        os.link(there, here)
    except OSError:
        shutil.copyfile(there, here)


def _is_own(run: Path) -> bool:
    """Whether nobody else can have written into what a run prepared."""
    folder = run.stat()
    private = folder.st_uid == os.getuid() and not folder.st_mode & 0o077
    inside = [run, run / "prepared", run / "prepared/rows.arrow"]
    mine = (path.stat() for path in inside)
    return private or all(f.st_uid == os.getuid() and not f.st_mode & 0o022 for f in mine)


def _under_names(report: Mapping[str, Any] | None, found: Sequence[Source]) -> dict[str, Any]:
    """A report of the same rows in files that may be called otherwise."""
    if report is None:
        return {}
    names = [str(source.path) for source in found]
    renamed = {part["file"]: name for part, name in zip(report["sets"], names, strict=True)}
    return {
        **report,
        "sets": [{**part, "file": renamed[part["file"]]} for part in report["sets"]],
        "dropped": [{**row, "file": renamed[row["file"]]} for row in report["dropped"]],
    }


class _Progress:
    """Tells the run's dashboard how far it is, every few seconds."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._rows = 0
        self._told = time.monotonic()

    def add(self, rows: int) -> None:
        """That many more rows are done."""
        self._rows += rows
        if time.monotonic() - self._told >= PROGRESS_SECONDS:
            self._told = time.monotonic()
            detail = f"{self._rows:,} rows"
            tell(self._run, {}, "phase", phase="preparing", progress=None, detail=detail)


def _write(
    spec: Spec,
    found: Sequence[Source],
    apart: Sequence[Source],
    work: Work,
    folder: Path,
    progress: _Progress,
) -> dict[str, Any]:
    """Both the rows to train on and a second set to evaluate on, if there is one."""
    report = _write_rows(spec, found, work, folder / TRAINED_ON, progress)
    held = _write_rows(spec, apart, work, folder / HELD_OUT, progress) if apart else None
    return {**report, **arrange(spec, folder), "eval": held, "stage": spec.method.stage}


def _write_rows(
    spec: Spec, found: Sequence[Source], work: Work, path: Path, progress: _Progress
) -> dict[str, Any]:
    whole, parts, ranges = Counts(), [], []
    columns = tokenise.schema(work.maker.columns)
    named: list[dict[str, Any]] = []
    with RowFile(path, columns) as out:
        for source in found:
            counts, row_format = _write_set(source, work, out, progress)
            ranges.append((whole.kept, whole.kept + counts.kept))
            named += sets.dropped_rows(source, counts)
            parts.append(sets.set_report(source, counts, row_format))
            whole.add(counts)
    reason = sets.refusal(whole, spec.data, found, named, work.reading)
    if reason is not None:
        raise RunError("bad_data", reason)
    sets.check_all_give_rows(parts)
    taken = sets.rows_taken(found, ranges, spec.training.seed)
    if taken is not None:
        keep_only(path, taken)
    return {
        **sets.summary(whole, sets.cut_length(spec.method.stage, spec.data)),
        "schema": 1,
        "kept": whole.kept if taken is None else len(taken),
        "usable": whole.kept,
        "dropped": named[:NAMED_ROWS],
        "sets": parts,
        "format": ", ".join(sorted({str(part["format"]) for part in parts})),
    }


def _write_set(
    source: Source, work: Work, out: RowFile, progress: _Progress
) -> tuple[Counts, str | None]:
    """Append the usable rows of one set; what became of its rows, and their format."""
    counts, said = Counts(), None
    for batch in sets.set_batches(source, work):
        counts.add(batch.counts)
        said = said or batch.format
        out.write(batch.content)
        progress.add(batch.counts.rows)
    return counts, said


def _is_random(spec: Spec, found: Sequence[Source]) -> bool:
    """Whether the seed decides which rows there are, or their order."""
    sampled = any(source.rows is not None or source.weight != 1 for source in found)
    return sampled or spec.data.eval_split > 0 or spec.method.stage == "kto"


def _hash(
    spec: Spec, both: Sequence[Sequence[Source]], model: Path, template: str, code: str | None
) -> str:
    """What the tokens depend on, as one SHA-256; `both` are the sets learnt and those apart.

    `code` is the SHA-256 of a preprocessor.
    """
    whole = hashlib.sha256()
    settings = spec.data.model_dump(exclude={"data", "eval_data"})
    taken = [[[source.rows, source.weight] for source in found] for found in both]
    found = [source for some in both for source in some]
    depends = ["prepared", PREPARED_VERSION, spec.method.stage, settings, taken]
    depends += [spec.training.seed if _is_random(spec, found) else None, template]
    depends += [code] if code else []
    whole.update(json.dumps(depends, sort_keys=True).encode())
    data = [file for source in found for file in sets.files_of(source)]
    for file in [*data, *(model / name for name in TOKENIZER_FILES)]:
        if file.is_file():
            with file.open("rb") as content:
                whole.update(hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()


def _read_report(run: Path) -> dict[str, Any] | None:
    report = read_json(run / "prepared/report.json")
    whole = isinstance(report.get("data_hash"), str) and (run / "prepared/rows.arrow").is_file()
    return report if whole else None


def read_report(run: Path) -> dict[str, Any]:
    """The report of what was prepared for this run.

    Raises RunError (bad_data) when nothing was.
    """
    report = _read_report(run)
    if report is None:
        raise RunError("bad_data", f"{run}: no prepared data; run `engine.prepare` first")
    return report


def cut_warning(report: Mapping[str, Any], max_length: int) -> str:
    """What a run with rows that did not fit has to say; empty when all did."""
    cut, kept = report["cut_rows"], report.get("usable", report["kept"])
    if not cut:
        return ""
    whose, be = ("its", "is") if cut == 1 else ("their", "are")
    return (
        f"{cut:,} of {kept:,} rows {be} longer than max_length={max_length} and cut at the end: "
        f"{whose} last answer does not end"
    )


def main() -> int:
    """Prepare the data of a spec; the exit code."""
    if "--preview" in sys.argv[1:]:
        from engine import preview

        return preview.main([word for word in sys.argv[1:] if word != "--preview"])
    parser = argparse.ArgumentParser(prog="engine.prepare", description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--run", type=Path, default=Path())
    options = parser.parse_args()

    def body() -> None:
        run = options.run.absolute()
        spec = read_spec(options.spec)
        if not lean.runs_own_code(spec):
            lean.only_tokenizers()
        report = prepare(spec, run)
        for line in told(report):
            print(line)  # noqa: T201
        said = [*warnings(report, spec.data.max_length), *advice(report, spec), other_base(spec)]
        for warning in filter(None, said):
            print(warning, file=sys.stderr)  # noqa: T201
            tell(run, {}, "warn", text=warning)

    return command(body)


def told(report: Mapping[str, Any]) -> list[str]:
    """A report in a few lines."""
    share = 100 * report["trained_tokens"] / report["total_tokens"]
    spread = ", ".join(f"{name} {value:,}" for name, value in report["lengths"].items())
    lines = [
        f"{report['usable']:,} of {report['rows']:,} rows can be used, {report['cut_rows']:,} of "
        f"them cut; an epoch has {report['kept']:,}",
        f"tokens in a row: {spread}",
        f"{report['trained_tokens']:,} of {report['total_tokens']:,} tokens are learnt "
        f"({share:.1f} %)",
    ]
    trained, held = report["examples"], report["eval_examples"]
    packs = report.get("packed_rows")
    if packs:
        lines[0] += (
            f"; {packs:,} rows in {report['examples']:,} packs, {report['filled_percent']:g} % full"
        )
    what = "blocks" if report["stage"] == "pretrain" else "packs" if packs else "rows"
    if report["left_out_rows"]:
        lines[0] += f"; {report['left_out_rows']:,} more were left out by plugins.preprocessor"
    if held or what == "blocks":
        evaluated = f", {held:,} to evaluate on" if held else ""
        lines[0] += f"; {trained:,} {what} to train on{evaluated}"
    for row in report["dropped"][:DROPPED_TOLD]:
        lines.append(f"dropped: {row['file']}, {row['unit']} {row['line']}: {row['reason']}")
    more = report["dropped_rows"] - len(lines[3:])
    return [*lines, f"dropped: {more:,} more"] if more > 0 else lines


def warnings(report: Mapping[str, Any], max_length: int) -> list[str]:
    """What the user of a run should know of its data."""
    said = [cut_warning(report, max_length)]
    if report["unfilled_rows"]:
        said.append(
            f"rows with {{{{NAME}}}} or {{{{AUTHOR}}}} in them: {report['unfilled_rows']:,}; set "
            "model_name and model_author, or they are learnt as they stand"
        )
    if report["skipped_answers"]:
        said.append(
            f"earlier answers that are not learnt: {report['skipped_answers']:,}; the chat "
            "template takes their reasoning away, and the rest would teach to answer without it"
        )
    for part in report["sets"]:
        if part["repeats"]:
            said.append(
                f"{part['file']}: {part['usable']:,} usable rows, seen {part['taken']:,} times "
                "in an epoch: some repeat"
            )
    return [text for text in said if text]


if __name__ == "__main__":
    sys.exit(main())
