"""Page 1: what this machine can train with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content

from wizard import wording
from wizard.facts import Device, Facts, Host, Software
from wizard.steps import Step
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Panel, name_box
from wizard.widgets.table import Column, lines, pairs

COLUMNS = (
    Column(title="id", right=True),
    Column(title="name", flexible=True),
    Column(title="free GiB", right=True),
    Column(title="total GiB", right=True),
    Column(title="arch", right=True),
    Column(title="bf16"),
)
WIDE_COLUMNS = (
    *COLUMNS,
    Column(title="TFLOP/s bf16", right=True),
    Column(title="GB/s", right=True),
    Column(title="from"),
)
WIDE = 110


class HardwarePage(Page[Facts]):
    """Leaves with the machine's Facts."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.HARDWARE
    QUESTION = "What this machine can train with. Nothing is changed on this page."
    HINT = "Enter goes on to the model. Blank cells were not reported."
    HELP_TEXT = (
        "One row per accelerator a rank can own. Memory is in GiB (1024³). A machine without "
        "accelerators trains on its CPU: right for small models and for trying things out."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "probe", "Probe again", id="hardware.probe", tooltip="Look again"),
    ]

    def __init__(self, probe: Callable[[], Facts], facts: Facts | None, *, first: bool) -> None:
        super().__init__(first=first)
        self._probe = probe
        self._facts = facts

    def body(self) -> ComposeResult:
        """Devices, host, software, checks."""
        yield Panel("Devices", id="devices")
        with Horizontal(classes="columns"):
            yield Panel("Host", id="host")
            yield Panel("Software", id="software")
        yield Panel("Checks", id="checks")

    def on_mount(self) -> None:
        """Show what is known already, else look."""
        if self._facts is None:
            self.action_probe()
        else:
            self._show(self._facts)

    def on_resize(self) -> None:
        """Choose columns for the new width."""
        if self._facts is not None:
            self._show_devices(self._facts)

    def action_probe(self) -> None:
        """Look at the machine."""
        self.ask(self._probe, self._show, "reading devices, host and software")

    def action_next(self) -> None:
        """Leave with the facts, once there are any."""
        if self._facts is not None and not self.busy:
            self.dismiss(self._facts)

    def _show(self, facts: Facts) -> None:
        self._facts = facts
        self._show_devices(facts)
        self.show("#host", _host(facts.host))
        self.show("#software", _software(facts.software))
        self.show("#checks", _checks(facts))

    def _show_devices(self, facts: Facts) -> None:
        width = max(self.size.width - 6, 40)
        wide = width >= WIDE
        rows = [_row(device)[: None if wide else len(COLUMNS)] for device in facts.devices]
        table = lines(WIDE_COLUMNS if wide else COLUMNS, rows, width)
        head, *rest = table
        parts = [Content.styled(head, "$foreground-muted"), *(Content(row) for row in rest)]
        if not facts.accelerators:
            parts.append(Content("No accelerator found: ranks will run on the CPU."))
        panel = self.query_one("#devices", Panel)
        name_box(panel, f"Devices ({len(facts.accelerators)} accelerators)")
        panel.show(Content("\n").join(parts))


def _row(device: Device) -> tuple[str, ...]:
    arch = device.compute_capability
    return (
        str(device.index),
        device.name,
        _gib(device.memory_free_bytes),
        _gib(device.memory_total_bytes),
        f"{arch[0]}.{arch[1]}" if arch else "",
        {True: "yes", False: "no", None: ""}[device.bf16_native],
        wording.cell(device.bf16_tflops),
        wording.cell(device.memory_bandwidth_gbs),
        device.source,
    )


def _gib(memory_bytes: int | None) -> str:
    return wording.cell(None if memory_bytes is None else memory_bytes / wording.GIB, 1)


def _host(host: Host) -> Content:
    limit = f" ({host.memory_limit_source})" if host.memory_limit_source else ""
    return pairs(
        (
            ("name", host.hostname),
            ("system", host.system),
            ("cpu", host.cpu_name or wording.UNKNOWN),
            ("cores", wording.count(host.cpu_cores)),
            ("free", wording.gib(host.memory_available_bytes)),
            ("memory", wording.gib(host.memory_total_bytes) + limit),
            ("disk", f"{wording.gib(host.disk_free_bytes)} free"),
        )
    )


def _software(software: Software) -> Content:
    driver = [("driver", software.driver)] if software.driver else []
    cuda = [("CUDA", software.cuda)] if software.cuda else []
    versions = [(name, found or "not installed") for name, found in software.versions.items()]
    return pairs((("python", software.python), *driver, *cuda, *versions))


def _checks(facts: Facts) -> Content:
    if not facts.problems:
        return Content("ok: nothing found that stands in the way")
    return Content("\n").join([problem_line(problem) for problem in facts.problems])
