"""Opens the app: the wizard from its first page, or the dashboard of one run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wizard.commands.terminal import is_interactive
from wizard.problem import Problem, ProblemError

if TYPE_CHECKING:
    from wizard.app import TunewrightApp


def run(args: argparse.Namespace) -> int:
    """The wizard."""
    if not is_interactive():
        raise ProblemError(
            Problem(
                what="unable to draw the wizard: this is not an interactive terminal",
                fix="every page has a command, `tunewright --help` lists them",
                exit_code=2,
            )
        )
    return _run(_app())


def attach(folder: Path, *, leave_when_done: bool) -> int:
    """The dashboard of one run; the run's exit code, 0 when it still runs."""
    from wizard.commands.watching import exit_code
    from wizard.runner.follow import Follower

    _run(_app(attach=folder, leave_when_done=leave_when_done))
    return exit_code(Follower(folder).poll())


def _app(**options: Any) -> TunewrightApp:
    from wizard.app import TunewrightApp
    from wizard.commands.verbs import verbs

    return TunewrightApp(verbs(), **options)


def _run(app: TunewrightApp) -> int:
    app.run()
    return app.return_code or 0
