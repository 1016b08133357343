"""The command: the app, or any one stage headless; decides plain mode before importing Textual."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence

from engine.theirs import why, with_class
from wizard import __version__, language
from wizard.commands import COMMANDS
from wizard.commands.terminal import be_quiet
from wizard.commands.usage import Parser, tell_exit_codes
from wizard.language import said, said_problem
from wizard.problem import ProblemError

INTERNAL_ERROR = 70
INTERRUPTED = 130
UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""The disk behind the output, or behind a file of ours."""
OF_THE_WIZARD = ("machine", "model", "data", "plain")
"""Options without a command; some commands have their own of the same name."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _accept_every_text()
    try:
        return _run(argv)
    except ProblemError as error:
        print(f"tunewright: {_one_line(said_problem(error.problem))}", file=sys.stderr)
        return error.problem.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return 1
    except Exception as error:
        if isinstance(error, OSError) and error.errno in UNWRITABLE:
            _discard_output()
            where = f" {_one_line(error.filename)}" if error.filename else ""
            print(f"tunewright: {said(f'cannot write{where}: {why(error)}')}", file=sys.stderr)
            return 1
        return _internal(error)


def _run(argv: Sequence[str] | None) -> int:
    try:
        words = sys.argv[1:] if argv is None else argv
        language.use(language.ENGLISH)
        language.use(language.wanted(words, os.environ))
        parser = build_parser()
        if language.used() != language.ENGLISH:
            from wizard.commands.helping import in_language

            in_language(parser)
        args = parser.parse_args(words)
        if args.run is not _wizard:
            for option in OF_THE_WIZARD:
                if getattr(args, f"wizard_{option}"):
                    parser.error(f"--{option} comes after the command")
        be_quiet(getattr(args, "quiet", False))
        code: int = args.run(args)
    finally:
        sys.stdout.flush()
    return code


def _accept_every_text() -> None:
    """Show what a terminal's encoding lacks as an escape, and give a closed output a place."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Python writes what is left at exit, and must not complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = Parser(
        prog="tunewright",
        description="From a fresh server and a data file to a fine-tuned model. "
        "Without a command: the wizard.",
        epilog=said(
            "Exit codes: 0 ok, 1 failed, 2 usage, 3 some rows are dropped, 4 bad data, 5 nothing "
            "fits, 6 devices missing, 70 internal; run --follow and watch end with the run's own "
            "code. Each command's --help names its own."
        ),
    )
    parser.add_argument("--version", action="version", version=f"tunewright {__version__}")
    parser.add_argument(
        "--machine",
        dest="wizard_machine",
        metavar="M",
        help="walk the wizard for another machine; what it names: `tunewright plan --help`",
    )
    parser.add_argument(
        "--model",
        dest="wizard_model",
        metavar="MODEL",
        help="what stands on the wizard's Model page: a name, a hub id or a folder",
    )
    parser.add_argument(
        "--data",
        dest="wizard_data",
        metavar="DATA",
        help="what stands on its Data page: a file of rows, or several with commas",
    )
    parser.add_argument(
        "--plain",
        dest="wizard_plain",
        action="store_true",
        help="the wizard as questions, a line each, as ACCESSIBLE=1 asks for too",
    )
    parser.set_defaults(run=_wizard)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, module in COMMANDS.items():
        sub = commands.add_parser(name, help=module.HELP, description=module.DESCRIPTION)
        module.add_arguments(sub)
        tell_exit_codes(name, sub)
        sub.set_defaults(run=module.run)
    _add_language(parser)
    return parser


def _add_language(parser: argparse.ArgumentParser) -> None:
    """The option may stand before the command or after it."""
    parser.add_argument(
        "--lang",
        metavar="LANG",
        default=argparse.SUPPRESS,
        help="language of all that is said here: en or zh (TUNEWRIGHT_LANG, else the locale)",
    )
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_language(below)


def _wizard(args: argparse.Namespace) -> int:
    from wizard.commands.wizard import run

    return run(args)


def _internal(error: Exception) -> int:
    import traceback

    if os.environ.get("TUNEWRIGHT_TRACEBACK"):
        traceback.print_exc()
    text = said(
        f"internal error: {_one_line(with_class(error))} "
        "(TUNEWRIGHT_TRACEBACK=1 shows where; no run is affected)"
    )
    print(f"tunewright: {text}", file=sys.stderr)
    return INTERNAL_ERROR


def _one_line(text: str) -> str:
    from wizard.wording import one_line

    return one_line(text)
