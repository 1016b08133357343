"""Times the steps of any trainer built on transformers, alike for all; found through PYTHONPATH.

With STOPWATCH_FILE set, each rank writes `<file>.<rank>.json` when its training ends: the seconds
since the epoch at which each optimizer step ended, and what the batches held. Batches are kept and
counted only then, so that nothing waits for a device to be counted.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import json
import os
import sys
import time
from typing import Any

MODULE = "transformers.trainer"
IGNORED = -100


class Finder(importlib.abc.MetaPathFinder):
    """Listens to the trainer's module once it is loaded."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The module's own spec, whose loader also calls `listen`."""
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            listen(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Stopwatch:
    """What one rank did, step by step."""

    def __init__(self, synced: frozenset[int]) -> None:
        """At the `synced` steps the device is waited for, so that their times are true."""
        self.synced = synced
        self.ends: list[float] = []
        self.cpu: list[float] = []
        self.batches: list[list[Any]] = [[]]

    def batch(self, inputs: Any) -> None:
        """Keep a micro-batch."""
        kept = ("input_ids", "labels", "attention_mask")
        self.batches[-1].append({name: inputs.get(name) for name in kept})

    def step(self) -> None:
        """An optimizer step ended."""
        import torch

        if len(self.ends) + 1 in self.synced and torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.time())
        self.cpu.append(time.process_time())
        self.batches.append([])

    def write(self, path: str) -> None:
        """Write everything; a step's rows also as one number that their order does not change."""
        steps = [_counted(batches) for batches in self.batches if batches]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(
                {"ends": self.ends, "cpu": self.cpu, "steps": steps, "settings": settings()}, file
            )


def _counted(batches: list[Any]) -> dict[str, int]:
    said = {"rows": 0, "padded": 0, "tokens": 0, "trained": 0, "digest": 0}
    for batch in batches:
        ids, labels, mask = batch["input_ids"], batch["labels"], batch["attention_mask"]
        said["padded"] += ids.numel()
        said["tokens"] += int(mask.sum()) if mask is not None else ids.numel()
        said["trained"] += int((labels[:, 1:] != IGNORED).sum())
        for row in range(len(ids)):
            real = mask[row].bool() if mask is not None else slice(None)
            both = (ids[row][real].tolist(), labels[row][real].tolist())
            content = hashlib.blake2b(repr(both).encode(), digest_size=6).digest()
            said["digest"] += int.from_bytes(content, "big")
            said["rows"] += 1
    return said


def settings() -> dict[str, Any]:
    """What the process trains with, as it ended up."""
    import torch

    return {
        "threads": torch.get_num_threads(),
        "versions": {
            name: sys.modules[name].__version__
            for name in ("torch", "transformers", "peft", "accelerate", "trl")
            if name in sys.modules
        },
    }


def listen(module: Any) -> None:
    """Count each micro-batch and each optimizer step of `Trainer`, whatever class is made of it."""
    file = os.environ["STOPWATCH_FILE"]
    synced = frozenset(int(n) for n in os.environ.get("STOPWATCH_SYNCED", "").split(",") if n)
    watch = Stopwatch(synced)
    trainer, handler = module.Trainer, module.CallbackHandler
    train_step, step_end, train_end = (
        trainer.training_step,
        handler.on_step_end,
        handler.on_train_end,
    )

    def training_step(self: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        watch.batch(inputs)
        return train_step(self, model, inputs, *args, **kwargs)

    def on_step_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch.step()
        return step_end(self, *args, **kwargs)

    def on_train_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = train_end(self, *args, **kwargs)
        watch.write(f"{file}.{os.environ.get('RANK', '0')}.json")
        return done

    trainer.training_step = training_step
    handler.on_step_end, handler.on_train_end = on_step_end, on_train_end


if os.environ.get("STOPWATCH_FILE"):
    sys.meta_path.insert(0, Finder())
