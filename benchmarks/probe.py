"""How long the probe takes: NVML with slow calls, torch cold and remembered, no device, a hang.

Run: python benchmarks/probe.py [rounds]. NVML is the double of tests/fakes in a child of its own,
eight H100 whose every call takes 10 ms; the rest is this machine. Prints the least and the most
of the rounds; asserts nothing. The hang takes its whole time limit, once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from wizard.probe import accelerators, running, torchview

ROOT = Path(__file__).resolve().parent.parent

NVML_CHILD = """
import json, os
from tests.fakes import nvml
from wizard.probe import nvidia

def say(line):
    # Several threads speak: a line is one write.
    os.write(1, (json.dumps(line, default=str) + "\\n").encode())

double = nvml.load("h100x8_sxm_hgx")
double.seconds_per_call = 0.01
nvidia.report(double, say)
"""
WHOLE_PROBE = "from wizard.probe import probe_machine; probe_machine()"


def nvml() -> tuple[float, float, int]:
    """Seconds until the last name and memory, and until everything is said; cards seen."""
    begun = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", NVML_CHILD], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    named = whole = 0.0
    cards = 0
    for text in child.stdout:
        kind = json.loads(text)["kind"]
        if kind == "device":
            named, cards = time.monotonic() - begun, cards + 1
        whole = time.monotonic() - begun
    child.wait()
    return named, whole, cards


def command(*arguments: str) -> float:
    """Seconds of a child of this Python, from start to end."""
    begun = time.monotonic()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def torch_twice() -> tuple[float, float]:
    """Seconds to ask torch in a home where nothing is remembered of it, and to ask again."""
    before = os.environ.get("TUNEWRIGHT_HOME")
    with tempfile.TemporaryDirectory() as home:
        os.environ["TUNEWRIGHT_HOME"] = home
        cold = seconds(lambda: torchview.read_torch(ask=True, run=running.run))
        again = seconds(lambda: torchview.read_torch(ask=True, run=running.run))
    os.environ.pop("TUNEWRIGHT_HOME")
    os.environ.update({"TUNEWRIGHT_HOME": before} if before is not None else {})
    return cold, again


def seconds(work: Callable[[], object]) -> float:
    """Seconds of a piece of work in this process."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def hung() -> tuple[float, str]:
    """Seconds that a driver which never answers costs, and what is said of it."""

    def never(given: Sequence[str], limit_seconds: float) -> running.Ran:
        sleeper = [sys.executable, "-c", "import time; time.sleep(86400)"]
        is_child = list(given) == list(accelerators.CHILD)
        return running.run(sleeper if is_child else given, limit_seconds)

    with tempfile.TemporaryDirectory() as root:
        begun = time.monotonic()
        found = accelerators.read_nvidia(Path(root), never)
        return time.monotonic() - begun, "; ".join(str(problem) for problem in found.problems)


def line(name: str, values: Sequence[float], target: str) -> None:
    """One measurement."""
    print(f"{name:<52} {min(values):6.2f} – {max(values):5.2f} s   wanted: {target}")


def main(rounds: int) -> None:
    """Print one line for each measurement."""
    asked = [nvml() for _ in range(rounds)]
    cards = min(count for _, _, count in asked)
    quick, whole_nvml = ([one[part] for one in asked] for part in (0, 1))
    line(f"NVML, 10 ms a call: names and memory of {cards} cards", quick, "≤ 0.5")
    line(f"NVML, 10 ms a call: all facts of {cards} cards", whole_nvml, "≤ 3")
    line(
        "probe_machine() and its start", [command("-c", WHOLE_PROBE) for _ in range(rounds)], "≤ 1"
    )
    whole = [command("-m", "wizard", "probe") for _ in range(rounds)]
    line("tunewright probe, from start to end", whole, "≤ 1")
    line("import torch, alone", [command("-c", "import torch") for _ in range(rounds)], "–")
    torch = [torch_twice() for _ in range(rounds)]
    line("torch, asked in a child", [cold for cold, _ in torch], "≤ 10")
    line("torch, remembered", [again for _, again in torch], "≤ 1")
    took, said = hung()
    line("NVML that never answers", [took], f"≤ {accelerators.TIME_LIMIT_SECONDS:.0f}")
    print(f"  said: {said}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
