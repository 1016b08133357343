"""Page 1: what this machine can train with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, TypeAlias

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from wizard import overview, wording
from wizard.answers import Answers
from wizard.facts import Device, Facts, Host
from wizard.language import said
from wizard.problem import Problem, ProblemError
from wizard.screens.machines import pick_machine
from wizard.screens.verbs import Machines
from wizard.steps import Machine, Step
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Box, Panel, name_box
from wizard.widgets.table import Column, Rows, Table, pairs

Probe: TypeAlias = Callable[[Callable[[Facts], None]], Facts]
"""Looks at the machine; calls back, in its own thread, with the facts known so far."""

COLUMNS = (
    Column(title="use"),
    Column(title="id", right=True),
    Column(title="name", flexible=True, keep_end=True, names=True),
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
SCROLL = "Scroll the page"
MOVE = "Mark another device; past the last one, scroll"
GRAVITY = {"error": 0, "warning": 1, "info": 2}


class HardwarePage(Page[Machine]):
    """Leaves with the machine, and the devices a run may use."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.HARDWARE
    QUESTION = "What this machine can train with. Nothing is changed."
    HINT = "Enter goes on to the model. A ? was not reported."
    HINT_DEVICES = "Enter goes on to the model. Space skips a device. A ? was not reported."
    HELP_TEXT = (
        "One row per accelerator a rank can own; where there is little room, one for several of a "
        "kind. Memory is in GiB (1024³), rates are for bf16 and from a table unless measured here "
        "(tunewright probe --bench). A machine without accelerators trains on its CPU: right for "
        "small models and for trying things out. PgDn scrolls. p plans for a machine that you do "
        "not have: everything but the start works."
    )
    HELP_ON: ClassVar[Mapping[str, str]] = {
        "rows": "A device a row: free is what a run may use now, arch the compute capability, "
        "bf16 whether it has it in hardware."
    }
    HELP_DEVICES = (
        "Space, or a click on the marked row, uses or skips a device. Marked [x] is what a run "
        "will use: unless you say otherwise, the largest group of one kind."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "probe", "Probe again", id="hardware.probe", tooltip="Look again"),
        Binding("space", "use", "Use/skip", id="hardware.use", tooltip="Use or skip a device"),
        Binding("p", "what_if", "What if", id="hardware.what-if", tooltip="Plan for another one"),
        Binding(
            "down", "move(1)", "Down", id="hardware.next", show=False, priority=True, tooltip=MOVE
        ),
        Binding(
            "up", "move(-1)", "Up", id="hardware.previous", show=False, priority=True, tooltip=MOVE
        ),
        Binding("pagedown", "scroll(8)", id="hardware.down", show=False, tooltip=SCROLL),
        Binding("pageup", "scroll(-8)", id="hardware.up", show=False, tooltip=SCROLL),
    ]

    class Arrived(Message):
        """More of the machine is known."""

        def __init__(self, facts: Facts, look: int) -> None:
            super().__init__()
            self.facts = facts
            self.look = look

    def __init__(
        self,
        probe: Probe,
        facts: Facts | None,
        *,
        devices: tuple[int, ...] | None = None,
        machines: Machines | None = None,
    ) -> None:
        super().__init__()
        self._probe = probe
        self._facts = facts
        self._devices = devices
        self._machines = machines
        self._each = False
        self._look = 0

    def body(self) -> ComposeResult:
        """Devices, what is wrong, links, host, software."""
        with Box("Devices", id="devices"):
            yield Table()
            yield Static(id="remarks", markup=False)
        yield Panel("Checks", id="checks")
        yield Panel("Links", id="links")
        with Horizontal(classes="columns"):
            yield Panel("Host", id="host")
            yield Panel("Software", id="software")

    def on_mount(self) -> None:
        """Show what is known already, else look."""
        self.query_one(Rows).focus()
        if self._facts is None:
            self.action_probe()
        else:
            self._show(self._facts)

    @property
    def answers(self) -> Answers:
        """With the devices that were marked."""
        return replace(self.given, devices=self._devices)

    def so_far(self) -> Machine | None:
        """The machine, once all of it is known."""
        if self._facts is None or self.busy:
            return None
        return Machine(facts=self._facts, devices=self._devices)

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

        def probe() -> Facts:
            found = self._probe(tell)
            used_devices(found, None)  # loads the planner here, where no screen waits for it
            return found

        self.ask(probe, self._done, "reading devices, host and software")

    def on_hardware_page_arrived(self, event: Arrived) -> None:
        """Show what is known so far, unless it is of an older look or all is known by now."""
        if event.look == self._look and self.busy:
            self._show(event.facts)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without other machines there is none to choose; a CPU is not skipped."""
        if action == "use" and not (self._facts and self._facts.accelerators):
            return False
        if action == "what_if" and self._machines is None:
            return False
        return super().check_action(action, parameters)

    def help_text(self) -> str:
        """With accelerators, also how one is left out."""
        some = self._facts is not None and self._facts.accelerators
        text = super().help_text()
        return f"{text}\n\n{said(self.HELP_DEVICES)}" if some else text

    def action_use(self) -> None:
        """Use the marked device or skip it; rows of several are first shown one by one."""
        facts, marked = self._facts, self.query_one(Rows).highlighted
        if facts is None or marked is None or not facts.accelerators:
            return
        group = self._rows(facts)[marked]
        if len(group) > 1:
            self._each = True
            self._show(facts)
            self.query_one(Rows).highlighted = facts.devices.index(group[0])
            self.message.say("each device has its own row now: Space skips the marked one")
            return
        used = used_devices(facts, self._devices)
        device = group[0].index
        left = tuple(sorted({*used} ^ {device}))
        if not left:
            self.message.refuse(
                Problem(what="a run needs a device", fix="mark another one before you skip this")
            )
            return
        self._devices = None if left == used_devices(facts, None) else left
        self.message.rest()
        self._show(facts)

    def row_taken(self) -> None:
        """A click on the marked device uses or skips it."""
        self.action_use()

    def action_what_if(self) -> None:
        """Ask for a machine and take it instead of this one; `r` comes back."""

        def take(name: str | None) -> None:
            if name is not None and self._machines is not None:
                find = self._machines.find
                self.ask(lambda: find(name), self._instead, f"looking up {name}")

        if self._machines is not None:
            pick_machine(self, self._machines, take)

    def action_move(self, rows: int) -> None:
        """Mark the next device; where there is none, move the page."""
        table, body = self.query_one(Rows), self.query_one("#body", VerticalScroll)
        wanted = (table.highlighted or 0) + rows
        scrolled_back = rows < 0 and body.scroll_y > 0
        if 0 <= wanted < table.option_count and not scrolled_back:
            table.highlighted = wanted
        else:
            self.action_scroll(rows)

    def action_scroll(self, lines_down: int) -> None:
        """Move the page where it is longer than the terminal."""
        self.query_one("#body", VerticalScroll).scroll_relative(y=lines_down, animate=False)

    def action_next(self) -> None:
        """Leave with the facts, once all are there."""
        if (machine := self.so_far()) is not None:
            self.dismiss(machine)

    def _done(self, facts: Facts) -> None:
        self._look += 1
        if self._devices and not {*self._devices} <= {d.index for d in facts.accelerators}:
            self._devices = None
        self._show(facts)

    def _instead(self, facts: Facts) -> None:
        self._devices = None
        self._done(facts)
        self.message.say(f"planning for {facts.machine}, where nothing is started; r comes back")

    def _show(self, facts: Facts) -> None:
        self._facts = facts
        wide = self.size.width >= WIDE
        self.message.hint(self.HINT_DEVICES if facts.accelerators else self.HINT)
        self.refresh_bindings()
        self._show_devices(facts, wide)
        self._show_links(facts, wide)
        self.show("#host", pairs(_host(facts.host, wide)))
        self.show("#software", pairs(overview.software_pairs(facts.software)))
        self.show("#checks", _checks(facts, looking=self.busy))

    def _show_devices(self, facts: Facts, wide: bool) -> None:
        box, table = self.query_one("#devices"), self.query_one(Rows)
        if self.busy and not facts.accelerators:
            name_box(box, "Devices")
            self.show("#remarks", "looking for accelerators")
            return
        columns = WIDE_COLUMNS if wide and facts.accelerators else COLUMNS
        used = None if self.busy else used_devices(facts, self._devices)
        rows = [_row(group, used)[: len(columns)] for group in self._rows(facts)]
        self.query_one(Table).show(columns, rows, min(table.highlighted or 0, len(rows) - 1))
        self.show("#remarks", "\n".join(wording.one_line(said(one)) for one in _remarks(facts)))
        self.query_one("#remarks").display = bool(_remarks(facts))
        where = f" of {facts.machine}, not this machine" if facts.machine else ""
        note = "" if wide else _links_in_short(facts)
        name_box(box, f"Devices{where} ({_accelerators(facts, used)})", note)

    def _rows(self, facts: Facts) -> list[list[Device]]:
        return _groups(facts.devices, each=self._each or self.size.width >= WIDE)

    def _show_links(self, facts: Facts, wide: bool) -> None:
        panel = self.query_one("#links", Panel)
        found = [*overview.island_lines(facts), *overview.link_lines(facts)]
        panel.display = wide and bool(facts.links)
        name_box(panel, "Links", "islands, then what joins them")
        panel.show(Content("\n".join(wording.one_line(said(line)) for line in found)))


def used_devices(facts: Facts, devices: tuple[int, ...] | None) -> tuple[int, ...]:
    """Indices of the accelerators a run will use; empty where none can be."""
    from wizard.planner.pool import choose  # its packages take long to load

    try:
        pool = choose(facts, Answers(devices=devices))
    except ProblemError:
        return ()
    return tuple(sorted(d.index for d in pool.devices if d.kind != "cpu"))


def _accelerators(facts: Facts, used: Sequence[int] | None) -> str:
    number = len(facts.accelerators)
    counted = f"{number} accelerator{'s' * (number != 1)}"
    return f"{len(used)} of {counted} used" if number and used is not None else counted


def _groups(devices: Sequence[Device], *, each: bool) -> list[list[Device]]:
    """Devices that share a row: each its own, or all of a kind where they are many."""
    kinds: dict[tuple[object, ...], list[Device]] = {}
    for device in devices:
        kind = (device.kind, device.name, device.memory_total_bytes, device.compute_capability)
        kinds.setdefault(kind, []).append(device)
    if each or all(len(group) <= MANY_ROWS for group in kinds.values()):
        return [[device] for device in devices]
    return list(kinds.values())


def _row(group: Sequence[Device], used: Sequence[int] | None) -> tuple[str, ...]:
    told = [device for device in group if device.memory_free_bytes is not None] or group
    device = min(told, key=lambda one: one.memory_free_bytes or 0)
    taken = sum(one.index in (used or ()) for one in group)
    mark = "[x]" if taken == len(group) else "[-]" if taken else "[ ]"
    return (
        "" if device.kind == "cpu" or used is None else mark,
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
        return Content(said("looking" if looking else "ok: nothing found that stands in the way"))
    problems = sorted(facts.problems, key=lambda problem: GRAVITY[problem.severity])
    return Content("\n").join([problem_line(problem) for problem in problems])
