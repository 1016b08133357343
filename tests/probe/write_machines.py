"""Makes presets/machines from the recordings: `python -m tests.probe.write_machines`."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.probe import machines
from wizard.facts import Device, Facts, Host, Readings, Software, Surroundings
from wizard.paths import CHECKOUT
from wizard.probe.document import SCHEMA
from wizard.problem import Problem

FOLDER = CHECKOUT / "presets" / "machines"
SHIPPED: Mapping[str, str] = {
    "10xA40": "a40x10",
    "16xAscend910-A3": "ascend_a3_16",
    "2xH100-NVL": "h100nvlx2",
    "2xRTX3090-NVLink": "rtx3090x2_nvlink",
    "4xA100-PCIe-80GB": "a100_80x4_pcie_pairs",
    "4xA10G": "a10gx4_g5_12xlarge",
    "8xA100-SXM-40GB": "a100_40x8_dgx",
    "8xAscend910B3": "ascend910b3_x8",
    "8xH100-SXM": "h100x8_sxm_hgx",
    "8xMI300X": "mi300x_x8",
    "8xMax1550": "intel_max1550_x8",
    "8xRTX4090": "rtx4090x8_nop2p",
    "8xRTX6000-Ada": "rtx6000ada_x8",
    "DGX-Spark": "gb10_spark",
    "GH200": "gh200_480",
    "L40S": "l40s_single",
    "RTX4060-Laptop-WSL": "rtx4060_laptop_wsl2",
    "T4-Colab": "t4_colab",
}
"""Name of a shipped machine → the recording it is made from."""
GONE = {"uuid", *Readings.__slots__}
IDLE = "one machine of this kind was recorded; taken as idle"


def snapshot(name: str, root: Path) -> str:
    """The file of a shipped machine: what is true of its kind, without what is true of one."""
    recorded = SHIPPED[name]
    facts = machines.probed(recorded, root)
    host = machines.true(recorded)["facts"]
    kept = Facts(
        devices=tuple(_kind(device) for device in facts.devices),
        host=_host(facts.host, {path[5:] for path in host if path.startswith("host.")}),
        software=Software(python="", driver=facts.software.driver, cuda=facts.software.cuda),
        links=facts.links,
        machine=name,
        problems=(_about(),),
    )
    document = {"schema": SCHEMA, **_told(dataclasses.asdict(kept))}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _told(value: Any) -> Any:
    """Without what is null, false or an empty list, which is what a reader takes it for anyway."""
    if isinstance(value, Mapping):
        short = {key: _told(one) for key, one in value.items()}
        return {key: one for key, one in short.items() if one or type(one) in (int, float, str)}
    return [_told(one) for one in value] if isinstance(value, list | tuple) else value


def _kind(device: Device) -> Device:
    return replace(
        device,
        uuid=None,
        memory_free_bytes=None,
        memory_used_bytes=None,
        readings=Readings(power_cap_w=device.readings.power_cap_w),
        sources=dict(sorted(device.sources.items())),
        unknown={
            "uuid": "no real device",
            "memory_free_bytes": IDLE,
            "memory_used_bytes": IDLE,
            "readings": IDLE,
            **{name: why for name, why in sorted(device.unknown.items()) if name not in GONE},
        },
    )


def _host(host: Host, recorded: set[str]) -> Host:
    """Only what was recorded of it; an idle machine has all its memory."""
    known = {name: getattr(host, name) for name in recorded if "." not in name}
    if "memory_total_bytes" in known:
        known["memory_available_bytes"] = known["memory_total_bytes"]
    around = Surroundings(
        numa_nodes=host.surroundings.numa_nodes if recorded & {"surroundings.numa_nodes"} else None,
        wsl="surroundings.wsl" in recorded,
    )
    return Host(hostname="", **{"system": "", **known}, surroundings=around)


def _about() -> Problem:
    return Problem(
        what="a machine of this kind, as public records show one, taken as idle; "
        "its disks and software are not known",
        where="shipped machine",
        fix="tunewright probe -o machine.json on the machine itself knows them",
        severity="info",
    )


def write() -> None:
    """Write every shipped machine anew."""
    FOLDER.mkdir(exist_ok=True)
    for name in SHIPPED:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TUNEWRIGHT_HOME"] = folder
            text = snapshot(name, Path(folder) / "root")
        (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
