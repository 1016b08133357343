"""A command line that was mistyped, in one sentence, and the exit codes of each command."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from wizard.language import foreign, joined, mark, said

MEANS: Mapping[str, str] = {
    "0": "ok",
    "1": "failed",
    "2": "usage",
    "3": "some rows are dropped",
    "4": "bad data",
    "5": "nothing fits",
    "6": "devices missing",
    "70": "internal",
}
USUAL = ("0", "1", "2", "70")
PLANNING = ("0", "1", "2", "4", "5", "6", "70")
OWN = "the run's own code"
ENDS_WITH: Mapping[str, tuple[Sequence[str], str]] = {
    "data": (("0", "1", "2", "3", "4", "70"), ""),
    "plan": (PLANNING, ""),
    "run": (PLANNING, f"with --follow {OWN}"),
    "retry": (PLANNING, f"with --follow {OWN}"),
    "export": (PLANNING, ""),
    "demo": (PLANNING, f"then {OWN}"),
    "resume": (USUAL, f"with --follow {OWN}"),
    "watch": (USUAL, OWN),
}
"""Command → its exit codes, where they are not the usual ones, and what else it ends with."""
CHOICE = re.compile(r"argument (?P<name>[^:]+): invalid choice: '?(?P<given>.*?)'? \(choose from")

PLAINER: Sequence[tuple[re.Pattern[str], str]] = (
    (re.compile(r"^the following arguments are required: (.*)"), r"\1 must be given"),
    (re.compile(r"^argument "), ""),
    (re.compile(r"expected (one|at least one) argument$"), "a value must follow"),
    (re.compile(r"invalid int value: (.*)"), r"takes a whole number, not \1"),
    (re.compile(r"invalid float value: (.*)"), r"takes a number, not \1"),
    (re.compile(r"not allowed with argument (.*)"), r"cannot be given with \1"),
)
"""What argparse says, and how it is said here."""


def exit_codes(command: str) -> str:
    """The exit codes of a command, for its help, in the reader's language."""
    codes, more = ENDS_WITH.get(command, (USUAL, ""))
    told = foreign(joined(f"{code} {said(MEANS[code])}" for code in codes))
    text = f"Exit codes: {told}; {foreign(said(more))}" if more else f"Exit codes: {told}"
    return said(text) + mark(".")


class Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong, and where help is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """As argparse's, with no abbreviations."""
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})
        self.set_defaults(parser=self)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """As argparse's; words that are left over are told by the command that they were given."""
        words = list(sys.argv[1:] if args is None else args)
        stray = self._stray(words)
        if stray is not None:
            self.error(self.left_over([stray]))
        found, left = self.parse_known_args(words, namespace)
        if left:
            known: Parser = found.parser
            known.error(known.left_over(left))
        del found.parser
        return found

    def _stray(self, words: Sequence[str]) -> str | None:
        """The first option before a command that is unknown here; its value would pass for one."""
        rest = iter(words)
        for word in rest:
            if not word.startswith("-") or word in ("-", "--"):
                return None
            known = self._option_string_actions.get(word.partition("=")[0])
            if known is None:
                return word
            if known.nargs != 0 and "=" not in word:
                next(rest, None)
        return None

    def left_over(self, words: Sequence[str]) -> str:
        """What to say of words that no argument takes."""
        option = next((word for word in words if word.startswith("-")), None)
        if option is None:
            return f"{words[0]!r} is one argument too many"
        name = option.partition("=")[0]
        below = next(_with_option(name, self), None)
        if below is not None:
            return f"{name} comes after a command, as in `{below} {name}`"
        return f"there is no option {name}{_near(name, self._option_string_actions)}"

    def error(self, message: str) -> NoReturn:
        """End with 2."""
        choice = CHOICE.match(message)
        if choice:
            message = self._no_choice(choice["name"], choice["given"])
        for theirs, ours in PLAINER:
            message = theirs.sub(ours, message)
        told = _shown(said(f"{message} (`{foreign(self.prog)} --help` says more)"))
        self.exit(2, f"{self.prog}: {told}\n")

    def _no_choice(self, name: str, given: str) -> str:
        for action in self._actions:
            if name in (action.metavar, "/".join(action.option_strings), action.dest):
                names = [str(choice) for choice in action.choices or ()]
                hint = _near(given, names) or f": choose from {foreign(joined(names))}"
                return f"{name} {given!r} is not known{hint}"
        return f"{name} {given!r} is not known"


def _with_option(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """The commands below that have an option."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                if name in inner._option_string_actions:
                    yield inner.prog
                yield from _with_option(name, inner)


def _near(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(names), n=1)
    return f": did you mean {near[0]}?" if near else ""


def _shown(text: str) -> str:
    from wizard.wording import one_line

    return one_line(text)


def tell_exit_codes(command: str, parser: argparse.ArgumentParser) -> None:
    """Put the exit codes under the help of a command and of those below it."""
    parser.epilog = exit_codes(command)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                tell_exit_codes(command, inner)
