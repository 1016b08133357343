"""Opens the app: the wizard from its first page, or the dashboard of one run."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wizard import paths
from wizard.answers import Answers
from wizard.commands.terminal import ask, is_interactive, note, say
from wizard.problem import Problem, ProblemError
from wizard.steps import Step

if TYPE_CHECKING:
    from wizard.app import TunewrightApp
    from wizard.dashboard.state import RunState


def run(args: argparse.Namespace) -> int:
    """The wizard."""
    if not sys.stdin.isatty():
        raise ProblemError(
            Problem(
                what="unable to ask anything: the input is not a terminal",
                fix="every page has a command, `tunewright --help` lists them",
                exit_code=2,
            )
        )
    if args.wizard_plain or not is_interactive():
        begun = Answers(model=args.wizard_model, data=args.wizard_data)
        return _ask_in_lines(args.wizard_machine, begun)
    typed = {} if args.wizard_model is None else {Step.MODEL.value: args.wizard_model}
    begun = Answers(data=args.wizard_data, typed=typed)
    app = _app(args.wizard_machine, answers=begun)
    code = _run(app)
    if app.return_value is not None and app.foreground:
        from wizard import api
        from wizard.commands.watching import watch

        api.start(app.return_value)
        return watch(app.return_value, plain=True)
    if app.return_value is not None:
        tell_left(app.return_value)
    return code


def _ask_in_lines(machine: str | None, begun: Answers) -> int:
    """The wizard as questions, a line each."""
    from wizard.commands.planned import detail
    from wizard.commands.verbs import verbs
    from wizard.commands.watching import watch
    from wizard.prompts.starting import result
    from wizard.prompts.talk import Talk
    from wizard.prompts.walking import ask_all

    does = verbs(machine)
    talk = Talk(read=ask, say=say)
    ending = ask_all(does, talk, detail, begun)
    if ending is None:
        say("Left; your answers are kept.")
        return 0
    if ending.then == "written":
        say(f"Written to {ending.run}; `bash run.sh` in it starts the run.")
        return 0
    if ending.then == "running":
        tell_left(ending.run)
        return 0
    code = watch(ending.run, plain=True)
    result(ending.run, does, talk)
    return code


def attach(folder: Path, *, leave_when_done: bool) -> int:
    """The dashboard of one run; the run's exit code, 0 when it still runs."""
    from wizard.commands.watching import exit_code

    _run(_app(None, attach=folder, leave_when_done=leave_when_done))
    return exit_code(tell_left(folder))


def tell_left(folder: Path) -> RunState:
    """Say that a run which was left goes on, and how to come back; its state."""
    from wizard.runner.follow import Follower

    state = Follower(folder).poll()
    if not state.ended:
        name = folder.name if folder.parent == paths.runs() else str(folder)
        note(f"left; the run goes on: tunewright watch {shlex.quote(name)}")
    return state


def _app(machine: str | None, **options: Any) -> TunewrightApp:
    from wizard.app import TunewrightApp
    from wizard.commands import keymap
    from wizard.commands.verbs import verbs

    return TunewrightApp(verbs(machine), keymap=keymap.load(), **options)


def _run(app: TunewrightApp) -> int:
    """Show the app; an error inside it is raised once the terminal is itself again."""
    app.run()
    if app._exception is not None:
        if app.watched is not None:
            tell_left(app.watched)
        raise app._exception
    return app.return_code or 0
