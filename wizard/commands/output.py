"""Where a command writes, and where it looks for runs: the same options and rules everywhere."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wizard import paths
from wizard.problem import Problem, ProblemError

FORMATS = ("auto", "human", "json", "quiet")


def add_runs(parser: argparse.ArgumentParser, *, alias: bool = True, inner: bool = False) -> None:
    """The folder of runs; `--output` says it too where a command writes no file.

    `inner` is for a command below one that has the option itself, whose value then stays.
    """
    default = argparse.SUPPRESS if inner else None
    parser.add_argument(
        "--runs", dest="output", default=default, metavar="DIR", help="folder that holds the runs"
    )
    if alias:
        parser.add_argument("--output", dest="output", default=default, help=argparse.SUPPRESS)


def add_file(
    parser: argparse.ArgumentParser,
    about: str,
    *older: str,
    metavar: str = "FILE",
    dest: str = "file",
) -> None:
    """The file that a command writes; `older` are names that the option had."""
    parser.add_argument("-o", "--output", dest=dest, metavar=metavar, help=about)
    for name in older:
        parser.add_argument(name, dest=dest, help=argparse.SUPPRESS)
    parser.add_argument("--force", action="store_true", help="replace a file that exists")


def target(named: str, *, force: bool, folder: bool = False) -> Path:
    """The place that is written to; it may be a `folder` where several files are.

    Raises ProblemError for one that is there, without `force`, or whose folder is not.
    """
    from wizard.presets import refuse_existing  # what reads presets takes long to load

    path = paths.expanded(named, "--output").absolute()
    if os.path.isdir(path):
        if folder:
            return path
        fix = "name a file in it"
        raise ProblemError(Problem(what="this is a folder", where=str(path), fix=fix, exit_code=2))
    if not force:
        refuse_existing(path)
    if not os.path.isdir(path.parent):
        raise ProblemError(
            Problem(
                what="its folder is not there",
                where=str(path),
                fix=f"make it first: mkdir -p {shlex.quote(str(path.parent))}",
                exit_code=2,
            )
        )
    return path


class _Format(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """What the commands ask for: `json` and `quiet`."""
        namespace.json, namespace.quiet = values == "json", values == "quiet"


def add_format(parser: argparse.ArgumentParser, about_json: str = "one JSON document") -> None:
    """How results are printed; `export`, whose --format names the form, has --json alone."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help=about_json)
    how.add_argument(
        "--format",
        action=_Format,
        choices=FORMATS,
        help="auto or human: text; json: as --json; quiet: data and errors alone, nothing is asked",
    )
    parser.set_defaults(quiet=False)
