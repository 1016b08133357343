"""Page 6: the very files that will run; Enter starts them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from wizard import wording
from wizard.answers import Answers
from wizard.dashboard.words import failure_words, tested
from wizard.facts import Facts
from wizard.language import said
from wizard.problem import Problem
from wizard.screens.exporting import Export, ExportVerbs
from wizard.screens.preflight import checks, record, warnings
from wizard.steps import Chosen, InForeground, Step
from wizard.widgets.page import Page
from wizard.widgets.panel import Panel, name_box

if TYPE_CHECKING:
    from wizard.dashboard.values import RunState

FIRST_FILE = "run.sh"
ACCEPTED_FILE = "accepted.toml"
"""Which warnings the run was started in spite of; engine and planner do not read it."""
ROOMY, TALL = 100, 30
"""Terminals that have a line for every check."""
DIFF_STYLES = {"+": "$text-success", "-": "$text-error", "@": "$primary"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ReviewVerbs:
    """What the page does to the world; each may raise ProblemError."""

    preview: Callable[[Chosen, Facts, str], Mapping[str, str]]
    """Plan, facts and name → the run's files."""
    write: Callable[[Mapping[str, str], str], Path]
    """Files and name → the run folder that now holds them."""
    launch: Callable[[Path, bool], None]
    """Starts a run folder; with True a smoke test of it."""
    ended: Callable[[Path], RunState | None]
    """Run folder → its state once it has ended, None before."""
    smoke_result: Callable[[Path], Mapping[str, Any]]
    """Run folder → what its smoke test measured, beside what was predicted; empty without one."""
    last_files: Callable[[], tuple[str, Mapping[str, str]] | None]
    """Name and files of the newest run."""
    edit: Callable[[Path, int], None]
    """Opens a file in the user's editor and waits for it."""
    files_of: Callable[[Path], Mapping[str, str]]
    """Run folder → the files a run is made of."""
    exports: ExportVerbs


