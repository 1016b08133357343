"""(Facts) → a machine in words, for the command and the screen: unknown is said, never left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wizard.facts import Device, Facts, Host, Link, Measured, Software
from wizard.islands import ALONE, islands
from wizard.language import said, said_problem, said_value
from wizard.wording import UNKNOWN, cells, count, gib, one_line, padded

Pairs = tuple[tuple[str, str], ...]
LINK_NAMES = {
    "nvswitch": "NVSwitch",
    "nvlink": "NVLink",
    "xgmi": "xGMI",
    "hccs": "HCCS",
    "pcie-switch": "PCIe switch",
    "host-bridge": "PCIe host bridge",
    "socket": "PCIe across sockets",
    "unknown": "unknown link",
}
LISTED_PAIRS = 4
"""More pairs of one kind are counted, not listed."""


def numbers(positions: Iterable[int]) -> str:
    """`0-3, 5`."""
    runs: list[list[int]] = []
    for position in sorted(positions):
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def rate(gbs: float | None) -> str:
    """Bandwidth in one direction."""
    return UNKNOWN if gbs is None else f"{gbs:,.0f} GB/s" if gbs >= 10 else f"{gbs:.1f} GB/s"


def figure(number: float | None) -> str:
    """A rate with as many digits as mean something: `989`, `0.05`."""
    return UNKNOWN if number is None else f"{number:,.{0 if number >= 10 else 2}f}"


def speed(gbs: float | None) -> str:
    """Bandwidth of a link, where a bare `unknown` would not say of what."""
    return f"speed {UNKNOWN}" if gbs is None else rate(gbs)


def device_name(device: Device) -> str:
    """`cuda 0`."""
    return f"{device.kind} {device.index}"


def slot(device: Device) -> str:
    """`PCIe 5 x16`: the best it can do."""
    generation, width = device.bus.pcie_generation, device.bus.pcie_width
    return f"PCIe {generation} x{width}" if generation and width else UNKNOWN


def numa(device: Device) -> str:
    """The NUMA node it hangs at."""
    return UNKNOWN if device.bus.numa_node is None else str(device.bus.numa_node)


def capability(device: Device) -> str:
    """`9.0`; NPUs, XPUs and CPUs have none."""
    if device.compute_capability:
        return "{}.{}".format(*device.compute_capability)
    return "none" if device.kind in ("npu", "xpu", "mps", "cpu") else UNKNOWN


def in_use(device: Device) -> str:
    """`42 %`."""
    used = device.readings.utilization_percent
    return UNKNOWN if used is None else f"{used:.0f} %"


def temperature(device: Device) -> str:
    """`38 °C`."""
    heat = device.readings.temperature_c
    return UNKNOWN if heat is None else f"{heat:.0f} °C"


def power(device: Device) -> str:
    """`131 W of 750 W`."""
    now = device.readings
    draw = UNKNOWN if now.power_w is None else f"{now.power_w:.0f} W"
    return draw if now.power_cap_w is None else f"{draw} of {now.power_cap_w:.0f} W"


def processes(device: Device) -> str:
    """How many processes hold its memory."""
    found = device.readings.processes
    return UNKNOWN if found is None else "none" if not found else str(len(found))


def notes(device: Device) -> list[str]:
    """What is out of the ordinary with it."""
    now = device.readings
    found = [
        f"clock held down: {', '.join(now.throttle_reasons)}" if now.throttle_reasons else "",
        f"{now.ecc_uncorrected} uncorrected memory errors" if now.ecc_uncorrected else "",
        "a faulty memory row waits for a reset" if now.remap_pending else "",
        "a faulty memory row could not be replaced" if now.remap_failed else "",
        f"compute mode {now.compute_mode}" if now.compute_mode not in (None, "default") else "",
        "a display uses it" if now.display_active else "",
        f"slice of {device.mig_parent_uuid}" if device.mig_parent_uuid else "",
    ]
    return [text for text in found if text]


def island_lines(facts: Facts) -> list[str]:
    """One line an island, devices by their indices; empty for fewer than two devices."""
    if len(facts.accelerators) < 2:
        return []
    index = [device.index for device in facts.devices]
    found = islands(facts)
    joined = [(island, numbers(index[p] for p in island.devices)) for island in found]
    lines = [
        f"{who}: {LINK_NAMES[island.kind]}, {speed(island.gbs)}"
        for island, who in joined
        if island.kind != ALONE
    ]
    alone = [index[p] for island in found if island.kind == ALONE for p in island.devices]
    if all(link.kind == "unknown" for link in facts.links):
        return [f"{numbers(index)}: links {UNKNOWN}"]
    each = "each on its own" if len(alone) > 1 else "on its own"
    return [*lines, f"{numbers(alone)}: {each}"] if alone else lines


def link_lines(facts: Facts) -> list[str]:
    """Links of one kind in one line each, with whether devices read each other's memory."""
    groups: dict[str, list[Link]] = {}
    for link in facts.links:
        groups.setdefault(_link(link), []).append(link)
    index = [device.index for device in facts.devices]
    return [f"{_who(links, len(facts.links), index)}: {text}" for text, links in groups.items()]


