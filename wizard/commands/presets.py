"""`tunewright presets`: list, show or save named answers."""

from __future__ import annotations

import argparse
from typing import Any

from wizard import api
from wizard.commands.terminal import note, print_exactly, print_json, say
from wizard.problem import Problem, ProblemError

HELP = "list, show or save presets"
DESCRIPTION = (
    "A preset is named answers in a TOML file: it says what it fixes, the rest is planned."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every preset, shipped and saved")
    listing.add_argument("--json", action="store_true", help="one JSON document")
    show = actions.add_parser("show", help="the file of one preset")
    show.add_argument("name")
    save = actions.add_parser("save", help="save settings under a name")
    save.add_argument("name")
    save.add_argument("--from", dest="source", metavar="NAME", help="start from this preset")
    save.add_argument(
        "--run", dest="from_run", metavar="RUN", help="start from what was fixed in this run"
    )
    save.add_argument("--output", metavar="DIR", help="folder that holds the runs")
    save.add_argument("--replace", action="store_true", help="in place of one of this name")
    save.add_argument("--title", default=None, help="one line shown in the list")
    save.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="pairs", help="a setting"
    )


def run(args: argparse.Namespace) -> int:
    """Dispatch on the action."""
    actions = {"list": _list, "show": _show, "save": _save}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from wizard.presets import broken, shipped_and_saved

    for problem in broken():
        note(f"left out: {problem}")
    found = shipped_and_saved()
    if args.json:
        rows = [{"name": p.name, "title": p.title, "origin": p.origin} for p in found]
        print_json({"schema": 1, "presets": rows})
    else:
        for preset in found:
            say(f"{preset.name} ({preset.origin}): {preset.title}")
    return 0


def _show(args: argparse.Namespace) -> int:
    from wizard.presets import dumps, load

    print_exactly(dumps(load(args.name)))
    return 0


def _save(args: argparse.Namespace) -> int:
    import dataclasses

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
    say(str(save(preset)))
    return 0


def _of_run(args: argparse.Namespace) -> dict[str, Any]:
    """What was fixed in a run; its model and data stay with it."""
    if args.from_run is None:
        return {}
    from wizard.runner.again import answers_of
    from wizard.runner.folder import find_run

    return dict(answers_of(find_run(api.runs_root(args.output), args.from_run)).settings)
