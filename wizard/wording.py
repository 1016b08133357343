"""How numbers and foreign text are worded: one formatter for command and screens."""

from __future__ import annotations

import math
import re
import textwrap
import time
import unicodedata

UNKNOWN = "unknown"
BLANK = ""
GIB = 1024**3
MIB = 1024**2
KIB = 1024


def gib(memory_bytes: float | None) -> str:
    """Memory in GiB, what is small in MiB or KiB: `23.6 GiB`, `4.2 MiB`."""
    if memory_bytes is None or not math.isfinite(memory_bytes):
        return UNKNOWN
    if 0 < abs(memory_bytes) < MIB / 10:
        return f"{memory_bytes / KIB:.1f} KiB"
    if abs(memory_bytes) < GIB / 10:
        return f"{memory_bytes / MIB:.1f} MiB"
    return f"{memory_bytes / GIB:,.1f} GiB"


def gib_of(used_bytes: float | None, total_bytes: float | None) -> str:
    """Two amounts of memory: `12.4 GiB of 24.0 GiB`."""
    return f"{gib(used_bytes)} of {gib(total_bytes)}"


def count(number: float | None) -> str:
    """A whole number with its thousands apart: `8,190,735,360`."""
    if number is None or not math.isfinite(number):
        return UNKNOWN
    return f"{number:,.0f}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: `1 device`, `1,024 devices`."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def parameters(number: int | None) -> str:
    """A model's size: `8.19 B`, `2.6 M`, `840`."""
    if number is None:
        return UNKNOWN
    for size, unit, digits in ((10**9, "B", 2), (10**6, "M", 1), (10**3, "K", 1)):
        if number >= size:
            return f"{number / size:.{digits}f} {unit}"
    return str(number)


def duration(seconds: float | None) -> str:
    """Time as people say it: `2h05`, `12 min`, `40 s`, `0.42 s`."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 10:
        return f"{max(seconds, 0):.{2 if 0 < seconds < 1 else 1}f} s"
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60}h{minutes % 60:02d}"


def time_of_day(t: float) -> str:
    """Unix seconds as a time of day in the zone of who looks: `08:04:59`."""
    return time.strftime("%H:%M:%S", time.localtime(t))


def speed(tokens_per_second: float | None) -> str:
    """Training speed: `1,234 tok/s`."""
    if tokens_per_second is None or not math.isfinite(tokens_per_second):
        return UNKNOWN
    return f"{tokens_per_second:,.0f} tok/s"


def loss(value: float | None) -> str:
    """A loss with four decimals; one that is not finite shows as what it is."""
    if value is None:
        return UNKNOWN
    return f"{value:.4f}" if math.isfinite(value) else str(value)


def setting(value: object) -> str:
    """A setting's value as a user types it; line breaks and tabs as `\\n` and `\\t`."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return ",".join(map(setting, value)) or "none"
    return str(value).replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")


def off(measured: float | None, predicted: float | None) -> str:
    """How far a prediction was off: what was measured, relative to what was predicted: `+12 %`.

    The one definition of prediction error: above zero, more was measured than predicted. Blank
    where one of the two is not known.
    """
    if measured is None or not predicted or not math.isfinite(measured / predicted):
        return BLANK
    return f"{100 * (measured / predicted - 1):+.0f} %"


def percent(part: float | None, whole: float | None) -> str:
    """A share in whole percent: `42 %`."""
    if part is None or not whole:
        return UNKNOWN
    return f"{100 * part / whole:.0f} %"


def cell(value: float | None, digits: int = 0) -> str:
    """A number in a table; one that is not known is blank, never 0."""
    if value is None or not math.isfinite(value):
        return BLANK
    return f"{value:,.{digits}f}"


def bar(used: float | None, whole: float | None, width: int) -> str:
    """Use of a budget in ASCII, `width` cells wide: `[####......]`, `[#########>` when over it."""
    inner = max(width - 2, 1)
    if used is None or not whole:
        return ""
    if used > whole:
        return "[" + "#" * inner + ">"
    filled = round(inner * max(used, 0) / whole)
    return "[" + "#" * filled + "." * (inner - filled) + "]"


def one_line(text: object) -> str:
    """Foreign text for one line: control characters become symbols, so nothing breaks out of it."""
    return "".join(c if c.isprintable() else _symbol(c) for c in str(text))


def many_lines(text: object) -> str:
    """Foreign text that may keep its line breaks; tabs become spaces, the rest symbols."""
    lines = str(text).expandtabs(4).replace("\r\n", "\n").split("\n")
    return "\n".join(one_line(line) for line in lines)


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: a Chinese character takes two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """A text with blanks behind it, or before it, up to `width` cells."""
    blanks = " " * (width - cells(text))
    return blanks + text if right else text + blanks


def cut(text: object, width: int) -> str:
    """Foreign text on one line of at most `width` cells, its end left out after a word."""
    line = one_line(text)
    return line if cells(line) <= width else _whole_words(line, width - 1) + "…"


def shorten(text: object, width: int) -> str:
    """Foreign text on one line of at most `width` cells, its middle left out, word by word."""
    line = one_line(text)
    if cells(line) <= width:
        return line
    tail = (width - 1) // 2
    end = _whole_words(line[::-1], tail)[::-1]
    return _whole_words(line, width - 1 - cells(end)) + "…" + end


def _whole_words(line: str, width: int) -> str:
    """The beginning of a line, to the end of a word unless little would be left."""
    kept = _head(line, width)
    if line[len(kept) : len(kept) + 1] == " " or " " not in kept:
        return kept
    words = kept[: kept.rindex(" ") + 1]
    return words if cells(words) >= width // 2 else kept


def _head(line: str, width: int) -> str:
    kept = line[: max(width, 0)]
    while cells(kept) > width > 0:
        kept = kept[:-1]
    return kept


WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uff60"
"""Characters between which a line may end."""
PIECES = re.compile(
    rf"\s+|[{WIDE}][,.;:!?，。；：！？、）」』》]*|[^\s{WIDE}]+[，。；：！？、）」』》]*"
)


def wrapped(text: str, width: int, indent: str = "", further: str | None = None) -> list[str]:
    """Text in lines of at most `width` cells; words stay whole, wide characters need not."""
    below = indent if further is None else further
    if text.isascii():
        return textwrap.wrap(
            text,
            width,
            initial_indent=indent,
            subsequent_indent=below,
            break_long_words=False,
            break_on_hyphens=False,
        )
    lines, line = [], indent
    for piece in PIECES.findall(text.strip()):
        if cells(line + piece.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = below
        if piece.strip() or line.strip():
            line += piece if piece.strip() else " " * len(piece)
    return [*lines, line.rstrip()] if line.strip() else lines


def _symbol(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return " " if unicodedata.category(character) == "Zs" else "\N{REPLACEMENT CHARACTER}"


NO_SPEED = "a rate of this device, its links or these layers is not known"


def how_to_know_speeds(machine: str) -> str:
    """What to do about unknown speeds; `machine` is empty for this one."""
    if not machine:
        return "`tunewright probe --bench` measures them"
    return "`tunewright probe --bench -o FILE` on that machine measures them for --machine FILE"
