"""Where a command writes, and where it looks for runs: the same options and rules everywhere."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from wizard import paths
from wizard.problem import Problem, ProblemError


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
