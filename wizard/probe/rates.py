"""Rates of this machine, measured in a child process and remembered per machine."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from engine.theirs import quoted, why
from wizard import paths
from wizard.facts import Device, Facts, Link, Measured
from wizard.probe.running import Ran, Run, run
from wizard.problem import Problem, ProblemError

SCHEMA = 1
MEASURED = "measured"
LIMIT_SECONDS = 90.0
"""The child keeps to 20 once torch is imported, which takes long from a slow disk."""
DISTINCT_CHARACTERS = 12
RATES = frozenset(
    {
        "matmul_tflops",
        "memory_gbs",
        "host_to_device_gbs",
        "cpu_adam_parameters_per_second",
        "disk_write_gbs",
    }
)

Say = Callable[[str], None]


def measure(say: Say = lambda _: None, *, run: Run = run) -> Measured:
    """Measure; `say` is told each result, and what could not be measured. Takes 20 seconds.

    Raises ProblemError (exit code 6) when nothing could be measured.
    """
    folder = _writable(paths.runs())
    command = [sys.executable, "-m", "engine.bench", "--disk", str(folder)]
    ran = run(command, LIMIT_SECONDS)
    lines = _lines(ran.out)
    for line in lines:
        if line["kind"] == "failed" or _is_rate(line):
            say(_in_words(line))
    found = {line["name"]: line["value"] for line in lines if _is_rate(line)}
    if not found:
        raise ProblemError(_nothing(ran))
    device = next((line for line in lines if line["kind"] == "device"), {})
    adam = next((line.get("what") for line in lines if "adam" in str(line.get("name"))), None)
    return Measured(
        when=datetime.now().astimezone().isoformat(timespec="seconds"),
        device=str(device.get("name") or ""),
        cpu_adam=adam if "cpu_adam_parameters_per_second" in found else None,
        **found,
    )


def _writable(folder: Path) -> Path:
    """The folder, or the nearest above it that exists: on the same disk."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return folder


