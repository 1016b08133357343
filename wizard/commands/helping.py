"""Help and errors of the command line in the reader's language, wide characters and all."""

from __future__ import annotations

import argparse

from wizard import wording
from wizard.language import said

HEADINGS = ("usage: ", "options", "positional arguments", "show this help message and exit")


class Formatter(argparse.HelpFormatter):
    """Lines of help that may end between wide characters."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wording.wrapped(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(wording.wrapped(" ".join(text.split()), width, indent))


def _text(text: str | None) -> str | None:
    return said(text) if text in HEADINGS else text


def in_language(parser: argparse.ArgumentParser) -> None:
    """Say what this parser and those below it say in the language in use; exit codes are said."""
    # argparse asks gettext by this name. Of its errors our own Parser makes sentences first.
    argparse._ = _text  # type: ignore[attr-defined]
    parser.formatter_class = Formatter
    parser.description = parser.description and said(parser.description)
    for group in parser._action_groups:
        group.title = group.title and said(group.title)
        group.description = group.description and said(group.description)
    for action in parser._actions:
        if action.help and action.help is not argparse.SUPPRESS:
            action.help = said(action.help)
        if isinstance(action, argparse._SubParsersAction):
            for line in action._choices_actions:
                line.help = line.help and said(line.help)
            for below in action.choices.values():
                in_language(below)
