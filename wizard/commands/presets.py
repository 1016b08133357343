"""`tunewright presets`: list, show, save, edit, delete or share named answers."""

from __future__ import annotations

import argparse
import dataclasses
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from engine.theirs import why
from wizard import api
from wizard.commands import output
from wizard.commands.terminal import note, print_exactly, print_json, quote, say
from wizard.language import foreign, said_problem
from wizard.problem import Problem, ProblemError
from wizard.wording import setting

HELP = "list, show, save, edit, delete or share presets"
DESCRIPTION = (
    "A preset is named answers in a TOML file: it says what it fixes, the rest is planned. To "
    "share one: `show NAME -o FILE`; whoever gets it says `--preset FILE` or `save N --from FILE`."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every preset, shipped and saved")
    output.add_format(listing)
    show = actions.add_parser("show", help="the file of one preset")
    show.add_argument("name")
    output.add_file(show, "into a file, to share it", "--out")
    save = actions.add_parser("save", help="save settings under a name")
    save.add_argument("name")
    save.add_argument("--from", dest="source", metavar="NAME", help="start from this one, or file")
    save.add_argument(
        "--run", dest="from_run", metavar="RUN", help="start from what was fixed in this run"
    )
    output.add_runs(save)
    save.add_argument("--replace", action="store_true", help="in place of one of this name")
    save.add_argument("--title", default=None, help="one line shown in the list")
    save.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="pairs", help="a setting"
    )
    edit = actions.add_parser("edit", help="open one of your own in $EDITOR")
    edit.add_argument("name")
    delete = actions.add_parser("delete", help="remove one of your own")
    delete.add_argument("name")


def run(args: argparse.Namespace) -> int:
    """Dispatch on the action."""
    actions = {"list": _list, "show": _show, "save": _save, "edit": _edit, "delete": _delete}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from wizard.presets import broken, shipped_and_saved

    for problem in broken():
        note(f"left out: {said_problem(problem)}")
    found = shipped_and_saved()
    if args.json:
        rows = [{"name": p.name, "title": p.title, "origin": p.origin} for p in found]
        print_json({"schema": 1, "presets": rows})
    else:
        for preset in found:
            title = foreign(preset.title) if preset.origin == "saved" else preset.title
            say(f"{foreign(preset.name)} ({preset.origin}): {title}")
    return 0


def _show(args: argparse.Namespace) -> int:
    from wizard.presets import dumps, load, write_new

    text = dumps(load(args.name))
    if args.file is None:
        print_exactly(text)
    else:
        path = output.target(args.file, force=args.force)
        quote(str(write_new(path, text, force=args.force)))
    return 0


def _delete(args: argparse.Namespace) -> int:
    from wizard.presets import delete

    say(f"removed {foreign(delete(args.name))}")
    return 0


def _edit(args: argparse.Namespace) -> int:
    """A copy is edited; it takes the preset's place only when it can be used."""
    from wizard.presets import load, own_file, save

    file = own_file(args.name)
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory(prefix="tunewright-") as folder:
        copy = Path(folder) / file.name
        copy.write_bytes(file.read_bytes())
        try:
            done = subprocess.run([*words, str(copy)], check=False)
        except OSError as error:
            raise ProblemError(
                Problem(
                    what=f"the editor {words[0]!r} cannot be started: {why(error)}",
                    where="$EDITOR",
                    fix="name another one in EDITOR",
                    exit_code=2,
                )
            ) from None
        if done.returncode != 0:
            note(f"the editor ended with {done.returncode}: {args.name} stays as it was")
            return 1
        if copy.read_bytes() == file.read_bytes():
            note("nothing was changed")
            return 0
        quote(str(save(dataclasses.replace(load(str(copy)), origin="saved"))))
    return 0


def _save(args: argparse.Namespace) -> int:
    from wizard.answers import Preset
    from wizard.presets import load, save, shipped_and_saved

    settings = {**_of_run(args), **api.parse_settings(args.pairs)}
    if not (settings or args.source):
        fix = "give --set, --from, or --run of a run in which something was fixed"
        raise ProblemError(Problem(what="a preset without settings", fix=fix, exit_code=2))
    if not args.replace and args.name in {p.name for p in shipped_and_saved()}:
        raise ProblemError(
            Problem(
                what=f"there is a preset {args.name!r} already",
                fix="choose another name, or --replace it",
                exit_code=2,
            )
        )
    base = load(args.source) if args.source else Preset(name=args.name, title=args.name)
    preset = dataclasses.replace(
        base,
        name=args.name,
        title=args.title or base.title,
        settings={**base.settings, **settings},
        origin="saved",
    )
    quote(str(save(preset)))
    if args.from_run is not None:
        held = ", ".join(f"{key}={setting(value)}" for key, value in preset.settings.items())
        note(f"it holds what was fixed: {held}; what the planner chose, it chooses anew")
    return 0


def _of_run(args: argparse.Namespace) -> dict[str, Any]:
    """What was fixed in a run; its model and data stay with it."""
    if args.from_run is None:
        return {}
    from wizard.runner.again import answers_of
    from wizard.runner.folder import find_run

    return dict(answers_of(find_run(api.runs_root(args.output), args.from_run)).settings)
