"""Child process that asks NVML about every NVIDIA device and prints JSON lines.

A driver that hangs or crashes takes this process with it, never the one that shows the wizard;
what was printed until then is kept. Every device is asked in a thread of its own, so that one
that hangs holds up no other, and eight take as long as one.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from wizard.probe.nvml_calls import CALLS, QUICK_CALLS, SLICE_CALLS, Card, ask, ask_all, trouble
from wizard.probe.nvml_links import say_links, say_pairs

Say: TypeAlias = Callable[[Mapping[str, Any]], None]
MOST_DEVICES = 128


def main() -> int:
    """Print one line for the driver, a quick and a full one for each device, and `end`."""
    import pynvml

    report(pynvml, _printer())
    return 0


def report(nvml: Any, say: Say) -> None:
    """Ask everything; nvml is the pynvml module, or what has its shape."""
    try:
        nvml.nvmlInit()
    except Exception as error:
        say({"kind": "error", "where": "nvmlInit", **trouble(error)})
        return
    say(
        {
            "kind": "driver",
            "driver": ask(nvml.nvmlSystemGetDriverVersion),
            "cuda": ask(nvml.nvmlSystemGetCudaDriverVersion_v2),
        }
    )
    try:
        count = min(int(nvml.nvmlDeviceGetCount()), MOST_DEVICES)
    except Exception as error:
        say({"kind": "error", "where": "nvmlDeviceGetCount", **trouble(error)})
        return
    _devices(nvml, count, say)
    say({"kind": "end"})


def _devices(nvml: Any, count: int, say: Say) -> None:
    if count < 1:
        return
    with ThreadPoolExecutor(max_workers=count) as pool:
        opened = pool.map(lambda index: _quick(nvml, index, say), range(count))
        cards = [card for card in opened if card is not None]
        list(pool.map(lambda card: _full(nvml, card, cards, say), cards))


def _quick(nvml: Any, index: int, say: Say) -> Card | None:
    """Name and memory of a card and of its slices; None when the card cannot be opened."""
    try:
        card = nvml.nvmlDeviceGetHandleByIndex(index)
    except Exception as error:
        say({"kind": "error", "where": "device", "index": index, **trouble(error)})
        return None
    mig = ask(nvml.nvmlDeviceGetMigMode, card)
    sliced = isinstance(mig, Sequence) and bool(mig) and mig[0] == 1
    said = ask_all(QUICK_CALLS, nvml, card)
    say({"kind": "device", "index": index, "mig": sliced, **said})
    if sliced:
        for number, one in _slices(nvml, card):
            asked = ask_all(SLICE_CALLS, nvml, one)
            say({"kind": "slice", "index": index, "slice": number, **asked})
    return Card(index, card, said["values"].get("uuid"))


def _slices(nvml: Any, card: Any) -> list[tuple[int, Any]]:
    """(number, handle) of the MIG slices; an empty place between them is skipped."""
    count = ask(nvml.nvmlDeviceGetMaxMigDeviceCount, card)
    places = range(min(count, MOST_DEVICES)) if isinstance(count, int) else range(0)
    found = ((i, ask(nvml.nvmlDeviceGetMigDeviceHandleByIndex, card, i)) for i in places)
    return [(number, one) for number, one in found if one is not None]


def _full(nvml: Any, card: Card, cards: Sequence[Card], say: Say) -> None:
    """Everything else of a card: its slow line, its links, its pairs with later cards."""
    say({"kind": "details", "index": card.index, **ask_all(CALLS, nvml, card.handle)})
    say_links(nvml, card, say)
    say_pairs(nvml, card, cards, say)


def _printer() -> Say:
    lock = threading.Lock()

    def say(line: Mapping[str, Any]) -> None:
        text = json.dumps(line, default=str)
        with lock:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    return say


if __name__ == "__main__":
    sys.exit(main())
