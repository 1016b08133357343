"""Trains the specs of several run folders in one torchrun, which pays for the imports once."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECONDS = 500


def train_together(folders: Sequence[Path], ranks: int, *words: str) -> str:
    """Train each folder's spec, one after the other; what all ranks printed."""
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, "-m", __name__, *words, *map(str, folders)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return done.stdout


def reset() -> None:
    """Forget what the libraries keep of a run for the next one of this process.

    The ranks' process group stays: the next run finds it and uses it.
    """
    from accelerate.state import AcceleratorState, GradientState, PartialState
    from transformers.integrations.deepspeed import unset_hf_deepspeed_config

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    PartialState._reset_state()
    unset_hf_deepspeed_config()
    for name in [name for name in os.environ if name.startswith(("FSDP_", "ACCELERATE_"))]:
        del os.environ[name]
    gc.collect()


def keep_rows() -> None:
    """Write down of every micro-batch which rows it has, in the run folder of the moment."""
    from transformers import Trainer

    whole = Trainer.training_step

    def training_step(trainer: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        ids = inputs["input_ids"]
        real = inputs.get("attention_mask", ids.new_ones(ids.shape))  # rows joined in one have none
        rows = zip(ids.tolist(), real.tolist(), strict=True)
        told = [[token for token, is_real in zip(*row, strict=True) if is_real] for row in rows]
        file = Path(f"rows-{attempt()}-{os.environ['RANK']}.jsonl")
        with file.open("a", encoding="ascii") as lines:
            lines.write(json.dumps({"step": trainer.state.global_step + 1, "rows": told}) + "\n")
        return whole(trainer, model, inputs, *args, **kwargs)

    Trainer.training_step = training_step


def attempt() -> int:
    """The attempt that this process was started as."""
    return int(sys.argv[sys.argv.index("--attempt") + 1]) if "--attempt" in sys.argv else 0


def main() -> None:
    """A rank: `engine.train` in each folder, with the words that are options."""
    # A run leaves out what it has no use for, but not what is loaded: the next one may use it.
    import bitsandbytes  # noqa: F401
    import deepspeed  # noqa: F401

    from engine import shard, train

    # All of the tiny model is smaller than what ZeRO-3 keeps whole; here it shards everything.
    shard.PERSISTENT_ELEMENTS = 0
    keep_rows()
    folders = [word for word in sys.argv[1:] if word.startswith("/")]
    options = [word for word in sys.argv[1:] if not word.startswith("/")]
    for folder in folders:
        os.chdir(folder)
        sys.argv = ["engine.train", "spec.toml", *options]
        train.main()
        reset()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
