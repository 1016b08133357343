"""The terminal's input: Escape is told soon, and bytes that are no text end nothing."""

from __future__ import annotations

import codecs
import os
import selectors
import sys

from textual import constants
from textual._xterm_parser import XTermParser
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

ESCAPE_SECONDS = 0.025
"""How long an escape byte may be the begin of a longer key. A terminal writes all bytes of a key at
once, and tmux waits 10 ms for them; the toolkit waits 100, and looks for their end every 100.
ESCDELAY, as ncurses has it, is for lines that take longer."""
LOOK_SECONDS = 0.1
"""Between two looks whether the app has ended."""
MOST_BYTES = 4096


class Terminal(LinuxDriver):
    """Reads keys; some terminals tell the mouse's place in bytes, after tmux or SSH came back."""

    def run_input_thread(self) -> None:
        """Read until the app ends or the terminal does."""
        if "ESCDELAY" not in os.environ:
            setattr(constants, "ESCAPE_DELAY", ESCAPE_SECONDS)  # noqa: B010 – Final to mypy
        soon = min(constants.ESCAPE_DELAY, LOOK_SECONDS)
        parser, text = XTermParser(self._debug), codecs.getincrementaldecoder("utf-8")()
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            wait = LOOK_SECONDS
            while not self.exit_event.is_set():
                ready = selector.select(wait)
                wait = soon if ready else LOOK_SECONDS
                if ready:
                    said = os.read(self.fileno, MOST_BYTES)
                    if not said:
                        return
                    try:
                        keys = text.decode(said)
                    except UnicodeDecodeError:  # no part of it is a key
                        parser, keys = XTermParser(self._debug), ""
                        text.reset()
                    for message in parser.feed(keys) if keys else ():
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)


def can_show(text: str) -> bool:
    """Whether the terminal has these signs: its encoding, and more than a kernel console's font."""
    out = sys.__stderr__  # where the toolkit draws
    try:
        text.encode((out and out.encoding) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return text.isascii() or os.environ.get("TERM") != "linux"


def patient(found: type[Driver]) -> type[Driver]:
    """The driver that the toolkit chose, or ours in the place of its one for terminals."""
    return Terminal if found is LinuxDriver else found
