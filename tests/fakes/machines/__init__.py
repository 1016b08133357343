"""Fake machines: Facts read from the TOML files here, one real kind of machine each."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from wizard.facts import GIB, Device, Facts, Host, Software

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
MIB = 1024**2

VERSIONS = {
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "trl": "1.16.0",
    "peft": "0.21.2",
    "accelerate": "1.15.0",
    "deepspeed": "0.19.8",
    "bitsandbytes": "0.50.2",
    "flash-attn": None,
}


def machine(name: str) -> Facts:
    """The facts of one fake machine."""
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    host = _host(table["host"])
    devices = tuple(
        _device(group, index)
        for index, group in enumerate(
            group for group in table.get("devices", []) for _ in range(group["count"])
        )
    )
    return Facts(
        devices=devices or (_cpu(host),),
        host=host,
        software=Software(python="3.12.4", versions=VERSIONS, driver=table.get("driver")),
    )


def _host(table: dict[str, Any]) -> Host:
    return Host(
        hostname="fake",
        system="Linux 6.8.0",
        cpu_name=table["cpu_name"],
        cpu_cores=table["cpu_cores"],
        memory_total_bytes=round(table["memory_gib"] * GIB),
        memory_available_bytes=round(table["memory_available_gib"] * GIB),
        disk_path="/data",
        disk_free_bytes=500 * GIB,
        memory_limit_source=table.get("memory_limit_source"),
    )


def _device(group: dict[str, Any], index: int) -> Device:
    return Device(
        kind="cuda",
        index=index,
        name=group["name"],
        uuid=f"GPU-00000000-0000-0000-0000-{index:012d}",
        memory_total_bytes=group["memory_mib"] * MIB,
        memory_free_bytes=(group["memory_mib"] - group.get("used_mib", 0)) * MIB,
        compute_capability=(group["capability"][0], group["capability"][1]),
        bf16_native=group["capability"][0] >= 8,
        source="nvml",
    )


def _cpu(host: Host) -> Device:
    return Device(
        kind="cpu",
        index=0,
        name=host.cpu_name or "CPU",
        memory_total_bytes=host.memory_total_bytes,
        memory_free_bytes=host.memory_available_bytes,
        source="host",
    )
