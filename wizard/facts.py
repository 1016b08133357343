"""What is true of machine, software, model and data; unknown is None."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from wizard.problem import Problem

GIB = 1024**3


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceProcess:
    """A process that holds memory on a device."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Readings:
    """What a device says of itself at the moment; a sensor that is missing is None, never 0."""

    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    sm_clock_mhz: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """Why its clock is held down; empty when it is not."""
    ecc_uncorrected: int | None = None
    """Uncorrected memory errors since the last reset."""
    remap_pending: bool | None = None
    """A faulty memory row waits for a reset to be replaced."""
    remap_failed: bool | None = None
    """A faulty row could not be replaced: the card is to be returned."""
    compute_mode: str | None = None
    """`default`, `exclusive_process` or `prohibited`."""
    persistence_mode: bool | None = None
    display_active: bool | None = None
    processes: tuple[DeviceProcess, ...] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Bus:
    """How a device hangs on the machine."""

    pci_id: str | None = None
    """As `00000000:3B:00.0`."""
    pcie_generation: int | None = None
    """Best it can do, not what it idles at."""
    pcie_width: int | None = None
    numa_node: int | None = None
    cpu_affinity: str | None = None
    """Cores near it, as `0-15,32-47`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One accelerator a rank can own, or the CPU."""

    kind: Literal["cuda", "rocm", "npu", "xpu", "mps", "cpu"]
    index: int
    name: str
    uuid: str | None = None
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    bf16_native: bool | None = None
    memory_bandwidth_gbs: float | None = None
    bf16_tflops: float | None = None
    memory_used_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    """Held back by the driver, part of the total."""
    unified_memory: bool = False
    """Host and device share one pool: offload to the host gains nothing."""
    mig_parent_uuid: str | None = None
    """UUID of the card this is a slice of."""
    bus: Bus = Bus()
    readings: Readings = Readings()
    source: str = ""
    """Where most numbers come from: nvml, nvidia-smi, torch, sysfs, npu-smi, table, user."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field → where it comes from, for those that differ from `source`."""
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Field that is None → why."""

    @property
    def coherent_memory(self) -> bool:
        """Grace beside Hopper or Blackwell: two memories in one address space, over NVLink-C2C."""
        return re.search(r"\bG[HB]\d00\b", self.name) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """How two devices reach each other; positions are those in `Facts.devices`."""

    devices: tuple[int, int]
    kind: Literal[
        "nvswitch", "nvlink", "xgmi", "hccs", "pcie-switch", "host-bridge", "socket", "unknown"
    ]
    gbs: float | None = None
    """GB/s in one direction."""
    peer_access: bool | None = None
    """Whether one reads the other's memory directly."""
    why: str = ""
    """Reason for `peer_access`, and what the bandwidth rests on."""
    source: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Island:
    """Devices that reach each other over one kind of link."""

    devices: tuple[int, ...]
    kind: str
    gbs: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A mounted file system that matters to a run."""

    path: str
    free_bytes: int
    total_bytes: int
    kind: str = ""
    """File system, as `ext4`."""
    speed: Literal["nvme", "ssd", "hdd", "memory", "network"] | None = None
    used_for: tuple[str, ...] = ()
    """`runs`, `cache`, `tmp`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """A folder a run writes to."""

    path: str
    used_for: str
    """`runs`, `cache`, `hub cache`, `tmp`."""
    writable: bool
    """A file could be made there, or in the nearest folder above that exists."""
    why_not: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    """How far a question to the model hub got."""

    host: str
    """The host that answered, or did not: the hub sends on to others."""
    kind: str
    """`ok`, else the trouble: `name`, `closed`, `slow`, `certificate`, `proxy`, `refused`, …"""
    detail: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """What else of a host decides whether a run lives; unknown is None."""

    swap_bytes: int | None = None
    shared_memory_bytes: int | None = None
    """Size of /dev/shm."""
    memlock_bytes: int | None = None
    """Limit on pinned memory; None when there is none."""
    open_files: int | None = None
    numa_nodes: int | None = None
    """Nodes with processors."""
    memory_only_nodes: int | None = None
    """Nodes without processors: a device's memory, or memory beside the bus."""
    disks: tuple[Disk, ...] = ()
    folders: tuple[Folder, ...] = ()
    suggested_home: str | None = None
    """A larger lasting disk for TUNEWRIGHT_HOME, when the one of the runs is small."""
    network: tuple[str, ...] = ()
    """Interfaces that are up, with their speed where it is known."""
    infiniband: tuple[str, ...] = ()
    container: str | None = None
    """`docker`, `podman`, `kubernetes`, `lxc`, … when inside one."""
    wsl: bool = False
    virtual_machine: str | None = None
    """`kvm`, `Amazon EC2`, … when inside one."""
    slurm_job: str | None = None
    login_node: bool = False
    """Looks like a node meant for logging in, not for training."""
    ends_detached_runs: str | None = None
    """What ends a run here when its starter leaves; None when nothing does."""
    ends_detached_fix: str = ""
    """What to do so that it lives on."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that change what a run does; passwords and tokens are left out."""
    broken_variables: Mapping[str, str] = field(default_factory=dict)
    """Variable that names a file or folder which is not there → that name."""
    other_accelerators: tuple[str, ...] = ()
    """Cards on the bus that compute and that no part of the probe can use."""
    hub: Reach | None = None
    """How the model hub answers; None until it was asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchView:
    """What torch, asked in a child process, sees of the accelerators."""

    version: str
    cuda: str | None = None
    hip: str | None = None
    arch_list: tuple[str, ...] = ()
    devices: tuple[TorchDevice, ...] = ()
    peer_access: tuple[tuple[int, int], ...] = ()
    """Pairs of torch indices of which the first reads the second's memory."""
    bnb_4bit: bool | None = None
    """Whether a 4-bit layer really ran on this device."""
    bnb_error: str | None = None
    """Why it did not."""
    cpu_adam: bool | None = None
    """Whether DeepSpeed's CPU Adam is built or can be."""
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchDevice:
    """One device as torch lists it."""

    index: int
    name: str
    uuid: str | None = None
    """Without `GPU-` or `MIG-` before it."""
    memory_total_bytes: int | None = None
    memory_free_bytes: int | None = None
    """Only asked where nothing else tells: the question itself takes memory."""
    compute_capability: tuple[int, int] | None = None
    integrated: bool | None = None
    """It shares the host's memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Rates measured on this machine by `probe --bench`, remembered per machine."""

    when: str
    device: str = ""
    """Name of the device they are of; `cpu` for the CPU."""
    matmul_tflops: float | None = None
    memory_gbs: float | None = None
    host_to_device_gbs: float | None = None
    cpu_adam_parameters_per_second: float | None = None
    cpu_adam: str | None = None
    """Whose Adam that was: `deepspeed` or `torch`."""
    disk_write_gbs: float | None = None


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
    cpu_limit_source: str | None = None
    """`affinity` or `cgroup` when fewer cores than the machine has may be used."""
    surroundings: Surroundings = Surroundings()