def _link(link: Link) -> str:
    access = {
        True: "direct access",
        False: "no direct access",
        None: f"direct access {UNKNOWN}",
    }[link.peer_access]
    why = said(f" ({link.why})") if link.why else ""
    known = link.kind != "unknown" or link.gbs is not None
    fast = f", {speed(link.gbs)}" if known else ""
    return said(f"{LINK_NAMES[link.kind]}{fast}, {access}") + why


def _who(links: Sequence[Link], every: int, index: Sequence[int]) -> str:
    if len(links) == every and every > 1:
        return f"all {every} pairs"
    if len(links) > LISTED_PAIRS:
        return f"{len(links)} of {every} pairs"
    return ", ".join(f"{index[link.devices[0]]}-{index[link.devices[1]]}" for link in links)


def host_pairs(host: Host) -> Pairs:
    """The host as labels and values."""
    limit = f" (limit of the {host.memory_limit_source})" if host.memory_limit_source else ""
    cores = f" (limit of the {host.cpu_limit_source})" if host.cpu_limit_source else ""
    at = f" at {host.disk_path}" if host.disk_path else ""
    return (
        ("name", host.hostname or UNKNOWN),
        ("system", host.system or UNKNOWN),
        ("cpu", host.cpu_name or UNKNOWN),
        ("cores", f"{count(host.cpu_cores)} usable{cores}"),
        ("free", gib(host.memory_available_bytes)),
        ("memory", gib(host.memory_total_bytes) + limit),
        ("disk", f"{gib(host.disk_free_bytes)} free{at}"),
    )


def surrounding_pairs(host: Host) -> Pairs:
    """What else of the host decides whether a run lives; what is not there is left out."""
    around = host.surroundings
    found = (
        ("inside", ", ".join(filter(None, _inside(host)))),
        ("NUMA nodes", count(around.numa_nodes) if around.numa_nodes else ""),
        ("swap", gib(around.swap_bytes) if around.swap_bytes is not None else ""),
        ("/dev/shm", gib(around.shared_memory_bytes) if around.shared_memory_bytes else ""),
        ("pinned", gib(around.memlock_bytes) if around.memlock_bytes is not None else ""),
        ("files", f"{around.open_files:,} open" if around.open_files else ""),
        ("network", ", ".join((*around.network, *around.infiniband))),
        ("detached", _detached(host)),
    )
    return tuple((label, value) for label, value in found if value)


def _inside(host: Host) -> tuple[str | None, ...]:
    around = host.surroundings
    return (
        around.container,
        around.virtual_machine,
        "WSL" if around.wsl else None,
        f"SLURM job {around.slurm_job}" if around.slurm_job else None,
        "a login node" if around.login_node else None,
    )


def _detached(host: Host) -> str:
    ends = host.surroundings.ends_detached_runs
    return f"ended by {ends}" if ends else ""


def software_pairs(software: Software) -> Pairs:
    """Python, driver and packages; what is not installed is said."""
    driver = (("driver", software.driver),) if software.driver else ()
    cuda = (("CUDA", software.cuda),) if software.cuda else ()
    versions = tuple((name, v or "not installed") for name, v in software.versions.items())
    return (("python", software.python or UNKNOWN), *driver, *cuda, *versions)


def measured_pairs(measured: Measured) -> Pairs:
    """Rates measured here; one that was not measured is left out."""
    adam = measured.cpu_adam_parameters_per_second
    found = (
        ("matmul", _amount(measured.matmul_tflops, "TFLOP/s bf16")),
        ("memory", _amount(measured.memory_gbs, "GB/s")),
        ("to device", _amount(measured.host_to_device_gbs, "GB/s")),
        ("CPU Adam", _amount(None if adam is None else adam / 1e6, "M parameters/s")),
        ("disk", _amount(measured.disk_write_gbs, "GB/s written")),
    )
    return (*((label, value) for label, value in found if value), ("when", measured.when))


def _amount(number: float | None, unit: str) -> str:
    return "" if number is None else f"{number:,.{0 if number >= 100 else 2}f} {unit}"


