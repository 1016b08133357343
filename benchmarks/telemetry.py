"""What a step's telemetry takes of the processor: `python -m benchmarks.telemetry`.

The meter and the report of a rank are driven as the trainer drives them, ten steps a second as they
are told: a `train` event each step, a `step` event each five, a pulse each fifty. Processor time is
what is counted, so that other programs on the machine do not matter. An accelerator's events and
sensors are not in it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

STEPS = 2000
STEPS_A_SECOND = 10
ALLOWED_PERCENT = 0.5


def per_step(work: Callable[[int], None]) -> float:
    """Processor seconds of one call."""
    began = time.thread_time()
    for number in range(STEPS):
        work(number)
    return (time.thread_time() - began) / STEPS


def measure(folder: Path) -> float:
    """Processor seconds that a step's telemetry takes, without what the trainer does anyway."""
    import torch

    from engine.measure import StepMeter
    from engine.report import PULSE_SECONDS, Report
    from engine.spec import ParallelTable

    (folder / "events").mkdir()
    report = Report(folder, rank=0, attempt=0, rung=0)
    parallel = ParallelTable(strategy="single", device_kind="cpu")
    meter = StepMeter(report, torch.device("cpu"), parallel, own=[0], tokens_before=0)
    batch = [{"attention_mask": torch.ones(4, 512, dtype=torch.long)}]

    def get_batch_samples() -> tuple[list[dict[str, Any]], int]:
        return batch, 1

    trainer = SimpleNamespace(get_batch_samples=get_batch_samples, model_wrapped=None)
    meter.attach(trainer)
    state: Any = SimpleNamespace(
        global_step=0, max_steps=STEPS, is_world_process_zero=True, epoch=1.0
    )
    nothing: Any = None
    meter.on_train_begin(nothing, state, nothing)
    logs = {"loss": 1.5, "learning_rate": 1e-4, "grad_norm": 0.5, "num_tokens": 1e6}

    def step(number: int) -> None:
        state.global_step = number + 1
        trainer.get_batch_samples()
        meter._line_written = 0.0 if number % (STEPS_A_SECOND // 2) == 0 else time.perf_counter()
        meter.on_step_end(nothing, state, nothing)
        meter.on_log(nothing, state, nothing, logs=logs)

    def pulse(_: int) -> None:
        # One round of the loop that a thread of its own makes; it ends where nothing is waited for.
        report._ended.clear()
        report._changed.set()
        report._changed.wait = lambda *_: report._ended.set()  # type: ignore[method-assign,assignment,return-value]
        report._pulse_loop()

    steps, pulses = per_step(step), per_step(pulse)
    return (
        steps - per_step(lambda _: get_batch_samples()) + pulses / (STEPS_A_SECOND * PULSE_SECONDS)
    )


def main() -> None:
    """Print it, as a share of a step."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(Path(folder))
    share = 100 * seconds * STEPS_A_SECOND
    print(
        f"{1e6 * seconds:.0f} µs of the processor a step: {share:.2f} % at {STEPS_A_SECOND} steps "
        f"a second, of {ALLOWED_PERCENT} % allowed"
    )


if __name__ == "__main__":
    main()
