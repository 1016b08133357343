"""Measure: where the time of each step goes on this rank, and what it takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from engine.collectives import Collectives
from engine.report import (
    LINE_SECONDS,
    Report,
    process_memory_bytes,
    process_memory_peak_bytes,
)
from engine.spec import ParallelTable

SAMPLED_EVERY, SAMPLED_FIRST = 20, 2
"""Where collectives are inside the passes: the steps in which waiting is measured."""


class Clock:
    """Marks on the device's own time line, so that nothing waits for a device to be measured."""

    def __init__(self, device: torch.device, own: Sequence[int]) -> None:
        """`own` are the numbers of the devices that hold this rank's model."""
        self.own = own
        self.runtime: Any = None if device.type == "cpu" else getattr(torch, device.type)

    def mark(self) -> Any:
        """This moment in the work given to the device so far."""
        if self.runtime is None:
            return time.perf_counter()
        event = self.runtime.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Time between two marks; the device must have passed them."""
        if self.runtime is None:
            return float(end - start)
        return float(start.elapsed_time(end)) / 1000

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.runtime is not None:
            self.runtime.synchronize()

    def memory(self) -> dict[str, int | None]:
        """Memory of this process: allocated, reserved, most ever; on the fullest of its devices."""
        names = ("memory_allocated", "memory_reserved", "max_memory_allocated")
        keys = ("memory_allocated_bytes", "memory_reserved_bytes", "memory_peak_bytes")
        return {
            key: max(getattr(self.runtime, name)(device) for device in self.own)
            if self.runtime is not None
            else None
            for key, name in zip(keys, names, strict=True)
        }


def _counted(batch: Any) -> tuple[Any, int]:
    """(tokens of rows, tokens with their padding) of a batch; rows in one sequence have none."""
    mask = batch.get("attention_mask")
    if mask is None:
        size = batch["input_ids"].numel()
        return size, size
    return mask.sum(), mask.numel()


class StepMeter(TrainerCallback):  # type: ignore[misc]
    """Writes `step`, `train` and `saved` events.

    Waiting is what a rank spends in collectives: from the moment its last gradient is handed over
    until the backward pass returns, and in the small gathers of the loss. A single rank has nobody
    to wait for. Under ZeRO and FSDP collectives are inside the passes and the step: in every 20th
    step they are gone through one by one, and a line tells how many of its steps were such.
    """

    def __init__(
        self,
        report: Report,
        device: torch.device,
        parallel: ParallelTable,
        *,
        own: Sequence[int],
        tokens_before: int,
    ) -> None:
        """`own` are the numbers of this rank's devices, of which `device` is the first.

        `tokens_before` were seen by all ranks in the attempts that this one goes on from.
        """
        self.report = report
        self.clock = Clock(device, own)
        self.alone = parallel.ranks == 1
        self.reduces = not self.alone and parallel.strategy in ("ddp", "layer_split")
        self.sampled: Collectives | None = None
        if not self.alone and not self.reduces:
            self.sampled = Collectives(self.clock.synchronize, self._at)
        self.tokens_before = self.tokens_seen = tokens_before
        self.total_steps = 0
        self.step_seconds: list[float] = []
        self.tokens = 0
        self.losses: list[float] = []
        self._pending: dict[str, Any] = {}
        self._line_written = 0.0
        self._started: float | None = None
        self._waits: list[tuple[Any, Any]] = []
        self._handed_over: Any = None
        self._data_seconds = 0.0
        self._gathered = 0.0
        self._wrapped: Callable[[], Any] = lambda: None
        self._counts: list[tuple[Any, int]] = []

    def attach(self, trainer: Any) -> None:
        """Listen to a trainer's batches and collectives."""
        trainer.get_batch_samples = self._timed_batches(trainer.get_batch_samples)
        if not self.alone:
            trainer.accelerator.gather = self._timed_gather(trainer.accelerator.gather)
        if self.sampled is not None:
            self.sampled.hook(torch.distributed.ProcessGroup)
        if self.reduces:
            trainer.accelerator.backward = self._timed_backward(trainer.accelerator.backward)
        self._wrapped = lambda: trainer.model_wrapped

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        start = self.clock.mark()
        self.report.doing = "collective"
        yield
        self.report.doing = "compute"
        self._waits.append((start, self.clock.mark()))

    def _timed_gather(self, gather: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self._waiting():
                return gather(*args, **kwargs)

        return timed

    def _timed_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> None:
            backward(*args, **kwargs)
            self.report.doing = "compute"
            if self._handed_over is not None:
                self._waits.append((self._handed_over, self.clock.mark()))
                self._handed_over = None

        return timed

    def _timed_batches(self, get: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self._started = time.perf_counter()
            self.report.doing = "data"
            self._listen()
            waits_before = len(self._waits)
            samples, items = get(*args, **kwargs)
            self.report.doing = "compute"
            gathered = self._drain(waits_before)
            self._data_seconds = max(0.0, time.perf_counter() - self._started - gathered)
            self._counts = [_counted(sample) for sample in samples]
            self._gathered = gathered
            return samples, items

        return timed

    def _listen(self) -> None:
        """Measure the waiting of the step that begins, if it is one of the sampled."""
        if self.sampled is not None:
            self.sampled.take()
            self.sampled.listening = len(self.step_seconds) % SAMPLED_EVERY == SAMPLED_FIRST

    def _waited(self) -> tuple[float | None, bool]:
        """(seconds this step waited, None where nobody knows; whether it is one of the sampled)."""
        told = self._drain(0) + self._gathered
        if self.sampled is None:
            return (None if self.alone else told), False
        listened, self.sampled.listening = self.sampled.listening, False
        return (self.sampled.take() if listened else None), listened

    def _drain(self, first: int) -> float:
        """Seconds waited since, forgotten by the list."""
        if len(self._waits) > first:
            self.clock.synchronize()
        waited = sum(self.clock.seconds(a, b) for a, b in self._waits[first:])
        del self._waits[first:]
        return waited

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Hear of the gradients that are handed over, and announce the first batch."""
        self.total_steps = state.max_steps
        wrapped = self._wrapped()
        if isinstance(wrapped, torch.nn.parallel.DistributedDataParallel):
            # torch refuses hooks whose annotations are text, as they are here: a lambda has none.
            wrapped.register_comm_hook(None, lambda _state, bucket: self._hand_over(bucket))
            # DDP shares buffers between its own forward and the model's.
            wrapped.register_forward_pre_hook(lambda *_: self._at("collective"))
            wrapped.module.register_forward_pre_hook(lambda *_: self._at("compute"))
        self.report.step = state.global_step
        self.report.phase("first batch")

    def _at(self, place: str) -> None:
        self.report.doing = place

    def _hand_over(self, bucket: Any) -> Any:
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        if bucket.is_last():
            self.report.doing = "collective"
            self._handed_over = self.clock.mark()
        return allreduce_hook(None, bucket)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Count a step; write a line unless the last one is too fresh."""
        self.report.doing = "device"
        self.clock.synchronize()
        now = time.perf_counter()
        seconds = now - (self._started or now)
        waited, sampled = self._waited()
        if sampled:
            self._add(sampled_steps=1)
        if self.sampled is None or sampled:
            own = max(0.0, seconds - (waited or 0.0))
            self._add(own_seconds=own, wait_seconds=waited)
        tokens = sum(int(count) for count, _ in self._counts)
        self.step_seconds.append(seconds)
        self.tokens += tokens
        if self.report.phase_name == "first batch":
            self.report.step = state.global_step
            self.report.phase("training", total_steps=self.total_steps)
        self.report.step = state.global_step
        self._add(
            steps=1,
            seconds=seconds,
            data_seconds=self._data_seconds,
            tokens=tokens,
            padded_tokens=sum(size for _, size in self._counts),
        )
        if now - self._line_written >= LINE_SECONDS:
            self.flush()

    def _add(self, **values: float | None) -> None:
        for name, value in values.items():
            before = self._pending.get(name)
            self._pending[name] = value if before is None or value is None else before + value

    def flush(self) -> None:
        """Write the steps that have no line yet."""
        if not self._pending:
            return
        fields = {k: round(v, 6) if isinstance(v, float) else v for k, v in self._pending.items()}
        self._pending = {}
        self._line_written = time.perf_counter()
        self.report.write(
            "step",
            **{"own_seconds": None, "wait_seconds": None, **fields},
            **self.clock.memory(),
            process_memory_bytes=process_memory_bytes(),
            process_memory_peak_bytes=process_memory_peak_bytes(),
        )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Write what the optimizer sees, on rank 0."""
        if not logs or "loss" not in logs:
            return
        self.losses.append(float(logs["loss"]))
        self.tokens_seen = self.tokens_before + int(logs.get("num_tokens", 0))
        if not state.is_world_process_zero:
            return
        self.report.write(
            "train",
            loss=logs["loss"],
            learning_rate=logs.get("learning_rate"),
            grad_norm=logs.get("grad_norm"),
            tokens_seen=self.tokens_seen,
            epoch=state.epoch,
        )

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Forget the collectives of an evaluation: they are no part of the next step."""
        self._waits.clear()
        if self.sampled is not None:
            self.sampled.listening = False

    def measured(self) -> dict[str, Any]:
        """This rank's own part of `result.json`; step times are in seconds, the median of them."""
        return {
            "memory_peak_bytes": self.clock.memory()["memory_peak_bytes"],
            "process_memory_peak_bytes": process_memory_peak_bytes(),
            "tokens": self.tokens,
            "training_seconds": sum(self.step_seconds),
            "step_seconds": statistics.median(self.step_seconds) if self.step_seconds else None,
            "steps": len(self.step_seconds),
            "losses": self.losses[:1] + self.losses[-1:],
        }
