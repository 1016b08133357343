"""Presets from any step: which there are, what one fixes, and what is kept of the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual.content import Content

from wizard import wording
from wizard.answers import Answers, Preset
from wizard.language import said
from wizard.presets import NAME, NEVER
from wizard.screens.telling import OF_ROWS
from wizard.widgets.picker import Choice, Picker, matching
from wizard.widgets.prompt import Prompt

SAVE = " save"
"""Stands for saving; no preset can be called so."""


def picker(presets: Sequence[Preset], answers: Answers) -> Picker:
    """Asks for a preset, or for saving one."""
    rows = [Choice(value=SAVE, line=said("save what is fixed now as a preset of your own"))]
    rows += [
        Choice(value=one.name, line=f"{one.name:<26} {_own(one, one.title)}", words=one.description)
        for one in presets
    ]
    known = {one.name: one for one in presets}

    def detail(name: str) -> Content:
        return about(known[name]) if name in known else Content(said(_fixed(kept(answers))))

    return Picker("Presets", matching(rows), hint="qlora 24gb ...", detail=detail)


def _own(preset: Preset, text: str) -> str:
    """A text of a preset; what its owner wrote is left as it is."""
    return text if preset.origin == "saved" else said(text)


def about(preset: Preset) -> Content:
    """What a preset is for, and what it fixes."""
    goal = f"goal {preset.goal}; " if preset.goal else ""
    fixes = wording.one_line(said(f"{goal}{_fixed(preset.settings)}"))
    what = wording.one_line(_own(preset, preset.description or preset.title))
    return Content(f"{what}\n{fixes}")


def told(preset: Preset, answers: Answers) -> str:
    """What loading it came to; the user's own settings win, which is said."""
    own = [name for name in preset.settings if name in answers.settings]
    kept_own = f"; yours stay: {', '.join(own)}" if own else ""
    return wording.one_line(f"{preset.name}: {said(_fixed(preset.settings) + kept_own)}")


def kept(answers: Answers) -> dict[str, object]:
    """What a preset made of the answers fixes: nothing that goes with one machine or data set."""
    left_out = OF_ROWS | NEVER.keys()
    return {name: value for name, value in answers.fixed.items() if name not in left_out}


def prompt(presets: Sequence[Preset], answers: Answers) -> Prompt:
    """Asks for a name that no preset has."""
    names = {one.name for one in presets}

    def wrong(text: str) -> str | None:
        if not NAME.fullmatch(text):
            return "use letters, digits, - and _, 64 at most"
        return f"there is a preset {text} already: choose another name" if text in names else None

    about_it = f"goal {answers.goal}; {_fixed(kept(answers))}"
    return Prompt("Save a preset: its name", Content(wording.one_line(said(about_it))), "", wrong)


def made(name: str, answers: Answers) -> Preset:
    """The preset of the answers."""
    return Preset(name=name, title=name, goal=answers.goal, settings=kept(answers), origin="saved")


def _fixed(settings: Mapping[str, object]) -> str:
    fixed = ", ".join(f"{name}={wording.setting(value)}" for name, value in settings.items())
    return f"fixes {fixed or 'nothing'}"