@dataclass(frozen=True, kw_only=True, slots=True)
class Software:
    """Installed versions; a package that is absent has None."""

    python: str
    versions: Mapping[str, str | None] = field(default_factory=dict)
    driver: str | None = None
    cuda: str | None = None
    """Highest CUDA version the driver serves."""
    torch_build: str | None = None
    """What torch was built for: `cuda 13.0`, `rocm 7.2`, `xpu`, `cpu`; None when not known."""
    libc: str | None = None
    """C library and its version, as `glibc 2.39`."""
    tools: Mapping[str, str | None] = field(default_factory=dict)
    """`c++`, `ninja`, `nvcc`, `python headers` → version or place; None when absent."""
    cpu_adam_lacks: tuple[str, ...] | None = None
    """What is missing to build DeepSpeed's CPU Adam; empty when it is built or can be."""
    unmet: Mapping[str, str] = field(default_factory=dict)
    """Package whose installed version is not one this program works with → those it does."""


NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


def module_name(name: str) -> str:
    """A module's name with `#` for the number of its layer."""
    return NUMBER.sub("#", name)


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
    experts: int | None = None
    """Routed experts of a layer; None for a dense MLP."""
    experts_per_token: int | None = None
    expert_size: int | None = None
    """Width of a routed expert."""
    shared_expert_size: int | None = None
    """Width of the experts that every token passes."""
    window: int | None = None
    """Tokens back that a layer's attention looks; None is all of them."""
    full_every: int | None = None
    """Where there is a window: every n-th layer looks at all tokens; None is none of them."""
    tied_embeddings: bool | None = None
    dtype: str | None = None
    quantized: str | None = None
    """Method of an already quantised checkpoint."""
    vision: str | None = None
    """Kind of its vision tower, which is not trained; None for a model of text alone."""
    gated: bool | None = None
    """Whether a token is needed to fetch it; None when that is not known."""
    has_chat_template: bool | None = None
    modules: tuple[str, ...] = ()
    """Names of its modules with weights, `#` for a layer's number; empty when not known."""
    matrices: tuple[str, ...] = ()
    """Those of them that an adapter can stand beside; empty when not known."""
    disk_bytes: int | None = None
    licence: str | None = None
    own_code: tuple[str, ...] = ()
    """Python files that come with it and that its configuration names to be loaded by."""
    commit: str | None = None
    """The hub's newest commit, at which this was read; None for a folder."""
    source: str = ""
    """`config.json`, `safetensors headers` or `shipped table`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownModel:
    """A model that can be named: on this machine, in the shipped table, or found on the hub."""

    name: str
    on_disk: bool = False
    parameters: int | None = None
    licence: str | None = None
    gated: bool = False
    """A token is needed, as far as is known."""
    kind: Literal["base", "instruct"] | None = None
    """What it was trained to do, as its name tells."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """The data sets of a run, read once from end to end."""

    path: str
    """As the setting `data` names them."""
    format: str | None = None
    """Shape of their rows; None when they have several."""
    rows: int = 0
    """Usable rows that an epoch has."""
    usable_rows: int | None = None
    """Usable rows that its files have; None when that is not known."""
    dropped_rows: int = 0
    disk_bytes: int = 0
    longest_row_chars: int = 0
    longest_row_bytes: int = 0
    """Of its texts as UTF-8."""
    longest_row_tokens: int = 0
    """Most tokens of a row with its turns' marks, estimated without the tokenizer."""
    most_turns: int = 0
    """Texts of the row that has most of them."""
    total_chars: int = 0
    length_counts: tuple[tuple[int, int], ...] = ()
    """(characters, rows of up to so many that are longer than those before it), the shortest
    first; empty when not known."""
    problems: tuple[Problem, ...] = ()
    """Bad rows, each with its line; at most twenty are kept."""
    warnings: tuple[Problem, ...] = ()
    """What is odd about rows that can be used."""
    first_rows: tuple[Mapping[str, object], ...] = ()

    @property
    def rows_there(self) -> int:
        """Usable rows of the files, each once, whatever an epoch takes of them."""
        return self.rows if self.usable_rows is None else self.usable_rows

    @property
    def dropped_percent(self) -> float:
        """Rows of the files that cannot be used, in percent of all."""
        there = self.rows_there + self.dropped_rows
        return 100 * self.dropped_rows / there if there else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Everything known when a plan is made."""

    devices: tuple[Device, ...]
    host: Host
    software: Software
    links: tuple[Link, ...] = ()
    torch: TorchView | None = None
    """None until torch was asked: importing it takes seconds."""
    measured: Measured | None = None
    machine: str = ""
    """Name of the machine these facts were loaded or composed from; empty for this one."""
    machines: int = 1
    """Machines that are all like one: `devices` and the host's memory are those of all."""
    network_gbs: float | None = None
    """GB/s that the network of each of them carries in one direction."""
    model: Model | None = None
    dataset: Dataset | None = None
    problems: tuple[Problem, ...] = ()
    """What the probe could not read, or found wrong."""

    @property
    def accelerators(self) -> tuple[Device, ...]:
        """Devices other than the CPU."""
        return tuple(d for d in self.devices if d.kind != "cpu")
