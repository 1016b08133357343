"""What kind of terminal this is, and one way to print data."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from wizard.language import said

_quiet = False


def be_quiet(quiet: bool) -> None:
    """From now on nothing but data and errors is printed, and nothing is asked."""
    global _quiet
    _quiet = quiet


def is_interactive() -> bool:
    """Whether a full-screen app may be drawn; decided before Textual is imported."""
    return (
        not _quiet
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") not in ("", "dumb")
        and not os.environ.get("ACCESSIBLE")
        and not os.environ.get("CI")
    )


def say(text: str) -> None:
    """A line for the person; foreign text in it shows its control characters as symbols."""
    if not _quiet:
        quote(said(text))


def quote(text: str) -> None:
    """A line that somebody else wrote, for the person."""
    from wizard.wording import one_line

    print(one_line(text), flush=True)


def ask(prompt: str) -> str:
    """The line typed after a prompt.

    Raises EOFError at the end of the input.
    """
    from wizard.wording import one_line

    return input(one_line(said(prompt)))


def note(text: str) -> None:
    """A line beside the data."""
    from wizard.wording import one_line

    if not _quiet:
        print(one_line(said(text)), file=sys.stderr, flush=True)


def announce(text: str) -> None:
    """Ring the bell and, where the terminal can, show a line on the desktop (OSC 9)."""
    from wizard.wording import one_line

    if not sys.stderr.isatty():
        return
    shows = os.environ.get("TERM", "dumb") not in ("", "dumb", "linux")
    note_on_desktop = f"\x1b]9;{one_line(said(text))}\x1b\\" if shows else ""
    print(f"{note_on_desktop}\a", end="", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    print_exactly(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_exactly(text: str) -> None:
    """Text to stdout as UTF-8, whatever the locale; bytes of odd file names stay as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(_encoded(text))
    sys.stdout.buffer.flush()


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half a character, which JSON can hold
        return text.encode("utf-8", "backslashreplace")
