"""Looking at a run again and again, in a thread beside the screen."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from wizard.dashboard.predicted import predicted
from wizard.dashboard.source import LogOf, Source
from wizard.dashboard.view import View, view_of
from wizard.problem import Problem
from wizard.widgets.page import problem_from

POLL_SECONDS, ENDED_POLL_SECONDS, READING_SECONDS = 1.0, 5.0, 0.02
"""Between two looks at a run: while it runs, once it has ended, while its history is read."""
PART_SECONDS = 0.2
"""How long a part of a long history is read before the screen is told."""


def views(
    run: Path, source: Source, log_of: Callable[[], LogOf], wake: threading.Event
) -> Iterator[View | Problem]:
    """What is read of a run, again and again, or why nothing was; `wake` ends a pause early."""
    follower, plan, pause = None, None, POLL_SECONDS
    while True:
        try:
            follower = follower or source.follow(run)
            plan = plan or source.run_details(run).get("plan")
            log = source.read_log(run, log_of())
            state = follower.poll(PART_SECONDS)
            yield view_of(state, predicted(plan), log, source.clock())
            pause = ENDED_POLL_SECONDS if state.ended else POLL_SECONDS
            pause = READING_SECONDS if state.history_share < 1 else pause
        except Exception as error:
            yield problem_from(error)
        wake.wait(pause)
        wake.clear()
