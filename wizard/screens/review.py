"""Page 6: the very files that will run; Enter starts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from wizard import wording
from wizard.facts import Facts
from wizard.steps import Step
from wizard.widgets.memory import budget_line
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Panel, name_box
from wizard.widgets.table import counted

if TYPE_CHECKING:
    from wizard.plan import Plan

FIRST_FILE = "run.sh"


class ReviewPage(Page[Path]):
    """Leaves with the folder of the run that was started."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.REVIEW
    QUESTION = "This script is the run: start it here, or keep it and start it yourself."
    HINT = "Enter starts the run. It goes on when you leave."
    HELP_TEXT = (
        "What you see is what runs: the files are written as shown into a new private folder, "
        "and run.sh is started in a session of its own. Afterwards this tool only reads files, so "
        "closing it does not touch the run. Secrets are never written; they are read from the "
        "environment when the run starts."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "accept", "Launch", id="page.next", priority=True, tooltip="Start the run"
        ),
        Binding("f", "file", "Next file", id="review.file", tooltip="Show the next of the files"),
    ]

    def __init__(
        self,
        *,
        plan: Plan,
        name: str,
        facts: Facts,
        preview: Callable[[Plan, str], Mapping[str, str]],
        launch: Callable[[Plan, str], Path],
    ) -> None:
        super().__init__()
        self._plan = plan
        self._run_name = name
        self._facts = facts
        self._preview = preview
        self._launch = launch
        self._files: Mapping[str, str] = {}
        self._shown = FIRST_FILE
        self._launching = False

    def body(self) -> ComposeResult:
        """The checks, and the file."""
        yield Panel("Before you launch", _checks(self._plan, self._facts), id="checks")
        with VerticalScroll(id="script"):
            yield Static(id="text", markup=False)

    def on_mount(self) -> None:
        """Render."""
        self.query_one("#script").focus()
        self.ask(lambda: self._preview(self._plan, self._run_name), self._show, "writing run.sh")

    def action_file(self) -> None:
        """Show the next of the files."""
        names = list(self._files)
        if names:
            self._show_file(names[(names.index(self._shown) + 1) % len(names)])

    def action_next(self) -> None:
        """Start the run and leave with its folder."""
        if self.busy or not self._files:
            return
        self._launching = True
        self.ask(
            lambda: self._launch(self._plan, self._run_name),
            self._leave,
            f"starting {self._run_name}",
        )

    def action_back(self) -> None:
        """Not while a run is being started: it would start unseen."""
        if not (self.busy and self._launching):
            super().action_back()

    def _leave(self, folder: Path) -> None:
        self.dismiss(folder)

    def _show(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._show_file(FIRST_FILE if FIRST_FILE in files else next(iter(files)))

    def _show_file(self, name: str) -> None:
        self._shown = name
        script = self.query_one("#script")
        others = "   ".join(_marked(n, name) for n in self._files)
        name_box(script, f"{self._run_name}/{name}", others)
        text = wording.many_lines(self._files[name])
        self.show("#text", Content("\n").join([_code(line) for line in text.split("\n")]))
        script.scroll_home(animate=False)


def _marked(name: str, shown: str) -> str:
    return f"[{name}]" if name == shown else name


def _code(line: str) -> Content:
    """A line with its comment muted; quoting is not followed, only whole comment lines are."""
    return (
        Content.styled(line, "$foreground-muted")
        if line.lstrip().startswith("#")
        else Content(line)
    )


def _checks(plan: Plan, facts: Facts) -> Content:
    rows = [
        f"plan    {wording.one_line(plan.title)}",
        f"memory  {budget_line(plan)}",
        f"steps   {wording.count(plan.steps)}",
    ]
    if facts.dataset is not None:
        dataset = facts.dataset
        dropped = f", {wording.count(dataset.dropped_rows)} dropped" if dataset.dropped_rows else ""
        rows.append(f"data    {counted(dataset.rows, 'row')}{dropped}")
    problems = [problem_line(problem) for problem in plan.problems]
    return Content("\n").join([*(Content(row) for row in rows), *problems])
