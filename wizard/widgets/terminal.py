"""The terminal's input: bytes that are no text are dropped, and end nothing."""

from __future__ import annotations

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver


class Terminal(LinuxDriver):
    """Some terminals tell the mouse's place in bytes, after tmux or SSH connected again."""

    def run_input_thread(self) -> None:
        """Read to the end; the toolkit's own reading would end the app at what is not UTF-8."""
        while True:
            try:
                return super().run_input_thread()
            except UnicodeDecodeError:
                continue


def patient(found: type[Driver]) -> type[Driver]:
    """The driver that the toolkit chose, or ours in the place of its one for terminals."""
    return Terminal if found is LinuxDriver else found
