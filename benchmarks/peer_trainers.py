"""The trainers that are timed beside each other: where each comes from, and how it is asked.

Each is asked as its own documentation says, for the same `Job`. With `Job.own_defaults` only the
work is said (model, rows, adapter, rows a step, steps), and everything that is about speed is left
to the trainer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 42
LEARNING_RATE = 1e-4
RANK, ALPHA = 8, 16
MAX_LENGTH = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Work that every trainer is given alike: LoRA on all linear layers, one pass over the rows."""

    model: Path
    data: Path
    """JSON Lines with `messages`."""
    ranks: int
    kind: str
    """`cpu` or `cuda`."""
    rows_at_once: int
    """Rows of a rank in a micro-batch; each trainer's own choice with `own_defaults`."""
    rows_a_step: int
    steps: int
    threads: int
    """Of a rank."""
    checkpointing: bool = False
    own_defaults: bool = False

    @property
    def accumulation(self) -> int:
        """Micro-batches of a step."""
        return self.rows_a_step // (self.rows_at_once * self.ranks)


Command = tuple[list[str], dict[str, str]]
"""(words, variables of the environment)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainer:
    """A trainer in an environment of its own."""

    packages: tuple[str, ...]
    """Laid over the packages installed here, so that torch is the same for all."""
    unwanted: tuple[str, ...]
    """What comes along and must go."""
    command: Callable[[Job, Path, Path], Command]
    """(job, empty folder, python of its environment) → what starts it; it may fill the folder."""
    blank: tuple[str, ...] = ()
    """Modules that it imports and text does not need: empty ones stand in for them."""


def environment(trainer: Trainer, folder: Path) -> Path:
    """The python of a trainer's environment, made on first use."""
    python = folder / "bin" / "python"
    done = folder / "made"
    if done.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here = sysconfig.get_path("purelib")
    shared = folder / "lib" / version / "site-packages" / "shared.pth"
    shared.write_text("".join(f"{path}\n" for path in _package_folders(Path(here))))
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    if trainer.packages:
        import torch

        torch_here = f"torch=={torch.__version__.split('+')[0]}"
        subprocess.run([*pip, "install", "--quiet", *trainer.packages, torch_here], check=True)
    if trainer.unwanted:
        subprocess.run([*pip, "uninstall", "--quiet", "--yes", *trainer.unwanted], check=True)
    for module in trainer.blank:
        (shared.parent / f"{module}.py").touch()
    done.touch()
    return python


def _package_folders(here: Path) -> list[str]:
    """Folders that hold the packages of this environment, which may be laid over another one."""
    return [path for path in sys.path if Path(path).name == "site-packages"] or [str(here)]


