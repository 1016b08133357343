"""Page 1: what this machine can train with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, TypeAlias

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message

from wizard import overview, wording
from wizard.facts import Device, Facts, Host
from wizard.steps import Step
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Panel, name_box
from wizard.widgets.table import Column, lines, pairs

Probe: TypeAlias = Callable[[Callable[[Facts], None]], Facts]
"""Looks at the machine; calls back, in its own thread, with the facts known so far."""

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
    Column(title="TFLOP/s", right=True),
    Column(title="GB/s", right=True),
    Column(title="in use", right=True),
    Column(title="heat", right=True),
    Column(title="power", right=True),
    Column(title="processes", right=True),
    Column(title="from", flexible=True),
)
WIDE = 110
MANY_ROWS = 4
"""Devices of a kind that get a row each where there is little room."""
UNKNOWN = "?"
GRAVITY = {"error": 0, "warning": 1, "info": 2}


class HardwarePage(Page[Facts]):
    """Leaves with the machine's Facts."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.HARDWARE
    QUESTION = "What this machine can train with. Nothing is changed on this page."
    HINT = "Enter goes on to the model. A ? was not reported."
    HELP_TEXT = (
        "One row per accelerator a rank can own; where there is little room, one for several of a "
        "kind. Memory is in GiB (1024³), rates are for bf16 and from a table unless measured here "
        "(tunewright probe --bench). A machine without accelerators trains on its CPU: right for "
        "small models and for trying things out."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "probe", "Probe again", id="hardware.probe", tooltip="Look again"),
        Binding("down", "scroll(1)", "Down", id="hardware.down", show=False, tooltip="Scroll down"),
        Binding("up", "scroll(-1)", "Up", id="hardware.up", show=False, tooltip="Scroll up"),
    ]

    class Arrived(Message):
        """More of the machine is known."""

        def __init__(self, facts: Facts, look: int) -> None:
            super().__init__()
            self.facts = facts
            self.look = look

    def __init__(self, probe: Probe, facts: Facts | None, *, first: bool) -> None:
        super().__init__(first=first)
        self._probe = probe
        self._facts = facts
        self._look = 0

    def body(self) -> ComposeResult:
        """Devices, what is wrong, links, host, software."""
        yield Panel("Devices", id="devices")
        yield Panel("Checks", id="checks")
        yield Panel("Links", id="links")
        with Horizontal(classes="columns"):
            yield Panel("Host", id="host")
            yield Panel("Software", id="software")

    def on_mount(self) -> None:
        """Show what is known already, else look."""
        if self._facts is None:
            self.action_probe()
        else:
            self._show(self._facts)

    def on_resize(self) -> None:
        """Choose columns for the new width."""
        if self._facts is not None:
            self._show(self._facts)

    def action_probe(self) -> None:
        """Look at the machine."""
        self._look += 1
        look = self._look

        def tell(facts: Facts) -> None:
            self.post_message(self.Arrived(facts, look))

        self.ask(lambda: self._probe(tell), self._done, "reading devices, host and software")

    def on_hardware_page_arrived(self, event: Arrived) -> None:
        """Show what is known so far, unless it is of an older look or all is known by now."""
        if event.look == self._look and self.busy:
            self._show(event.facts)

    def action_scroll(self, lines_down: int) -> None:
        """Move the page where it is longer than the terminal."""
        self.query_one("#body", VerticalScroll).scroll_relative(y=lines_down, animate=False)

    def action_next(self) -> None:
        """Leave with the facts, once all are there."""
        if self._facts is not None and not self.busy:
            self.dismiss(self._facts)

    def _done(self, facts: Facts) -> None:
        self._look += 1
        self._show(facts)

    def _show(self, facts: Facts) -> None:
        self._facts = facts
        wide = self.size.width >= WIDE
        self._show_devices(facts, wide)
        self._show_links(facts, wide)
        self.show("#host", pairs(_host(facts.host, wide)))
        self.show("#software", pairs(overview.software_pairs(facts.software)))
        self.show("#checks", _checks(facts, looking=self.busy))

    def _show_devices(self, facts: Facts, wide: bool) -> None:
        panel = self.query_one("#devices", Panel)
        if self.busy and not facts.accelerators:
            name_box(panel, "Devices")
            panel.show("looking for accelerators")
            return
        columns = WIDE_COLUMNS if wide and facts.accelerators else COLUMNS
        rows = [_row(group)[: len(columns)] for group in _groups(facts.devices, each=wide)]
        head, *rest = lines(columns, rows, max(self.size.width - 6, 40))
        parts = [Content.styled(head, "$foreground-muted"), *(Content(row) for row in rest)]
        parts += [Content(wording.one_line(text)) for text in _remarks(facts)]
        note = "" if wide else _links_in_short(facts)
        name_box(panel, f"Devices ({_accelerators(facts)})", note)
        panel.show(Content("\n").join(parts))

    def _show_links(self, facts: Facts, wide: bool) -> None:
        panel = self.query_one("#links", Panel)
        found = [*overview.island_lines(facts), *overview.link_lines(facts)]
        panel.display = wide and bool(facts.links)
        name_box(panel, "Links", "islands, then what joins them")
        panel.show(Content("\n".join(map(wording.one_line, found))))