class ReviewPage(Page[Path | InForeground]):
    """Leaves with the folder of the run that was started, or is to be started in the foreground."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.REVIEW
    QUESTION = "This script is the run: start it here, or keep it."
    HINT = "Enter starts the run. It goes on when you leave."
    HELP_TEXT = (
        "What you see is what runs: the files are written as shown into a new private folder, "
        "and run.sh is started in a session of its own. Afterwards this tool only reads files, so "
        "closing it does not touch the run. s tries a few steps with the longest rows first and "
        "says how much memory they took; w writes the folder and starts nothing; t starts the run "
        "and prints it to this terminal; d shows what differs from your last run; e writes the "
        "folder and opens the editor; ! accepts the warnings, which a file of the run then names. "
        "Secrets are never written; they are read from the "
        "environment when the run starts."
    )
    HELP_ON: ClassVar[Mapping[str, str]] = {
        "script": "One of the files of the run, exactly as it is written. Arrows scroll it, also "
        "to the sides; f shows the next file.",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "accept", "Launch", id="page.next", priority=True, tooltip="Start the run"
        ),
        Binding(
            "enter",
            "accept_write",
            "Write",
            id="review.next-write",
            priority=True,
            tooltip="Write the folder, to be copied to its machine",
        ),
        Binding("f", "file", "Next file", id="review.file", tooltip="Show the next of the files"),
        Binding("d", "diff", "Diff", id="review.diff", tooltip="What differs from the last run"),
        Binding("s", "smoke", "Smoke test", id="review.smoke", tooltip="Try a few steps first"),
        Binding("w", "write", "Write", id="review.write", tooltip="Write it and start nothing"),
        Binding(
            "t",
            "foreground",
            "Here",
            id="review.foreground",
            show=False,
            tooltip="Start it and print it to this terminal",
        ),
        Binding(
            "x",
            "export",
            "Export",
            id="review.export",
            tooltip="The run in another form, into a file",
        ),
        Binding(
            "exclamation_mark",
            "accept_warnings",
            "Accept",
            key_display="!",
            id="review.accept",
            tooltip="Accept the warnings; a file beside the script says so",
        ),
        Binding("e", "edit", "Edit", id="review.edit", show=False, tooltip="Write it and edit it"),
    ]

    def __init__(self, *, chosen: Chosen, name: str, facts: Facts, verbs: ReviewVerbs) -> None:
        super().__init__()
        self._chosen = chosen
        self._run_name = name
        self._facts = facts
        self._verbs = verbs
        self._files: Mapping[str, str] = {}
        self._shown = FIRST_FILE
        self._folder: Path | None = None
        self._against: tuple[str, Mapping[str, str]] | None = None
        self._starting = False
        self._warnings = warnings(chosen.plan, facts)
        accepted = set(chosen.answers.accepted)
        self._accepted = tuple(one for one in self._warnings if str(one[1]) in accepted)

    def so_far(self) -> Answers:
        """With the warnings that were accepted here."""
        told = (str(problem) for _, problem in self._accepted)
        accepted = tuple(dict.fromkeys((*self._chosen.answers.accepted, *told)))
        return replace(self._chosen.answers, accepted=accepted)

    def body(self) -> ComposeResult:
        """The checks, and the file."""
        yield Panel("Before you launch", id="checks")
        with VerticalScroll(id="script"):
            yield Static(id="text", markup=False)

    def on_mount(self) -> None:
        """Render."""
        self.query_one("#script").focus()
        if self._facts.machine:
            self.message.hint(
                f"For {self._facts.machine}, so nothing is started here: Enter writes the folder."
            )
        chosen, facts, name = self._chosen, self._facts, self._run_name
        self.ask(lambda: self._verbs.preview(chosen, facts, name), self._show, "writing run.sh")

    def on_resize(self) -> None:
        """What is in order takes less room where there is little."""
        self._show_checks()
        self.call_after_refresh(self.query_one("#script").scroll_visible, animate=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The run of another machine is written and exported, not started."""
        if action in ("accept", "smoke", "foreground"):
            return not self._facts.machine
        if action == "accept_write":
            return bool(self._facts.machine)
        if action == "accept_warnings":
            left = self._warnings != self._accepted
            return left and bool(self._files) and self._folder is None
        return super().check_action(action, parameters)

    def action_accept_write(self) -> None:
        """What Enter does where nothing can be started."""
        self.action_write()

    def action_accept_warnings(self) -> None:
        """Go on in spite of the warnings, which are written down with the run."""
        if self.busy:
            return
        self._accepted = self._warnings
        self._files = self._with_accepted(self._files)
        self._show_checks()
        self._show_file(self._shown)
        told = wording.counted(len(self._accepted), "warning")
        self.message.say(f"{told} accepted; {ACCEPTED_FILE} of the run names them")
        self.refresh_bindings()

    def action_file(self) -> None:
        """Show the next of the files."""
        names = list(self._files)
        if names:
            self._show_file(names[(names.index(self._shown) + 1) % len(names)])

    def action_diff(self) -> None:
        """Show what differs from the last run, or the files again."""
        if self._against is not None:
            self._against = None
            self._show_file(self._shown)
        elif self._files and not self.busy:
            self.ask(self._verbs.last_files, self._compare, "reading the last run")

    def action_next(self) -> None:
        """Start the run and leave with its folder."""

        def leave(folder: Path) -> None:
            self.dismiss(folder)

        self._begin(lambda: self._started(smoke=False), leave, f"starting {self._run_name}")

    def action_write(self) -> None:
        """Write the folder and start nothing."""
        self._begin(self._written, self._tell_written, "writing the folder")

    def action_foreground(self) -> None:
        """Leave the wizard and start the run in this terminal."""

        def leave(folder: Path) -> None:
            self.dismiss(InForeground(run=folder))

        self._begin(self._written, leave, "writing the folder")

    def action_smoke(self) -> None:
        """Try a few steps with the longest rows, and tell what they took."""
        self._begin(self._tried, self._tell_tried, "smoke test: a few steps with the longest rows")

    def action_edit(self) -> None:
        """Write the folder and open the shown file in the editor."""
        self._begin(self._written, self._edit, "writing the folder")

    def action_export(self) -> None:
        """Write the run in another form."""
        if not self.busy:
            name, exports = self._run_name, self._verbs.exports
            Export(
                page=self, verbs=exports, chosen=self._chosen, facts=self._facts, name=name
            ).begin()

    def action_back(self) -> None:
        """Not while a run is being started: it would start unseen."""
        if not (self.busy and self._starting):
            super().action_back()

    def _begin(self, call: Callable[[], Any], then: Callable[[Any], None], subject: str) -> None:
        """Do one of the things that write, once the files are there and nothing else goes on."""
        if self.busy or not self._files:
            return
        self._starting = subject.startswith("starting")
        self.ask(call, then, subject)

    def _written(self) -> Path:
        """The run folder, written once; called in a thread."""
        if self._folder is None:
            self._folder = self._verbs.write(self._files, self._run_name)
        return self._folder

    def _started(self, *, smoke: bool) -> Path:
        folder = self._written()
        self._verbs.launch(folder, smoke)
        return folder

    def _tried(self) -> tuple[RunState, Mapping[str, Any]]:
        """The state and the result of a smoke test that has ended."""
        import time

        folder = self._started(smoke=True)
        while (state := self._verbs.ended(folder)) is None:
            time.sleep(0.5)
        return state, self._verbs.smoke_result(folder)

    def _tell_written(self, folder: Path) -> None:
        name_box(self.query_one("#script"), str(folder), "written, not started")
        start = (
            f"copy it to {self._facts.machine}" if self._facts.machine else "Enter starts it here"
        )
        self.message.say(f"written to {folder}; bash run.sh in it starts it, {start}")

    def _tell_tried(self, tried: tuple[RunState, Mapping[str, Any]]) -> None:
        state, details = tried
        if state.exit_code == 0:
            self.message.say(f"smoke test passed: {tested(details)}. Enter starts the run")
            return
        failure = state.failure
        what = f"the smoke test ended with {state.exit_code}"
        if failure is not None:
            what += f", {failure_words(failure)}"
        fix = f"a smaller max_length or batch; logs in {self._folder}/logs"
        self.message.refuse(Problem(what=what, fix=fix))

    def _edit(self, folder: Path) -> None:
        try:
            with self.app.suspend():
                self._verbs.edit(folder / self._shown, 1)
        except SuspendNotSupported:
            what = "this terminal cannot be lent out"
            self.message.refuse(Problem(what=what, where=str(folder / self._shown)))
            return
        self.ask(lambda: self._verbs.files_of(folder), self._show_edited, "reading it again")

    def _show_edited(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._show_file(self._shown if self._shown in files else FIRST_FILE)

    def _compare(self, last: tuple[str, Mapping[str, str]] | None) -> None:
        if last is None:
            self.message.say("there is no earlier run to compare with")
            return
        self._against = last
        self._show_file(self._shown)

    def _show_checks(self) -> None:
        short = self.size.width < ROOMY or self.size.height < TALL
        plan, facts = self._chosen.plan, self._facts
        self.show("#checks", checks(plan, facts, short=short, accepted=self._accepted))

    def _show(self, files: Mapping[str, str]) -> None:
        self._files = self._with_accepted(files)
        self.refresh_bindings()
        self._show_file(FIRST_FILE if FIRST_FILE in files else next(iter(files)))

    def _with_accepted(self, files: Mapping[str, str]) -> Mapping[str, str]:
        return {**files, ACCEPTED_FILE: record(self._accepted)} if self._accepted else files

    def _show_file(self, name: str) -> None:
        self._shown = name
        script = self.query_one("#script")
        others = "   ".join(f"[{n}]" if n == name else n for n in self._files)
        if self._against is None:
            name_box(script, f"{self._run_name}/{name}", others)
            text = wording.many_lines(self._files[name])
            lines = [_code(line) for line in text.split("\n")]
        else:
            name_box(script, f"{name}: - {self._against[0]}, + {self._run_name}", others)
            lines = differences(self._against[1].get(name, ""), self._files[name])
        self.show("#text", Content("\n").join(lines))
        script.scroll_home(animate=False)


def differences(before: str, now: str) -> list[Content]:
    """Lines that were taken away and added, with what stands around them."""
    old, new = (wording.many_lines(text).split("\n") for text in (before, now))
    found = list(difflib.unified_diff(old, new, lineterm="", n=2))[2:]
    if not found:
        return [Content(said("nothing differs"))]
    return [Content.styled(line, DIFF_STYLES.get(line[:1], "")) for line in found]


def _code(line: str) -> Content:
    """A line with its comment muted; quoting is not followed, only whole comment lines are."""
    return (
        Content.styled(line, "$foreground-muted")
        if line.lstrip().startswith("#")
        else Content(line)
    )