def _torchrun(python: Path, ranks: int) -> list[str]:
    return [
        *(str(python), "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(ranks)),
    ]


def _tunewright(job: Job, folder: Path, python: Path) -> Command:
    """The run folder that the command writes; its own script is the run."""
    settings: dict[str, Any] = {
        "method": "lora",
        "lora_rank": RANK,
        "lora_alpha": ALPHA,
        "effective_batch_size": job.rows_a_step,
        "max_steps": job.steps,
        "max_length": MAX_LENGTH,
        "learning_rate": LEARNING_RATE,
        "save_steps": 10 * job.steps,  # nobody saves while the clock runs
    }
    if not job.own_defaults:
        settings |= {
            "dtype": "bfloat16",
            "num_devices": job.ranks,
            "strategy": "single" if job.ranks == 1 else "ddp",
            "per_device_train_batch_size": job.rows_at_once,
            "gradient_accumulation_steps": job.accumulation,
            "gradient_checkpointing": job.checkpointing,
            "optim": "adamw_torch_fused",
            "lr_scheduler_type": "constant",
            "warmup_ratio": 0.0,
        }
    words = [word for pair in settings.items() for word in ("--set", "{}={}".format(*pair))]
    planned = subprocess.run(
        [
            *(sys.executable, "-m", "wizard", "run", "--write-only", "--yes", "--no-history"),
            *("--model", str(job.model), "--data", str(job.data), "--name", "run"),
            *("--output", str(folder), *words),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if planned.returncode:
        raise RuntimeError(planned.stderr or planned.stdout)
    return ["bash", str(folder / "run" / "run.sh")], {}


TRL_SCRIPT = '''"""A plain script of TRL's own trainer."""
import json, sys
from datasets import load_dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

job = json.load(open(sys.argv[1]))
rows = load_dataset("json", data_files=job["data"], split="train").map(
    lambda row: {"prompt": row["messages"][:-1], "completion": row["messages"][-1:]},
    remove_columns=["messages"],
)
trainer = SFTTrainer(
    model=job["model"],
    args=SFTConfig(**job["settings"]),
    train_dataset=rows,
    peft_config=LoraConfig(**job["adapter"]),
)
trainer.train()
'''


def _trl(job: Job, folder: Path, python: Path) -> Command:
    settings: dict[str, Any] = {
        "output_dir": str(folder / "out"),
        "max_steps": job.steps,
        "learning_rate": LEARNING_RATE,
        "report_to": "none",
        "save_strategy": "no",
        "seed": SEED,
        "use_cpu": job.kind == "cpu",
    }
    settings |= _split(job, default=8)
    if not job.own_defaults:
        settings |= {
            "gradient_checkpointing": job.checkpointing,
            "lr_scheduler_type": "constant",
            "logging_steps": 1,
            "optim": "adamw_torch_fused",
            "bf16": True,
            "max_length": MAX_LENGTH,
            "model_init_kwargs": {"dtype": "bfloat16", "attn_implementation": "sdpa"},
        }
    adapter = {"r": RANK, "lora_alpha": ALPHA, "target_modules": "all-linear"}
    asked = {"model": str(job.model), "data": str(job.data)}
    (folder / "script.py").write_text(TRL_SCRIPT)
    (folder / "job.json").write_text(
        json.dumps({**asked, "settings": settings, "adapter": adapter})
    )
    words = [str(folder / "script.py"), str(folder / "job.json")]
    start = _torchrun(python, job.ranks) if job.ranks > 1 else [str(python)]
    return [*start, *words], {}


def _split(job: Job, *, default: int) -> dict[str, int]:
    """Rows at once and micro-batches; `default` are the rows at once a trainer would take."""
    at_once = min(default, job.rows_a_step // job.ranks) if job.own_defaults else job.rows_at_once
    return {
        "per_device_train_batch_size": at_once,
        "gradient_accumulation_steps": job.rows_a_step // (at_once * job.ranks),
    }


def _llamafactory(job: Job, folder: Path, python: Path) -> Command:
    told = {
        "rows": {
            "file_name": str(job.data),
            "formatting": "sharegpt",
            "columns": {"messages": "messages"},
            "tags": {
                "role_tag": "role",
                "content_tag": "content",
                "user_tag": "user",
                "assistant_tag": "assistant",
                "system_tag": "system",
            },
        }
    }
    (folder / "dataset_info.json").write_text(json.dumps(told))
    settings: dict[str, Any] = {
        "stage": "sft",
        "do_train": True,
        "model_name_or_path": str(job.model),
        "finetuning_type": "lora",
        "lora_rank": RANK,
        "lora_alpha": ALPHA,
        "lora_target": "all",
        "dataset": "rows",
        "dataset_dir": str(folder),
        "output_dir": str(folder / "out"),
        "max_steps": job.steps,
        "learning_rate": LEARNING_RATE,
        "report_to": "none",
        "save_strategy": "no",
        "seed": SEED,
        "use_cpu": job.kind == "cpu",
        "overwrite_cache": True,
        **_split(job, default=8),
    }
    if not job.own_defaults:
        settings |= {
            "bf16": True,
            "disable_gradient_checkpointing": not job.checkpointing,
            "flash_attn": "sdpa",
            "optim": "adamw_torch_fused",
            "lr_scheduler_type": "constant",
            "cutoff_len": MAX_LENGTH,
            "logging_steps": 1,
        }
    if job.ranks > 1:
        settings |= {"ddp_backend": "gloo" if job.kind == "cpu" else "nccl"}
    # It does not read JSON files, though it says so; YAML files may hold the same.
    (folder / "job.yaml").write_text(json.dumps(settings))
    asked = str(folder / "job.yaml")
    if job.ranks == 1:
        start = "import sys; from llamafactory.cli import main; sys.argv[0] = 'llamafactory-cli'"
        return [str(python), "-c", f"{start}; main()", "train", asked], {}
    # What its command line does itself with a torchrun on the path.
    packages = python.parent.parent / "lib"
    (launcher,) = packages.glob("python*/site-packages/llamafactory/launcher.py")
    return [*_torchrun(python, job.ranks), str(launcher), asked], {}


def _swift(job: Job, folder: Path, python: Path) -> Command:
    settings: dict[str, Any] = {
        "model": job.model,
        "model_type": "llama",
        "template": "chatml",
        "dataset": job.data,
        "tuner_type": "lora",
        "lora_rank": RANK,
        "lora_alpha": ALPHA,
        "lora_dropout": 0.0,
        "target_modules": "all-linear",
        "max_steps": job.steps,
        "learning_rate": LEARNING_RATE,
        "output_dir": folder / "out",
        "save_strategy": "no",
        "report_to": "none",
        "seed": SEED,
        "use_hf": "true",
        "use_cpu": str(job.kind == "cpu").lower(),
        **_split(job, default=1),
    }
    if not job.own_defaults:
        settings |= {
            "torch_dtype": "bfloat16",
            "bf16": "true",
            "gradient_checkpointing": str(job.checkpointing).lower(),
            "attn_impl": "sdpa",
            "optim": "adamw_torch_fused",
            "lr_scheduler_type": "constant",
            "warmup_ratio": 0.0,
            "weight_decay": 0.0,
            "max_length": MAX_LENGTH,
            "logging_steps": 1,
            "dataloader_num_workers": 0,
        }
    if job.ranks > 1:
        settings |= {"ddp_backend": "gloo" if job.kind == "cpu" else "nccl"}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    more = {"NPROC_PER_NODE": str(job.ranks)} if job.ranks > 1 else {}
    start = "import sys; from swift.cli.main import cli_main; sys.argv[0] = 'swift'; cli_main()"
    return [str(python), "-c", start, "sft", *words], more


def variables(job: Job, python: Path) -> dict[str, str]:
    """The environment of every trainer; the product's own script sets its threads itself."""
    return {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": str(job.threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DISABLE_VERSION_CHECK": "1",
    }


TRAINERS: Mapping[str, Trainer] = {
    "Tunewright": Trainer(packages=(), unwanted=(), command=_tunewright),
    "a TRL script": Trainer(packages=(), unwanted=(), command=_trl),
    "LLaMA-Factory 0.9.5": Trainer(
        packages=("llamafactory==0.9.5",),
        # Made for accelerators, these do not load beside a torch for CPUs; text does not need them.
        unwanted=("torchvision", "torchaudio"),
        blank=("torchaudio",),
        command=_llamafactory,
    ),
    "ms-swift 4.6.0": Trainer(
        packages=("ms-swift==4.6.0", "modelscope"), unwanted=(), command=_swift
    ),
}
