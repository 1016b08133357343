"""Stands before pynvml on a child's path: the double of the machine that FAKE_NVML names."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from typing import Any

from tests.fakes.nvml import NVMLError, load

ASKED = json.loads(os.environ["FAKE_NVML"])


def misbehave(how: str) -> None:
    """Hang for an hour, or die by a signal; a number is an error code."""
    if how == "hang":
        time.sleep(3600)
    elif how.isdigit():
        raise NVMLError(int(how))
    else:
        os.kill(os.getpid(), signal.Signals[how])
        time.sleep(3600)  # a signal reaches the main thread, not always this one


nvml = load(ASKED["machine"])
nvml.seconds_per_call = ASKED.get("seconds_per_call", 0.0)
nvml.broken = {
    call: functools.partial(misbehave, how) for call, how in ASKED.get("broken", {}).items()
}


def __getattr__(name: str) -> Any:
    return getattr(nvml, name)
