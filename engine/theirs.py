"""What others wrote → how it stands in a sentence of ours: quoted.

Texts of ours are looked up in catalogues where they are shown, and what stands between “ and ” is
not: it is shown as it was written.
"""

from __future__ import annotations

import errno
import json
import os

LONGEST = 500
QUOTES = str.maketrans({"“": '"', "”": '"', "\r": None})


def quoted(text: object, *, longest: int = LONGEST) -> str:
    """A text of somebody else between “ and ”, at most `longest` characters of its first line."""
    lines = str(text).translate(QUOTES).strip().splitlines()
    first = lines[0].strip() if lines else ""
    return f"“{first if len(first) <= longest else first[: longest - 1] + '…'}”"


def why(error: BaseException) -> str:
    """What an error of the system or of a library says, for a sentence of ours.

    The words of the system for a call that failed, and those of Python for what is no JSON, are
    few, and every catalogue has them; all else is quoted, with its class where it says nothing.
    """
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at line {error.lineno}, column {error.colno}"
    if isinstance(error, OSError) and error.strerror:
        words = error.strerror
        return words if is_of_the_system(error) else quoted(words)
    return quoted(error) if str(error).strip() else type(error).__name__


def with_class(error: BaseException) -> str:
    """The same for an error that may be anything: `ValueError: “…”`."""
    name, words = type(error).__name__, why(error)
    return name if words == name else f"{name}: {words}"


def is_of_the_system(error: OSError) -> bool:
    """Whether its words are those that the system has for its number."""
    return error.errno in errno.errorcode and error.strerror == os.strerror(error.errno or 0)