def _accelerators(facts: Facts) -> str:
    number = len(facts.accelerators)
    return f"{number} accelerator{'s' * (number != 1)}"


def _groups(devices: Sequence[Device], *, each: bool) -> list[list[Device]]:
    """Devices that share a row: each its own, or all of a kind where they are many."""
    kinds: dict[tuple[object, ...], list[Device]] = {}
    for device in devices:
        kind = (device.kind, device.name, device.memory_total_bytes, device.compute_capability)
        kinds.setdefault(kind, []).append(device)
    if each or all(len(group) <= MANY_ROWS for group in kinds.values()):
        return [[device] for device in devices]
    return list(kinds.values())


def _row(group: Sequence[Device]) -> tuple[str, ...]:
    told = [device for device in group if device.memory_free_bytes is not None] or group
    device = min(told, key=lambda one: one.memory_free_bytes or 0)
    return (
        overview.numbers(one.index for one in group),
        device.name,
        _gib(device.memory_free_bytes),
        _gib(device.memory_total_bytes),
        {"none": "-"}.get(arch := overview.capability(device), _or_mark(arch)),
        {True: "yes", False: "no", None: UNKNOWN}[device.bf16_native],
        _or_mark(overview.figure(device.bf16_tflops)),
        _or_mark(overview.figure(device.memory_bandwidth_gbs)),
        _or_mark(overview.in_use(device)),
        _or_mark(overview.temperature(device)),
        _or_mark(overview.power(device)),
        _or_mark(overview.processes(device)),
        device.source or UNKNOWN,
    )


def _or_mark(text: str) -> str:
    """A cell has no room for the word."""
    return text.replace(wording.UNKNOWN, UNKNOWN)


def _gib(memory_bytes: int | None) -> str:
    return UNKNOWN if memory_bytes is None else wording.cell(memory_bytes / wording.GIB, 1)


def _remarks(facts: Facts) -> list[str]:
    """What the columns do not say."""
    if not facts.accelerators:
        return ["No accelerator found: ranks will run on the CPU."]
    found = [
        f"{device.index}: {text}"
        for device in facts.accelerators
        for text in overview.notes(device)
    ]
    return [*overview.pool_lines(facts), *found]


def _links_in_short(facts: Facts) -> str:
    """The islands, as far as they fit beside the title."""
    if not facts.links:
        return ""
    found = overview.island_lines(facts)
    return found[0] if len(found) == 1 else f"{len(found)} islands"


def _host(host: Host, wide: bool) -> overview.Pairs:
    around = overview.surrounding_pairs(host)
    kept = around if wide else tuple(pair for pair in around if pair[0] in ("inside", "detached"))
    return (*overview.host_pairs(host), *kept)


def _checks(facts: Facts, *, looking: bool) -> Content:
    """Problems, the gravest first."""
    if not facts.problems:
        return Content("looking" if looking else "ok: nothing found that stands in the way")
    problems = sorted(facts.problems, key=lambda problem: GRAVITY[problem.severity])
    return Content("\n").join([problem_line(problem) for problem in problems])
