"""How long from a key until the screen has answered it, on every page, in a real terminal.

Run: python benchmarks/keys.py [--keys N] [--size 80x24] [--page NAME ...]. Each page runs in a
child of its own on a pseudo-terminal, with the driver, the parser of keys and the escape codes
that a user has; only what the pages show comes from values, but for plans, which the planner makes.
The terminal marks frames (synchronized output, mode 2026), so each is told by its own end. The
clock runs from the write of the key's bytes to the end of the first frame that follows it, in which
the key is seen, and to the end of the last one, until none has come for 40 ms: what is planned
because of a typed value comes in a frame of its own. Keys that change nothing are counted apart.
The frame rate of the toolkit (60 a second) is part of what is measured, and so is the wait after
Escape for bytes that may follow (25 ms; ESCDELAY).

`re-plan` is a value typed on the Tune page until the plan of it is on the screen, and how many
frames the terminal drew for it: epochs, which change no memory, and lengths never planned before,
for which steps are simulated anew. Prints; asserts nothing.
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
"""The frames of one answer have shorter pauses."""
ANSWER_SECONDS = 2.0
BEGIN_SECONDS = 30.0
DOWN, UP, TAB, ESCAPE, PAGE_DOWN, PAGE_UP, BACKSPACE = (
    b"\x1b[B",
    b"\x1b[A",
    b"\t",
    b"\x1b",
    b"\x1b[6~",
    b"\x1b[5~",
    b"\x7f",
)
KEYS: dict[str, Sequence[bytes]] = {
    "start": (DOWN, UP),
    "hardware": (DOWN, UP),
    "model": (b"l", b"l", b"a", b"\x7f", b"\x7f", b"\x7f", DOWN, UP),
    "data": (b"n", b"v", b"p", TAB),
    "plan": (DOWN, DOWN, UP, UP),
    "tune": (TAB, b"4", b"\x7f"),
    "review": (DOWN, UP, b"f", b"f"),
    "run": (TAB, b"o"),
    "finish": (b"?", ESCAPE),
    "help": (b"?", b"q"),
}
"""Page → keys, pressed round and round; each changes what is shown, for after one that does not the
next would find a machine that has idled for two seconds, and take several times as long."""
CHILD = """
import sys
sys.path.insert(0, ".")
from tests.screens.keyed import app
app(sys.argv[1]).run()
"""
REPLANS: dict[str, tuple[int, bytes, Sequence[bytes]]] = {
    "re-plan": (1, b"", (b"4",)),
    "re-plan, max_length": (3, b"100", (b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9")),
}
"""What is typed: fields to go on to it, what stands there before, the keys that are measured. Each
is taken back, which is counted where it is not the length that was there before."""


ASKS, KNOWS = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
"""Whether the terminal marks frames, and that it does."""
FRAME_ENDS = b"\x1b[?2026l"


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
        """When frames ended, until the terminal is silent; empty if nothing came in `seconds`."""
        times: list[float] = []
        kept = b""
        wait = seconds
        while select.select([self.fd], [], [], wait)[0]:
            try:
                said = kept + os.read(self.fd, 1 << 16)
            except OSError:
                break
            if ASKS in said:
                os.write(self.fd, KNOWS)
            times += [time.perf_counter()] * said.count(FRAME_ENDS)
            kept = said[-len(FRAME_ENDS) + 1 :]  # a mark may come in two parts
            wait = silent if times else seconds  # else not an answer: the cursor, a mode
        return times

    def press(self, key: bytes) -> list[float]:
        """Seconds from the key until the end of each frame that follows."""
        began = time.perf_counter()
        os.write(self.fd, key)
        return [at - began for at in self.frames(ANSWER_SECONDS, SILENT_SECONDS)]

    def close(self) -> None:
        """End the child."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


def measure(page: str, columns: int, rows: int, number: int) -> list[list[float]]:
    """Seconds of each key until the end of each frame; none for one that drew nothing."""
    terminal = Terminal("plan" if page == "help" else page, columns, rows)
    try:
        terminal.frames(BEGIN_SECONDS, 1.5)
        keys = KEYS[page]
        found: list[list[float]] = []
        for turn in range(number):
            found.append(terminal.press(keys[turn % len(keys)]))
        return found[len(keys) :]
    finally:
        terminal.close()


def replanned(
    columns: int, rows: int, number: int, what: tuple[int, bytes, Sequence[bytes]]
) -> tuple[list[float], list[int]]:
    """Seconds until a typed value is planned and shown, and the frames drawn on the way."""
    terminal = Terminal("tune", columns, rows)
    try:
        terminal.frames(BEGIN_SECONDS, 1.5)
        fields, before, keys = what
        for key in (*[TAB] * fields, *(bytes([one]) for one in before)):
            terminal.press(key)
        terminal.frames(1.0, 0.5)
        seconds, parts = [], []
        for turn in range(number):
            typed = keys[turn // 2 % len(keys)]
            began = time.perf_counter()
            os.write(terminal.fd, typed if turn % 2 == 0 else BACKSPACE)
            times = terminal.frames(ANSWER_SECONDS, 0.4)
            if times and (turn % 2 == 0 or not before):
                seconds.append(times[-1] - began)
                parts.append(len(times))
        return seconds[1:], parts[1:]
    finally:
        terminal.close()


def told(name: str, first: Sequence[float], last: Sequence[float], note: str) -> str:
    """One line of the table, in milliseconds; no `first` where only the end counts."""
    if not last:
        return f"{name:<19} nothing was drawn"
    return f"{name:<19} {_spread(first)}   {_spread(last)}   {note}"


def _spread(seconds: Sequence[float]) -> str:
    ordered = sorted(1000 * one for one in seconds)
    if not ordered:
        return f"{'':>23}"
    p95 = ordered[min(int(0.95 * len(ordered)), len(ordered) - 1)]
    return f"{median(ordered):>7.1f} {p95:>7.1f} {ordered[-1]:>7.1f}"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=60, help="keys for each page")
    parser.add_argument("--size", default="80x24")
    parser.add_argument("--page", nargs="*", default=[*KEYS, *REPLANS])
    args = parser.parse_args()
    columns, rows = map(int, args.size.split("x"))
    print(f"{args.size}, {args.keys} keys a page, {os.cpu_count()} cores; milliseconds")
    parts_of = f"{'p50':>7} {'p95':>7} {'max':>7}"
    print(f"{'':<19} {'first frame':>23}   {'last frame':>23}")
    print(f"{'page':<19} {parts_of}   {parts_of}")
    for page in args.page:
        if page in REPLANS:
            number = max(args.keys // 2, 8)
            seconds, parts = replanned(columns, rows, number, REPLANS[page])
            print(told(page, (), seconds, f"{median(parts or [0]):.0f} frames"), flush=True)
            continue
        found = measure(page, columns, rows, args.keys)
        drawn = [times for times in found if times]
        silent = len(found) - len(drawn)
        note = f"{median(len(times) for times in drawn or [[]]):.0f} frames"
        note += f"; {silent} keys drew nothing" if silent else ""
        first, last = ([times[at] for times in drawn] for at in (0, -1))
        print(told(page, first, last, note), flush=True)


if __name__ == "__main__":
    main()