def text(facts: Facts) -> list[str]:
    """The whole machine as lines of text."""
    where = [f"Machine {facts.machine}, not this one"] if facts.machine else []
    torch = _torch(facts)
    sections: tuple[tuple[str, list[str]], ...] = (
        ("Devices", [*device_table(facts), *pool_lines(facts)]),
        ("Now", reading_table(facts)),
        ("Bus", bus_table(facts)),
        ("Islands", island_lines(facts)),
        ("Links", link_lines(facts)),
        ("Host", _lines((*host_pairs(facts.host), *surrounding_pairs(facts.host)))),
        ("Software", _lines(software_pairs(facts.software))),
        ("torch", torch),
        ("Measured", _lines(measured_pairs(facts.measured)) if facts.measured else []),
        (
            "Checks",
            [f"({said(p.severity)}) {said_problem(p)}" for p in facts.problems]
            or ["ok: nothing found"],
        ),
    )
    found = list(where)
    for title, lines in sections:
        if lines:
            found += [title, *(f"  {one_line(said(line))}" for line in lines)]
    return found


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns, two spaces apart."""
    heads = [said(title) for title in titles]
    names = [title == "name" for title in titles]
    shown = [
        [
            one_line(cell if name else said_value(cell))
            for cell, name in zip(row, names, strict=True)
        ]
        for row in rows
    ]
    widths = [max(cells(row[i]) for row in (heads, *shown)) for i in range(len(titles))]
    return ["  ".join(map(padded, row, widths)).rstrip() for row in (heads, *shown)]


def device_table(facts: Facts) -> list[str]:
    """What each device is."""
    titles = ("id", "name", "free", "total", "arch", "bf16", "TFLOP/s", "memory", "from")
    return table(titles, [_device_row(device) for device in facts.devices])


def _device_row(device: Device) -> tuple[str, ...]:
    return (
        device_name(device),
        device.name,
        gib(device.memory_free_bytes),
        gib(device.memory_total_bytes),
        capability(device),
        {True: "yes", False: "no", None: UNKNOWN}[device.bf16_native],
        figure(device.bf16_tflops),
        rate(device.memory_bandwidth_gbs),
        device.source or UNKNOWN,
    )


def reading_table(facts: Facts) -> list[str]:
    """What the sensors of each device say now."""
    titles = ("id", "in use", "heat", "power", "processes", "notes")
    rows = [
        (device_name(d), in_use(d), temperature(d), power(d), processes(d), "; ".join(notes(d)))
        for d in facts.accelerators
    ]
    return table(titles, rows) if rows else []


def bus_table(facts: Facts) -> list[str]:
    """Where each device hangs."""
    titles = ("id", "PCI address", "slot", "NUMA", "cores near it", "uuid")
    rows = [
        (
            device_name(device),
            device.bus.pci_id or UNKNOWN,
            slot(device),
            numa(device),
            device.bus.cpu_affinity or UNKNOWN,
            device.uuid or UNKNOWN,
        )
        for device in facts.accelerators
    ]
    return table(titles, rows) if rows else []


def pool_lines(facts: Facts) -> list[str]:
    """Said where host and device memory are one pool, or one address space."""
    shared = [device.index for device in facts.devices if device.unified_memory]
    near = [device.index for device in facts.devices if device.coherent_memory]
    lines = []
    if shared:
        said = "shares its memory with the host: one pool, offload gains nothing"
        lines.append(f"{numbers(shared)}: {said}")
    if near:
        said = "one address space with the host's memory (NVLink-C2C): offload is near"
        lines.append(f"{numbers(near)}: {said}")
    return lines


def _lines(rows: Pairs) -> list[str]:
    labels = [said(label) for label, _ in rows]
    width = max(map(cells, labels), default=0)
    values = (
        value if label == "name" and value != UNKNOWN else said_value(value)
        for label, value in rows
    )
    return [f"{padded(label, width)}  {value}" for label, value in zip(labels, values, strict=True)]


def _torch(facts: Facts) -> list[str]:
    view = facts.torch
    if view is None:
        return []
    if view.error:
        return [view.error]
    build = f"CUDA {view.cuda}" if view.cuda else f"HIP {view.hip}" if view.hip else "CPU only"
    seen = [f"sees {device.index}: {device.name}" for device in view.devices]
    yes_no = {True: "yes", False: "no", None: UNKNOWN}
    return [
        f"{view.version}, built for {build}",
        *(seen or ["sees no device"]),
        f"4-bit layers run: {yes_no[view.bnb_4bit]}; CPU Adam: {yes_no[view.cpu_adam]}",
    ]
