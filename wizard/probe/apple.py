"""Apple processors: their graphics shares the machine's memory, so both are told as one pool."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from wizard.facts import Device
from wizard.probe import catalog
from wizard.probe.accelerators import Accelerators
from wizard.probe.running import Run
from wizard.probe.vendors import first_number, json_in, not_trained_on

TIME_LIMIT_SECONDS = 10.0
TRACE = "System/Library/CoreServices/SystemVersion.plist"
KEYS = ["machdep.cpu.brand_string", "hw.memsize", "hw.optional.arm64", "kern.osproductversion"]
PROFILER = ["system_profiler", "SPDisplaysDataType", "-json"]
FREE_PAGES = ("Pages free", "Pages inactive", "Pages speculative")


def read(root: Path, run: Run, environment: Mapping[str, str] | None = None) -> Accelerators:
    """The graphics of an Apple processor; nothing on a Mac with another one. Never raises."""
    if not (root / TRACE).exists():
        return Accelerators()
    told = parse_sysctl(run(["sysctl", *KEYS], TIME_LIMIT_SECONDS).out)
    if told.get("hw.optional.arm64") != "1":
        return Accelerators()
    model, cores = parse_displays(run(PROFILER, TIME_LIMIT_SECONDS).out)
    name = told.get("machdep.cpu.brand_string") or model or "Apple graphics"
    row = catalog.accelerator(name) or {}
    total = told.get("hw.memsize", "")
    free_bytes = parse_vm_stat(run(["vm_stat"], TIME_LIMIT_SECONDS).out)
    device = Device(
        kind="mps",
        index=0,
        name=name,
        memory_total_bytes=int(total) if total.isdecimal() else None,
        memory_free_bytes=free_bytes,
        memory_bandwidth_gbs=catalog.number(row, "memory_bandwidth_gbs"),
        bf16_tflops=catalog.number(row, "bf16_tflops"),
        unified_memory=True,
        source="sysctl",
        sources={"memory_free_bytes": "vm_stat", **_from_table(row)},
        unknown=_unknown(row, free_bytes, cores),
    )
    return Accelerators(
        devices=(device,),
        driver=told.get("kern.osproductversion"),
        problems=(not_trained_on(name),),
    )


def parse_sysctl(text: str) -> dict[str, str]:
    """`key: value` lines."""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def parse_displays(text: str) -> tuple[str | None, int | None]:
    """(name, graphics cores) of the first display adapter that says it is Apple's."""
    document = json_in(text)
    listed = document.get("SPDisplaysDataType") if isinstance(document, Mapping) else None
    for one in listed if isinstance(listed, list) else []:
        if isinstance(one, Mapping) and "Apple" in str(one.get("sppci_model")):
            cores = first_number(one.get("sppci_cores"))
            return str(one["sppci_model"]), None if cores is None else int(cores)
    return None, None


def parse_vm_stat(text: str) -> int | None:
    """Bytes that can be had at once; None when the text says no page size."""
    size = re.search(r"page size of (\d+) bytes", text)
    pages = [re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE) for name in FREE_PAGES]
    if size is None or pages[0] is None:
        return None
    return int(size[1]) * sum(int(found[1]) for found in pages if found)


def _from_table(row: Mapping[str, str]) -> dict[str, str]:
    return {"memory_bandwidth_gbs": "table"} if row.get("memory_bandwidth_gbs") else {}


def _unknown(row: Mapping[str, str], free_bytes: int | None, cores: int | None) -> dict[str, str]:
    graphics = f" for {cores} graphics cores" if cores else ""
    reasons = {
        "uuid": "there is one device, and it has none",
        "compute_capability": "Metal has none",
        "bf16_native": "torch decides it by the version of macOS",
        "readings": "macOS tells them to the administrator only",
    }
    if not row.get("bf16_tflops"):
        reasons["bf16_tflops"] = f"no published half-precision rate{graphics} in the table"
    if free_bytes is None:
        reasons["memory_free_bytes"] = "vm_stat does not answer"
    return reasons
