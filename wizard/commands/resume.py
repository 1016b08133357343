"""`tunewright resume`: go on with a run from its last checkpoint."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from pathlib import Path

from engine.events import EXIT_OK
from wizard import api
from wizard.commands import choosing, output
from wizard.commands.run import tell
from wizard.commands.terminal import note, print_exactly
from wizard.problem import Problem, ProblemError

HELP = "go on with a run that stopped, failed or was lost"
DESCRIPTION = (
    "Starts the run's own script with --resume: the same settings, from its last whole checkpoint, "
    "or from the start where there is none."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", help="its name or folder")
    output.add_runs(parser)
    choosing.add_policy(parser)
    choosing.add_order(parser)
    parser.add_argument("--follow", action="store_true", help="stay and show the run")
    parser.add_argument("--plain", action="store_true", help="follow with plain lines")
    output.add_format(parser)
    parser.add_argument(
        "--if-lost",
        action="store_true",
        help="only when nobody recorded its end, as after a restart of the machine",
    )
    parser.add_argument(
        "--at-boot",
        action="store_true",
        help="print, and do not install, what resumes it when this machine was restarted",
    )


def run(args: argparse.Namespace) -> int:
    """Resume."""
    from wizard.runner.folder import find_run, only_tested, summary

    folder = find_run(api.runs_root(args.output), args.name)
    if args.at_boot:
        print_exactly(at_boot(folder))
        return 0
    found = summary(folder)
    if args.if_lost and (found.alive or found.exit_code is not None or found.updated is None):
        note(f"{folder.name} is not lost: nothing was started")
        return 0
    if found.exit_code == EXIT_OK and not found.alive and not only_tested(folder):
        raise ProblemError(
            Problem(
                what="this run is finished: there is nothing to go on with",
                where=str(folder),
                fix=f"tunewright retry {shlex.quote(args.name)} trains it again with changes",
                exit_code=2,
            )
        )
    if not (folder / "checkpoints").is_dir():
        note("it has no checkpoint yet, so it begins from the start")
    options = ["--resume", *choosing.policy_options(args), *choosing.order_options(args)]
    api.start(folder, *options)
    args.write_only = False
    return tell(folder, args)


def at_boot(folder: Path) -> str:
    """A crontab line, else a systemd user unit, that resumes a run the machine lost.

    Raises ProblemError where the system has neither.
    """
    command = [sys.executable, "-m", "wizard", "resume", "--if-lost", str(folder)]
    # In a crontab % ends the command; in a unit it begins a specifier.
    if any("%" in word or not word.isprintable() for word in command):
        what = "a path with % or control characters cannot stand in a crontab or a unit"
        raise ProblemError(Problem(what=what, where=str(folder), exit_code=1))
    if shutil.which("crontab"):
        return f"# add with: crontab -e\n@reboot {shlex.join(command)}\n"
    if shutil.which("systemctl"):
        return (
            "# ~/.config/systemd/user/tunewright-resume.service, then:\n"
            "#   systemctl --user enable tunewright-resume && loginctl enable-linger\n"
            "[Unit]\nDescription=Resume a run after a restart\n\n"
            # The run outlives the command that starts it.
            "[Service]\nType=oneshot\nRemainAfterExit=yes\nKillMode=process\n"
            f"ExecStart={_unit_words(command)}\n\n"
            "[Install]\nWantedBy=default.target\n"
        )
    raise ProblemError(
        Problem(what="this system has neither crontab nor systemd to start something", exit_code=1)
    )


def _unit_words(command: list[str]) -> str:
    """Words as systemd reads them: double quotes, with backslashes and dollars doubled."""
    escaped = (word.replace("\\", "\\\\").replace('"', '\\"') for word in command)
    return " ".join('"' + word.replace("$", "$$") + '"' for word in escaped)
