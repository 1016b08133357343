"""How long from a key until the screen has answered it, on every page, in a real terminal.

Run: python benchmarks/keys.py [--keys N] [--size 80x24] [--page NAME ...]. Each page runs in a
child of its own on a pseudo-terminal, with the driver, the parser of keys and the escape codes
that a user has; only what the pages show comes from values, but for plans, which the planner makes.
The clock runs from the write of the key's bytes to the last byte of the frame that answers it: a
frame is over when the terminal has been silent for 40 ms. Keys that change nothing are counted
apart. The frame rate of the toolkit (60 a second) is part of what is measured.

`re-plan` is a value typed on the Tune page until the plan of it is on the screen, and how many
frames the terminal drew for it. Prints; asserts nothing.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from statistics import median

SILENT_SECONDS = 0.04
"""A frame that is written in parts has shorter pauses."""
ANSWER_SECONDS = 2.0
BEGIN_SECONDS = 30.0
DOWN, UP, TAB, ESCAPE, PAGE_DOWN, PAGE_UP = (
    b"\x1b[B",
    b"\x1b[A",
    b"\t",
    b"\x1b",
    b"\x1b[6~",
    b"\x1b[5~",
)
KEYS: dict[str, Sequence[bytes]] = {
    "start": (DOWN, UP),
    "hardware": (DOWN, UP),
    "model": (b"l", b"l", b"a", b"\x7f", b"\x7f", b"\x7f", DOWN, UP),
    "data": (b"n", b"v", b"p", TAB),
    "plan": (DOWN, DOWN, UP, UP),
    "tune": (TAB, b"4", b"\x7f"),
    "review": (b"f", DOWN, UP),
    "run": (TAB, DOWN, UP, b"o"),
    "finish": (b"?", ESCAPE),
    "help": (b"?", b"q"),
}
"""Page → keys, pressed round and round; each changes what is shown."""
CHILD = """
import sys
sys.path.insert(0, ".")
from tests.screens.keyed import app
app(sys.argv[1]).run()
"""
REPLAN = "re-plan"


class Terminal:
    """A child on a pseudo-terminal of its own."""

    def __init__(self, page: str, columns: int, rows: int) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(
                TERM="xterm-256color", COLORTERM="truecolor", TEXTUAL_ANIMATIONS="none"
            )
            os.execv(sys.executable, [sys.executable, "-c", CHILD, page])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def frames(self, seconds: float, silent: float) -> list[float]:
        """When bytes came, until the terminal is silent; empty if none came in `seconds`."""
        times: list[float] = []
        wait = seconds
        while select.select([self.fd], [], [], wait)[0]:
            try:
                os.read(self.fd, 1 << 16)
            except OSError:
                break
            times.append(time.perf_counter())
            wait = silent
        return times

    def press(self, key: bytes) -> list[float]:
        """Seconds from the key until each part of its answer."""
        began = time.perf_counter()
        os.write(self.fd, key)
        return [at - began for at in self.frames(ANSWER_SECONDS, SILENT_SECONDS)]

    def close(self) -> None:
        """End the child."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def measure(page: str, columns: int, rows: int, number: int) -> list[float | None]:
    """Seconds of each key; None for one that drew nothing."""
    terminal = Terminal("plan" if page == "help" else page, columns, rows)
    try:
        terminal.frames(BEGIN_SECONDS, 1.5)
        keys = KEYS[page]
        found: list[float | None] = []
        for turn in range(number):
            times = terminal.press(keys[turn % len(keys)])
            found.append(times[-1] if times else None)
        return found[len(keys) :]
    finally:
        terminal.close()


def replanned(columns: int, rows: int, number: int) -> tuple[list[float], list[int]]:
    """Seconds until a typed value is planned and shown, and the parts drawn on the way."""
    terminal = Terminal("tune", columns, rows)
    try:
        terminal.frames(BEGIN_SECONDS, 1.5)
        terminal.press(TAB)
        seconds, parts = [], []
        for turn in range(number):
            began = time.perf_counter()
            os.write(terminal.fd, b"4" if turn % 2 == 0 else b"\x7f")
            times = terminal.frames(ANSWER_SECONDS, 0.8)
            seconds.append(times[-1] - began)
            parts.append(len(times))
        return seconds[1:], parts[1:]
    finally:
        terminal.close()


def told(name: str, seconds: Sequence[float], note: str) -> str:
    """One line of the table, in milliseconds."""
    ordered = sorted(1000 * one for one in seconds)
    if not ordered:
        return f"{name:<10} nothing was drawn"
    p95 = ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    return f"{name:<10} {median(ordered):>7.1f} {p95:>7.1f} {ordered[-1]:>7.1f}   {note}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=60, help="keys for each page")
    parser.add_argument("--size", default="80x24")
    parser.add_argument("--page", nargs="*", default=[*KEYS, REPLAN])
    args = parser.parse_args()
    columns, rows = map(int, args.size.split("x"))
    print(f"{args.size}, {args.keys} keys a page, {os.cpu_count()} cores; milliseconds")
    print(f"{'page':<10} {'p50':>7} {'p95':>7} {'max':>7}")
    for page in args.page:
        if page == REPLAN:
            seconds, parts = replanned(columns, rows, max(args.keys // 3, 6))
            print(told(page, seconds, f"drawn in {median(parts):.0f} parts"), flush=True)
            continue
        found = measure(page, columns, rows, args.keys)
        drawn = [one for one in found if one is not None]
        silent = len(found) - len(drawn)
        print(told(page, drawn, f"{silent} keys drew nothing" if silent else ""), flush=True)


if __name__ == "__main__":
    main()