def _lines(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and isinstance(value.get("kind"), str):
            found.append(value)
    return found


def _is_rate(line: Mapping[str, Any]) -> bool:
    value = line.get("value")
    return line["kind"] == "rate" and line.get("name") in RATES and _is_positive(value)


def _is_positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0  # type: ignore[arg-type, operator]


def _in_words(line: Mapping[str, Any]) -> str:
    name, unit = UNITS.get(str(line.get("name")), (str(line.get("name")), ""))
    if line["kind"] == "failed":
        return f"{name}: not measured: {line.get('text')}"
    return f"{name}: {float(line['value']):.4g} {unit} ({line.get('what')})"


UNITS = {
    "matmul_tflops": ("matrix product", "TFLOP/s"),
    "memory_gbs": ("memory", "GB/s"),
    "host_to_device_gbs": ("host to device", "GB/s"),
    "cpu_adam_parameters_per_second": ("Adam on the CPU", "parameters/s"),
    "disk_write_gbs": ("disk write", "GB/s"),
}


def _nothing(ran: Ran) -> Problem:
    last = ([""] + [line for line in ran.err.splitlines() if line.strip()])[-1].strip()
    why = quoted(last) if last else ""
    if ran.timed_out:
        why = f"it did not end within {LIMIT_SECONDS:.0f} seconds"
    return Problem(
        what="nothing could be measured" + f": {why}" * bool(why),
        where="python -m engine.bench",
        fix="install.sh installs what it needs",
        exit_code=6,
    )


def machine_key(facts: Facts) -> str:
    """Name of the file that remembers this machine: host, processor, cores, kinds of devices.

    Which devices are visible changes nothing, unless a kind of them is hidden.
    """
    host = facts.host
    kinds = sorted({(device.kind, device.name) for device in facts.devices})
    whole = json.dumps([host.hostname, host.cpu_name, host.cpu_cores, kinds])
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", host.hostname).strip(".-")[:40] or "machine"
    return f"{name}-{hashlib.sha256(whole.encode()).hexdigest()[:DISTINCT_CHARACTERS]}"


def remember(machine: str, measured: Measured) -> Path:
    """Keep what was measured, in place of what was before. Raises ProblemError when it cannot."""
    return _keep(f"{machine}.json", asdict(measured))


def remember_links(machine: str, devices: Sequence[Device], links: Iterable[Link]) -> Path:
    """Keep what moving data has shown of links, so that later plans know it.

    Links are kept by the UUIDs of their ends; those of devices without one are not.
    Raises ProblemError when they cannot be kept.
    """
    kept = [
        {
            "devices": [devices[end].uuid for end in link.devices],
            "gbs": link.gbs,
            "peer_access": link.peer_access,
            "why": link.why,
        }
        for link in links
        if link.source == MEASURED and all(devices[end].uuid for end in link.devices)
    ]
    return _keep(f"{machine}.links.json", {"links": kept})


def _file(name: str) -> Path:
    return paths.home() / "measured" / name


def _keep(name: str, content: Mapping[str, Any]) -> Path:
    path = _file(name)
    text = json.dumps({"schema": SCHEMA, **content}, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False
        ) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError as error:
        what = f"what was measured cannot be kept: {why(error)}"
        raise ProblemError(Problem(what=what, where=str(path), fix="measure again")) from None
    return path


def _kept(name: str) -> Mapping[str, Any]:
    """Content of a file of this version; empty without one."""
    try:
        value = json.loads(_file(name).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) and value.get("schema") == SCHEMA else {}


def remembered(machine: str) -> Measured | None:
    """What was measured on this machine; None when nothing was, or by another version."""
    value = _kept(f"{machine}.json")
    names = {field.name for field in fields(Measured)}
    known = {name: value[name] for name in names & value.keys()}
    texts = [known.get("when"), known.get("device"), known.get("cpu_adam") or ""]
    rates = [known.get(name) for name in RATES]
    sound = all(isinstance(text, str) for text in texts) and all(
        rate is None or _is_positive(rate) for rate in rates
    )
    return Measured(**known) if sound else None


def with_remembered(facts: Facts) -> Facts:
    """Facts of this machine with what was measured on it, if anything was."""
    machine = machine_key(facts)
    facts = replace(facts, links=_with_tested(facts, _kept(f"{machine}.links.json")))
    measured = remembered(machine)
    return facts if measured is None else with_measured(facts, measured)


def _with_tested(facts: Facts, kept: Mapping[str, Any]) -> tuple[Link, ...]:
    tested = {frozenset(one["devices"]): one for one in _list(kept.get("links")) if _is_sound(one)}
    found = []
    for link in facts.links:
        one = tested.get(frozenset(str(facts.devices[end].uuid) for end in link.devices))
        found.append(link if one is None else _tested(link, one))
    return tuple(found)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _is_sound(one: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(one.get("devices"), list)
        and all(isinstance(uuid, str) for uuid in one["devices"])
        and _is_positive(one.get("gbs"))
        and one.get("peer_access") in (True, False, None)
        and isinstance(one.get("why"), str)
    )


def _tested(link: Link, one: Mapping[str, Any]) -> Link:
    return replace(
        link,
        gbs=one["gbs"],
        peer_access=one["peer_access"],
        why=one["why"],
        source=MEASURED,
    )


def with_measured(facts: Facts, measured: Measured) -> Facts:
    """Facts in which measured rates stand in place of the table's, for devices of that name."""
    alike = len({device.name for device in facts.accelerators}) == 1 and measured.device != "cpu"
    devices = tuple(
        _measured(device, measured)
        if alike or measured.device in (device.name, device.kind)
        else device
        for device in facts.devices
    )
    return replace(facts, devices=devices, measured=measured)


def _measured(device: Device, measured: Measured) -> Device:
    rates = {"memory_bandwidth_gbs": measured.memory_gbs, "bf16_tflops": measured.matmul_tflops}
    new: dict[str, Any] = {name: rate for name, rate in rates.items() if rate is not None}
    unknown = {name: why for name, why in device.unknown.items() if name not in new}
    return replace(
        device, **new, sources={**device.sources, **_from_measuring(new)}, unknown=unknown
    )


def _from_measuring(names: Iterable[str]) -> dict[str, str]:
    return dict.fromkeys(names, MEASURED)
