"""The whole way by keys alone, on eight machines, in both languages, at every size of UX.

Only the machine and the run that is watched are made up: model, data, plans and files are real, and
the files are those that the command writes for the same answers.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widget import Widget

from tests.screens import machines, values
from tests.screens.stage import FollowedRun, shown, until
from tests.screens.test_chinese import left_in_english
from tests.screens.test_walk import reach
from wizard import cli, language, wording
from wizard.app import TunewrightApp
from wizard.commands import verbs
from wizard.facts import Facts
from wizard.steps import Step
from wizard.widgets.keyline import ALWAYS, GAP, KeyLine

MODEL, NAME, RATE = "Qwen/Qwen3-0.6B", "walked", "3e-5"
SIZES = [(60, 16), (80, 24), (100, 30), (140, 40), (200, 60)]
LANGUAGES = ["en", "zh_CN"]
LISTED = {MODEL, "Qwen/Qwen3-8B", "Qwen/Qwen2.5-72B"}
"""Models of the table that are planned for the list: one that fits, and ones that may not."""
ROWS = 137
FIRST = {("cpu", (60, 16), "zh_CN")}
"""The walk of the default tier."""


def walks() -> Iterator[Any]:
    """Each machine at each size in one of the languages is `wide`, in the other `slow`."""
    for (m, machine), (s, size) in itertools.product(enumerate(machines.EIGHT), enumerate(SIZES)):
        for place, lang in enumerate(LANGUAGES):
            paired = (m + s + place) % 2 == 0
            mark = pytest.mark.wide if paired else pytest.mark.slow
            known = () if (machine, size, lang) in FIRST else mark
            yield pytest.param(
                machine, size, lang, id=f"{machine}-{size[0]}x{size[1]}-{lang}", marks=known
            )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Rows to learn."""
    path = tmp_path / "train.jsonl"
    row = {
        "messages": [{"role": "user", "content": "1 + 1"}, {"role": "assistant", "content": "2"}]
    }
    path.write_text(f"{json.dumps(row)}\n" * ROWS, encoding="utf-8")
    return path


@pytest.fixture
def in_english_again() -> Iterator[None]:
    yield
    language.use(language.ENGLISH)


