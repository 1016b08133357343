"""`tunewright report`: one page of HTML about a run."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from wizard import api
from wizard.commands import output
from wizard.commands.metrics import replacing
from wizard.commands.terminal import quote

HELP = "write one page of HTML about a run"
DESCRIPTION = (
    "Outcome, curves, predicted beside measured, every decision with its reason, and the "
    "environment, in one file that needs no other and names no host."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", nargs="?", help="its name or folder (the newest)")
    output.add_runs(parser, alias=False)
    output.add_file(parser, "where to (RUN-report.html)", "--file")


def run(args: argparse.Namespace) -> int:
    """Write the page."""
    from wizard.dashboard.predicted import predicted
    from wizard.dashboard.view import view_of
    from wizard.report import page
    from wizard.runner.folder import check_started, find_run, read_json
    from wizard.runner.follow import Follower

    folder = find_run(api.runs_root(args.output), args.name)
    check_started(folder)
    plan, result = read_json(folder / "plan.json"), read_json(folder / "result.json")
    state = Follower(folder).poll()
    view = view_of(state, predicted(plan), (), state.updated or 0.0)
    path = output.target(args.file or f"{folder.name}-report.html", force=args.force)
    with replacing(path) as part:
        part.write_text(page(view, plan, result, _versions(folder)), encoding="utf-8")
    quote(str(path))
    return 0


def _versions(folder: Path) -> Mapping[str, str | None]:
    """Package → version, as the first rank told."""
    from wizard.runner.streams import Streams

    hello = next((e for e in Streams(folder).merged() if e["kind"] == "hello"), {})
    told = hello.get("versions")
    found = told if isinstance(told, Mapping) else {}
    return {str(name): str(version) for name, version in found.items() if version}
