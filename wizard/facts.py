"""What is true of machine, software, model and data; unknown is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wizard.problem import Problem

GIB = 1024**3


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One accelerator a rank can own, or the CPU."""

    kind: Literal["cuda", "npu", "cpu"]
    index: int
    name: str
    uuid: str | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    bf16_native: bool | None = None
    memory_bandwidth_gbs: float | None = None
    bf16_tflops: float | None = None
    source: str = ""
    """Where the numbers come from: nvml, torch, table, user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """The machine around the devices."""

    hostname: str
    system: str
    cpu_name: str | None = None
    cpu_cores: int | None = None
    """Cores this process may use, after affinity and container limits."""
    memory_total_bytes: int | None = None
    """After the container's limit, if there is one."""
    memory_available_bytes: int | None = None
    disk_path: str | None = None
    disk_free_bytes: int | None = None
    memory_limit_source: str | None = None
    """`cgroup` when a container limit is below the machine's memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """Installed versions; a package that is absent has None."""

    python: str
    versions: Mapping[str, str | None] = field(default_factory=dict)
    driver: str | None = None
    cuda: str | None = None
    """Highest CUDA version the driver serves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """A model as its folder, or the shipped table, describes it."""

    name: str
    """As the user gave it."""
    path: str | None
    """Its folder on this machine; None when it has to be fetched."""
    architecture: str | None = None
    """`model_type` of config.json."""
    parameters: int | None = None
    """All parameters, tied weights counted once."""
    embedding_parameters: int | None = None
    """Input embedding; not quantised and not adapted."""
    hidden_size: int | None = None
    intermediate_size: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    vocab_size: int | None = None
    max_positions: int | None = None
    tied_embeddings: bool | None = None
    dtype: str | None = None
    quantized: str | None = None
    """Method of an already quantised checkpoint."""
    has_chat_template: bool | None = None
    disk_bytes: int | None = None
    licence: str | None = None
    source: str = ""
    """`config.json`, `safetensors headers` or `shipped table`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A data file, read once from end to end."""

    path: str
    format: Literal["messages", "alpaca"] | None = None
    rows: int = 0
    """Usable rows."""
    dropped_rows: int = 0
    disk_bytes: int = 0
    longest_row_chars: int = 0
    total_chars: int = 0
    problems: tuple[Problem, ...] = ()
    """Bad rows, each with its line; at most twenty are kept."""
    first_rows: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Everything known when a plan is made."""

    devices: tuple[Device, ...]
    host: Host
    software: Software
    model: Model | None = None
    dataset: Dataset | None = None
    problems: tuple[Problem, ...] = ()
    """What the probe could not read, or found wrong."""

    @property
    def accelerators(self) -> tuple[Device, ...]:
        """Devices other than the CPU."""
        return tuple(d for d in self.devices if d.kind != "cpu")