@dataclass
class Walked:
    """What was seen on the way, and what was left behind."""

    pages: dict[Step, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    launched: list[Path] = field(default_factory=list)


def out_of_place(app: TunewrightApp) -> Iterator[str]:
    """What the screen cuts off: keys of the last line, and widgets that stand outside of it."""
    width, height = app.size
    line = app.screen.query_one(KeyLine)
    keys = line._shown
    if sum(key.width + GAP for key in keys) - GAP > line.content_size.width:
        yield f"the last line is longer than {width}: {[key.name for key in keys]}"
    missing = {key.id for key in line._keys()} & ALWAYS - {key.id for key in keys}
    if missing:
        yield f"keys left out: {missing}"
    if not shown(app).split("\n")[-1].rstrip().endswith(keys[-1].does):
        yield f"the last key is cut: {shown(app).splitlines()[-1]!r}"
    for widget in app.screen.walk_children(Widget):
        region = widget.region
        if not region.area or not widget.is_attached or not _displayed(widget):
            continue
        around = [one for one in widget.ancestors if isinstance(one, Widget)]
        sideways = any(one.allow_horizontal_scroll for one in around)
        if region.x < 0 or (region.right > width and not sideways):
            yield f"{widget} from {region.x} to {region.right} of {width}"
        if region.bottom > height and not any(one.allow_vertical_scroll for one in around):
            yield f"{widget} ends at {region.bottom} of {height}"


def _displayed(widget: Widget) -> bool:
    return all(one.display for one in widget.ancestors_with_self if isinstance(one, Widget))


def of_files(app: TunewrightApp) -> range:
    """Rows of the screen that show a file, which is the same in every language."""
    for script in app.screen.query("#script"):
        return range(script.region.y, script.region.bottom)
    return range(0)


async def look(pilot: Pilot[Any], walked: Walked, step: Step) -> None:
    """Remember the page, and what is wrong with it."""
    app = pilot.app
    assert isinstance(app, TunewrightApp)
    await reach(pilot, step)
    await until(pilot, lambda: not getattr(app.screen, "busy", False))
    text = walked.pages[step] = shown(app)
    lines = text.split("\n")
    walked.wrong += [f"{step.value}: {one}" for one in out_of_place(app)]
    if language.said(step.value) not in lines[0]:
        walked.wrong.append(f"{step.value} is not named in {lines[0]!r}")
    walked.wrong += [
        f"{step.value}: wider than the screen: {line!r}"
        for line in lines
        if wording.cells(line.rstrip()) > app.size.width
    ]
    if language.used() != language.ENGLISH:
        ours = "\n".join(lines[row] for row in range(len(lines)) if row not in of_files(app))
        walked.wrong += [f"{step.value} in English: {line}" for line in left_in_english(ours)]


async def walk(facts: Facts, data: Path, size: tuple[int, int]) -> Walked:
    """From the first page to the end of the run, by keys."""
    walked = Walked()
    run = FollowedRun(values.state_after(values.events()))
    real = verbs.verbs()
    given = replace(
        real,
        known_models=lambda: tuple(m for m in real.known_models() if m.name in LISTED),
        probe=lambda say: facts,
        launch=lambda folder, smoke: walked.launched.append(folder),
        follow=lambda folder: run,
        run_details=lambda folder: {"plan": values.PLAN_JSON, "result": values.RESULT_JSON},
        read_log=lambda folder, rank: values.LOG,
    )
    app = TunewrightApp(given, clock=lambda: values.NOW)
    async with app.run_test(size=size) as pilot:
        await look(pilot, walked, Step.HARDWARE)
        await pilot.press("enter")
        await reach(pilot, Step.MODEL)
        await pilot.press(*MODEL)
        await look(pilot, walked, Step.MODEL)
        await pilot.press("enter")
        await reach(pilot, Step.DATA)
        await pilot.press(*str(data), "enter")
        await until(pilot, lambda: str(ROWS) in shown(app))
        await look(pilot, walked, Step.DATA)
        await pilot.press("enter")
        await look(pilot, walked, Step.PLAN)
        await pilot.press("enter")
        await reach(pilot, Step.TUNE)
        await pilot.press(*RATE)
        await look(pilot, walked, Step.TUNE)
        await pilot.press("enter")
        await look(pilot, walked, Step.REVIEW)
        await pilot.press("enter")
        await until(pilot, lambda: "225" in shown(app))
        await look(pilot, walked, Step.RUN)
        run.state = values.finished(run.state)
        await until(pilot, lambda: language.said("finished").upper() in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: shown(app).count("225") >= 2)
        await look(pilot, walked, Step.FINISH)
        await pilot.press("enter")
    assert app.return_value == walked.launched[0]
    return walked


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(("machine", "size", "lang"), walks())
@pytest.mark.usefixtures("in_english_again")
async def test_keys_lead_to_the_files_that_the_command_writes(
    machine: str,
    size: tuple[int, int],
    lang: str,
    data: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = machines.facts(machine)
    language.use(lang)
    walked = await walk(facts, data, size)
    assert walked.wrong == []
    assert list(walked.pages) == list(Step)
    assert "#!/usr/bin/env bash" in walked.pages[Step.REVIEW]
    [folder] = walked.launched

    monkeypatch.setattr("wizard.probe.probe_machine", lambda: facts)
    root = data.parent / "by the command"
    command = ["run", "--write-only", "--model", MODEL, "--data", str(data)]
    command += ["--set", f"learning_rate={RATE}", "--name", folder.name, "--runs", str(root)]
    assert cli.main(command) == 0
    written = files(folder)
    assert {"run.sh", "spec.toml", "plan.json"} <= set(written)
    assert written == files(root / folder.name)
