"""`x`: the plan at hand in another form: which, what that form wants to know, and where to."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.content import Content

from wizard.facts import Facts
from wizard.language import said
from wizard.machines import MOST
from wizard.steps import Chosen
from wizard.widgets.page import Page
from wizard.widgets.picker import Choice, Picker, matching
from wizard.widgets.prompt import Prompt

if TYPE_CHECKING:
    from wizard.formats.exporting import Target
    from wizard.formats.values import Exported

PEERS = "another trainer's settings"
WANTED: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "torchrun": (("nodes", "2", "machines like this one"),),
    "sbatch": (("nodes", "1", "machines like this one"),),
    "skypilot": (("nodes", "1", "machines like this one"),),
    "accelerate": (("nodes", "1", "machines like this one"),),
    "kubernetes": (
        ("nodes", "1", "machines like this one"),
        ("image", "", "a container image that has tunewright in it"),
        ("claim", "", "the PersistentVolumeClaim that takes the run"),
    ),
}
"""Format → what it wants to know: name, suggestion, what it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportVerbs:
    """What an export does to the world; each may raise ProblemError."""

    make: Callable[[Chosen, Facts, str, Target], Exported]
    """Plan, facts, name and form → its files, not yet written."""
    write: Callable[[Exported, Path], list[Path]]
    """Writes them where nothing is; the files, or the folder's, that are there now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """One plan on its way out of a page."""

    page: Page[Any]
    verbs: ExportVerbs
    chosen: Chosen
    facts: Facts
    name: str

    def begin(self) -> None:
        """Ask for the format."""
        from wizard.formats.exporting import PEERS as OTHERS
        from wizard.formats.exporting import RUNS

        about = {**RUNS, **dict.fromkeys(OTHERS, PEERS)}
        choices = [Choice(value=one, line=f"{one:<13} {said(about[one])}") for one in about]

        def chosen(form: str | None) -> None:
            if form in about:
                self._ask(form, WANTED.get(form, ()), {})

        title = f"Export: {self.chosen.plan.title}"
        self.page.app.push_screen(Picker(title, matching(choices), hint="a format"), chosen)

    def _ask(
        self, form: str, wanted: tuple[tuple[str, str, str], ...], known: Mapping[str, str]
    ) -> None:
        """Ask for what the format wants to know, one thing after the other, then make it."""
        if not wanted:
            self._make(form, known)
            return
        (name, suggestion, about), *others = wanted

        def wrong(text: str) -> str | None:
            if name == "nodes" and not (text.isdecimal() and 1 <= int(text) <= MOST):
                return f"a number from 1 to {MOST}"
            return None if text else f"{form} wants {about}"

        def answered(text: str | None) -> None:
            if text is not None:
                self._ask(form, tuple(others), {**known, name: text})

        title = f"{form}: {name}"
        self.page.app.push_screen(Prompt(title, Content(said(about)), suggestion, wrong), answered)

    def _make(self, form: str, known: Mapping[str, str]) -> None:
        from wizard.formats.exporting import Target, check

        target = Target(
            format=form,
            nodes=int(known.get("nodes", "1")),
            image=known.get("image"),
            claim=known.get("claim"),
        )

        def make() -> Exported:
            check(target)
            return self.verbs.make(self.chosen, self.facts, self.name, target)

        self.page.ask(make, self._ask_where, f"making {form}")

    def _ask_where(self, exported: Exported) -> None:
        """Ask where to; nothing that is there is written over."""
        several = len(exported.files) > 1
        suggestion = self.name if several else f"{self.name}-{exported.main}"
        files = ", ".join(exported.files)
        about = f"a new folder for {files}" if several else f"a new file for {files}"
        left = [f"not carried over: {one.key}: {one.why}" for one in exported.left]

        def wrong(text: str) -> str | None:
            if not text:
                return "it needs a name"
            where = Path(text).expanduser()
            taken = [where / name for name in exported.files] if several else [where]
            there = next((path for path in taken if os.path.lexists(path)), None)
            return f"{there} is there already, and nothing is written over" if there else None

        def answered(text: str | None) -> None:
            if text is not None:
                where = Path(text).expanduser().absolute()
                self.page.ask(lambda: self.verbs.write(exported, where), self._tell, "writing it")

        shown = Content("\n".join(map(said, [about, *left[:MOST_LEFT], *_more(left)])))
        title = f"Export as {exported.main}"
        self.page.app.push_screen(Prompt(title, shown, suggestion, wrong), answered)

    def _tell(self, written: list[Path]) -> None:
        self.page.message.say(f"written: {', '.join(map(str, written))}")


MOST_LEFT = 8
"""Settings that are not carried over, named one by one."""


def _more(left: list[str]) -> list[str]:
    rest = len(left) - MOST_LEFT
    return [f"... and {rest} more, all in the file's comments"] if rest > 0 else []
