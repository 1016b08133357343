"""`tunewright data check`: what data holds, and what a model would learn from it."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wizard import api, paths
from wizard.commands import output
from wizard.commands.choosing import add_hub
from wizard.commands.planned import rows_of
from wizard.commands.terminal import note, print_exactly, print_json, say
from wizard.facts import Dataset
from wizard.glossary import kind_of_rows
from wizard.language import foreign, said_problem
from wizard.problem import Problem, ProblemError
from wizard.wording import many_lines

HELP = "check data: every row, and with --model what it becomes"
DESCRIPTION = "Your data is not changed, and nothing is started or written."
DROPPED, UNUSABLE = 3, 4
BAR = 40
PROGRESS_SECONDS = 5.0
LEARNT = "#"
"""Stands around text that is learnt: the marks stay without colour."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    commands = parser.add_subparsers(dest="what", metavar="check", required=True)
    check = commands.add_parser(
        "check",
        help="read every row; ends with 3 when some are dropped, with 4 when a run would not start",
        description=DESCRIPTION,
        allow_abbrev=False,
    )
    check.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="FILE, FILE#ROWS or FILE*WEIGHT; hf:org/name[:split] and ms:org/name come from a hub",
    )
    add_hub(check)
    check.add_argument("--model", metavar="M", help="show tokens and lengths of this model")
    check.add_argument("--sample", type=_few, default=1, metavar="N", help="rows shown (1)")
    check.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="pairs",
        help="columns=ours=theirs, data_format, max_length, system, template, model_name, …",
    )
    output.add_format(check)


def _few(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 4):
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of 0 to 999")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Check and print; the exit code says whether every row can be used."""
    from engine.rows.sources import joined
    from wizard.probe.dataset import absolute_data, read_dataset

    settings = api.parse_settings(args.pairs)
    data = absolute_data(joined(args.files), hub=args.hub)
    if args.model is None:
        return _without_model(read_dataset(data, settings), settings, args.json)
    said = _ask(data, args.model, settings, args.sample)
    if said["report"]["usable"]:
        said["warnings"] += [str(one) for one in read_dataset(data, settings).warnings]
    if args.json:
        print_json({"schema": 1, **said})
    else:
        _show(said)
    if not said["report"]["usable"]:
        return UNUSABLE
    return DROPPED if said["report"]["dropped_rows"] else 0


def _without_model(found: Dataset, settings: Mapping[str, Any], as_json: bool) -> int:
    from wizard.planner.refusals import too_many_dropped

    refused = too_many_dropped(found, settings)
    if as_json:
        print_json({"schema": 1, "dataset": dataclasses.asdict(found)})
    else:
        dropped = f", {found.dropped_rows:,} not usable" if found.dropped_rows else ""
        rows = rows_of(found)
        shape = kind_of_rows(found.format)
        say(f"{foreign(found.path)}: {rows}, {shape}{dropped}")
        for problem in found.problems:
            say(f"  {said_problem(problem)}")
        for problem in found.warnings:
            say(f"(warning) {said_problem(problem)}")
        say("--model M shows its tokens, lengths and what is learnt")
    if refused:
        note(f"a run would not start: {refused}")
        return UNUSABLE
    return DROPPED if found.dropped_rows else 0


def _ask(data: str, model: str, settings: Mapping[str, Any], samples: int) -> dict[str, Any]:
    """What the child says, by kind.

    Raises ProblemError when data or model cannot be used.
    """
    from wizard.probe.preview import Preview

    told = time.monotonic()
    said: dict[str, Any] = {"samples": [], "problems": [], "warnings": []}
    with Preview(data, _tokenizer(model), settings, samples) as child:
        for line in child.lines():
            kind = line.pop("kind")
            if kind in ("sample", "problem"):
                said[f"{kind}s"].append(line)
            elif kind == "warning":
                said["warnings"].append(line["text"])
            elif kind == "report":
                said["report"] = line
            elif kind == "progress" and time.monotonic() - told >= PROGRESS_SECONDS:
                told = time.monotonic()
                note(f"{line['rows']:,} rows so far, {line['dropped_rows']:,} cannot be used")
    return said


def _tokenizer(model: str) -> Path:
    """The folder of a model on this machine; its tokenizer alone will do."""
    from wizard.probe.model import read_model

    folder = paths.expanded(model, "--model")
    if (folder / "tokenizer.json").is_file():
        return folder.absolute()
    found = read_model(model).path
    if found is None:
        fix = "fetch it first, or give a folder: tokens are counted with the model's own tokenizer"
        raise ProblemError(Problem(what="not on this machine yet", where=model, fix=fix))
    return Path(found)


def _show(said: Mapping[str, Any]) -> None:
    report = said["report"]
    for sample in said["samples"]:
        say(
            f"{foreign(sample['file'])}, {sample['unit']} {sample['line']}: {sample['format']}, "
            f"{sample['tokens']:,} tokens, {sample['trained']:,} learnt (between {LEARNT} marks)"
        )
        print_exactly(_indented(sample["pieces"]))
    for part in report["sets"]:
        say(
            f"{foreign(part['file'])}: {part['usable']:,} of {part['rows']:,} rows can be used, "
            f"{part['format'] or 'no known format'}; {part['taken']:,} in an epoch"
        )
    for line in _lengths(report):
        say(line)
    for problem in said["problems"]:
        say(f"{foreign(problem['file'])}, {problem['unit']} {problem['line']}: {problem['reason']}")
    more = report["dropped_rows"] - len(said["problems"])
    if more > 0:
        say(f"and {more:,} more rows that cannot be used")
    for text in said["warnings"]:
        say(f"(warning) {text}")
    if not report["usable"]:
        say(f"a run would not start: {report['reason']}")


def _indented(pieces: Sequence[Mapping[str, Any]]) -> str:
    marked = (
        f"{LEARNT}{many_lines(p['text'])}{LEARNT}" if p["learnt"] else many_lines(p["text"])
        for p in pieces
    )
    return "".join(f"  {line}\n" for line in "".join(marked).rstrip("\n").split("\n"))


def _lengths(report: Mapping[str, Any]) -> list[str]:
    if not report["total_tokens"]:
        return []
    most = max(bar["rows"] for bar in report["histogram"])
    bars = [
        f"  {bar['over']:>7,} to {bar['upto']:>7,} tokens "
        f"{'#' * -(-bar['rows'] * BAR // most):<{BAR}} {bar['rows']:,}"
        for bar in report["histogram"]
    ]
    spread = ", ".join(f"{name} {value:,}" for name, value in report["whole_lengths"].items())
    learnt, total = report["trained_tokens"], report["total_tokens"]
    return [
        f"lengths in tokens before any cut: {foreign(spread)}",
        *bars,
        f"learnt: {learnt:,} of {total:,} tokens ({100 * learnt / total:.1f} %)",
        *_covering(report),
    ]


def _covering(report: Mapping[str, Any]) -> list[str]:
    """The length that cuts nothing: a plan has an estimate, as it counts no tokens."""
    covering = [int(length) for length, cut in report["cuts"].items() if cut == 0]
    if not covering:
        return []
    fix = f"--set max_length={min(covering)}"
    return [f"{fix} cuts none; without it a plan goes by an estimate from the text"]
