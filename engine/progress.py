"""How far a run is, in a line now and then, for whoever started run.sh by hand.

Standard library only. What is told was said by the run in its streams; nothing is measured here.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.events import EXIT_OK, decode_all, printable
from engine.hang import Heard, read_on

FIRST_PAUSE, LAST_PAUSE = 10.0, 300.0
"""Seconds between two lines of one kind, at the start and in a run of hours:"""
SHARE = 0.05
"""of the time since the stage began."""


def tell_terminal(text: str) -> None:
    """Write a line to stderr unless that is gone, or held still (Ctrl+S) and would hold us up."""
    line = f"{printable(text)}\n".encode("utf-8", "replace")
    with contextlib.suppress(OSError, ValueError):
        out = sys.stderr.fileno()
        if select.select([], [out], [], 0)[1]:
            os.write(out, line)


class Progress:
    """Follows the launcher's stream, and that of rank 0 while it trains here."""

    def __init__(
        self,
        run: Path,
        attempt: int,
        *,
        trains: bool,
        began: float,
        tell: Callable[[str], None] = tell_terminal,
    ) -> None:
        """`began` is when the stage did, in seconds of a monotonic clock."""
        self._run = run
        self._attempt = attempt
        names = ("launcher", "rank-00000") if trains else ("launcher",)
        self._places = {run / "events" / f"{name}.jsonl": Heard() for name in names}
        self._tell = tell
        self._began = began
        self._told: dict[str, float] = {}
        """Kind of line → when the newest was told."""
        self._phase = ""
        self._total: int | None = None
        self._first: Mapping[str, Any] | None = None
        """The first step that was heard of; what comes before it is no measure of speed."""
        self._last: Mapping[str, Any] | None = None
        self._step_told: Mapping[str, Any] | None = None
        self._result = ""

    def look(self, now: float) -> None:
        """Tell what was said since; `now` is of the same clock."""
        for path, place in self._places.items():
            for event in decode_all(read_on(path, place)):
                if event.get("attempt") == self._attempt:
                    self._hear(event, now)
        self._tell_step(now)

    def _hear(self, event: Mapping[str, Any], now: float) -> None:
        kind, rank = event.get("kind"), event.get("rank")
        if kind == "phase":
            self._hear_phase(event, now)
        elif kind == "warn" and rank is not None:
            self._tell(f"warning: {event.get('text')}")
        elif kind == "train" and _is_step(event):
            self._first = self._first or event
            self._last = event
        elif kind == "eval":
            loss = (event.get("metrics") or {}).get("eval_loss")
            if isinstance(loss, int | float):
                line = f"step {event.get('step')}: eval loss {loss:.4f}"
                self._now_and_then("eval", line, now)
        elif kind == "saved" and event.get("step") == self._total:
            self._hear_result(Path(str(event.get("path"))))
        elif kind == "done" and event.get("exit_code") == EXIT_OK:
            self._tell_step(now)
            self._tell(self._end_line(event))

    def _hear_phase(self, event: Mapping[str, Any], now: float) -> None:
        total, phase, detail = event.get("total_steps"), event.get("phase"), event.get("detail")
        if isinstance(total, int):
            self._total = total
        if event.get("rank") is None:
            if detail and phase in ("fetching", "preparing"):
                self._now_and_then("detail", str(detail), now)
        elif self._first is None and phase != self._phase and phase != "starting":
            self._phase = str(phase)
            self._tell(self._phase)

    def _hear_result(self, path: Path) -> None:
        if path.name == "model":
            self._result = f"; the result is {path}"

    def _now_and_then(self, kind: str, line: str, now: float, *, always: bool = False) -> bool:
        """Tell a line unless one of its kind was told a short while ago; whether it was told."""
        pause = min(max(FIRST_PAUSE, SHARE * (now - self._began)), LAST_PAUSE)
        if always or kind not in self._told or now - self._told[kind] >= pause:
            self._told[kind] = now
            self._tell(line)
            return True
        return False

    def _tell_step(self, now: float) -> None:
        step = self._last
        if step is not None and step is not self._step_told:
            at_end = step["step"] == self._total
            if self._now_and_then("step", self._step_line(step), now, always=at_end):
                self._step_told = step

    def _step_line(self, event: Mapping[str, Any]) -> str:
        step, loss = event["step"], event.get("loss")
        of = f" of {self._total}" if self._total else ""
        parts = [f"step {step}{of}"]
        if isinstance(loss, int | float):
            parts.append(f"loss {loss:.4f}")
        first = self._first
        if first is not None and step > first["step"]:
            seconds = (event["t"] - first["t"]) / (step - first["step"])
            parts.append(f"{seconds:.2g} s a step")
            if self._total and self._total > step:
                parts.append(f"about {span(seconds * (self._total - step))} left")
        return ", ".join(parts)

    def _end_line(self, done: Mapping[str, Any]) -> str:
        parts = [f"done after {span(float(done.get('seconds') or 0))}"]
        losses = [one.get("loss") for one in (self._first, self._last) if one is not None]
        if self._last is not self._first and all(isinstance(one, int | float) for one in losses):
            parts.append(f"loss {losses[0]:.4f} → {losses[1]:.4f}")
        return ", ".join(parts) + self._result


def _is_step(event: Mapping[str, Any]) -> bool:
    return isinstance(event.get("step"), int) and isinstance(event.get("t"), int | float)


def span(seconds: float) -> str:
    """Seconds as `42 s`, `7 min` or `2 h 05 min`."""
    if seconds < 90:
        return f"{max(seconds, 0):.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
