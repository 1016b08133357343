"""`tunewright settings`: every setting of a run, by its name here or elsewhere."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
from typing import TYPE_CHECKING, Any

from wizard.commands import output
from wizard.commands.terminal import print_json, say
from wizard.language import foreign, joined, mark, said
from wizard.problem import Problem, ProblemError
from wizard.wording import setting as worded

if TYPE_CHECKING:
    from wizard.settings import Setting

HELP = "list or show settings, by their names here or in other trainers"
DESCRIPTION = "Settings are given as --set KEY=VALUE, in presets, and on the Tune page."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="every setting, or those that words match")
    listing.add_argument("words", nargs="*", metavar="WORD", help="found in names or meaning")
    output.add_format(listing)
    show = actions.add_parser("show", help="one setting in full")
    show.add_argument("name", metavar="KEY", help="its name here or in another trainer")
    output.add_format(show)


def run(args: argparse.Namespace) -> int:
    """Dispatch on the action."""
    return _list(args) if args.action == "list" else _show(args)


def _list(args: argparse.Namespace) -> int:
    from wizard.settings import every_setting

    words = [word.lower() for word in args.words]
    found = [s for s in every_setting() if all(w in f"{s.words} {s.about}".lower() for w in words)]
    if args.json:
        print_json({"schema": 1, "settings": [as_json(one) for one in found]})
        return 0
    if not found:
        say(f"no setting matches {foreign(' '.join(args.words))}")
        return 1
    for one in found:
        say(in_short(one))
    return 0


def _show(args: argparse.Namespace) -> int:
    found = named(args.name)
    if args.json:
        print_json({"schema": 1, "settings": [as_json(one) for one in found]})
        return 0
    for one in found:
        for line in lines(one):
            say(line)
    return 0


def in_short(one: Setting) -> str:
    """Its name, what it takes, and what it is."""
    from wizard.settings import accepts_said

    accepts = mark(" (") + accepts_said(one) + mark(")")
    return foreign(one.name + accepts + mark(": ") + said(one.about))


def named(name: str) -> list[Setting]:
    """The settings of this name: ours, else an alias, else another trainer's.

    Raises ProblemError (exit code 2), offering the nearest names, when there is none.
    """
    from wizard.settings import every_setting

    wanted = name.strip().lstrip("-").replace("-", "_").lower()
    settings = every_setting()
    ours = [s for s in settings if s.name == wanted] or [s for s in settings if wanted in s.aliases]
    found = ours or [s for s in settings if wanted in {n.lower() for n in s.names}]
    if found:
        return found
    known = {word: None for s in settings for word in s.words.split()}
    near = difflib.get_close_matches(wanted, known, n=2, cutoff=0.5)
    fix = f"did you mean {near[0]}?" if near else "`tunewright settings list` has all"
    if len(near) > 1:
        fix = f"did you mean {near[0]} or {near[1]}?"
    raise ProblemError(Problem(what=f"there is no setting {name!r}", fix=fix, exit_code=2))


def lines(one: Setting) -> list[str]:
    """A setting in words, for `said`."""
    from wizard.settings import accepts_said

    default = said("none, it must be given") if one.required else worded(one.default)
    begin, end = mark(" ("), mark(")")
    elsewhere = [f"{name}{begin}{', '.join(tools)}{end}" for name, tools in one.names.items()]
    return [
        f"{foreign(one.name)} [{one.table}]",
        f"  {one.about}",
        f"  accepts: {foreign(accepts_said(one))}",
        f"  by itself: {foreign(default)}; a plan decides it with a reason",
        f"  elsewhere: {foreign(joined(elsewhere)) if elsewhere else 'the same name'}",
        f"  also taken: {foreign(joined(one.aliases)) if one.aliases else 'no other name'}",
    ]


def as_json(one: Setting) -> dict[str, Any]:
    """A setting as plain values."""
    return dataclasses.asdict(one)
