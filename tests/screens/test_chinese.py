"""The screens in Chinese: the whole way by Enter, nothing left in English, nothing out of line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.screens import values
from tests.screens.pages import PAGES
from tests.screens.stage import RUN, FollowedRun, OnePage, World, rest, shown, until
from tests.screens.test_pictures import settle
from tests.screens.test_walk import reach
from tests.tiers import spread
from wizard import language, wording
from wizard.app import TunewrightApp
from wizard.planner import plans as real_plans
from wizard.steps import Step

SENTENCE = re.compile(r"[A-Za-z]{2,}(?: [a-z]{2,}){2,}")
"""Three English words in a row; nothing that the wizard says of itself in Chinese has them."""
OF_OTHERS = re.compile(
    r"\[listening\] sockets|How do I list open ports|It shows sockets|slow disk|what is learnt"
    r"|trailing comma|no assistant turn|answers are cut|a display uses device"
)
"""What rows, files and recorded events of the tests say."""


@pytest.fixture(autouse=True)
def chinese() -> Iterator[None]:
    language.use("zh_CN")
    yield
    language.use(language.ENGLISH)


def left_in_english(text: str) -> list[str]:
    """Lines of ours with an English sentence; scripts, rows and logs are in boxes of their own."""
    found = []
    for line in text.split("\n"):
        if line.lstrip("│ ").startswith(
            ("#", "export", "torchrun", '"$PYTHON"', "-m ", "--", "12:")
        ):
            continue
        if "tunewright " not in line and SENTENCE.search(line) and not OF_OTHERS.search(line):
            found.append(line.strip())
    return found


@pytest.mark.parametrize("size", [(80, 24), (60, 16)], ids=["80x24", "60x16"])
async def test_enter_leads_all_the_way_in_chinese(size: tuple[int, int]) -> None:
    world = World(run=FollowedRun(values.state_after(values.events())))
    app = TunewrightApp(world.verbs(plans=real_plans), clock=lambda: values.NOW)
    seen: dict[Step, str] = {}
    keys = {
        Step.HARDWARE: ("enter",),
        Step.MODEL: ("m", "enter", "enter"),
        Step.DATA: ("d", "enter", "enter"),
        Step.PLAN: ("enter",),
        Step.TUNE: ("enter",),
        Step.REVIEW: ("enter",),
    }
    async with app.run_test(size=size) as pilot:
        for step, pressed in keys.items():
            await reach(pilot, step)
            await rest(pilot)
            for key in pressed[:-1]:
                await pilot.press(key)
                await rest(pilot)
            seen[step] = shown(app)
            await pilot.press(pressed[-1])
        await reach(pilot, Step.RUN)
        await until(pilot, lambda: "第 90 / 225 步" in shown(app))
        seen[Step.RUN] = shown(app)
        world.run.state = values.finished(world.run.state)
        await until(pilot, lambda: "已完成" in shown(app))
        await pilot.press("enter")
        await reach(pilot, Step.FINISH)
        await until(pilot, lambda: "225 / 225" in shown(app))
        seen[Step.FINISH] = shown(app)
        await pilot.press("enter")
    assert app.return_value == RUN
    for step, text in seen.items():
        assert left_in_english(text) == [], step
        lines = text.split("\n")
        assert all(wording.cells(line.rstrip()) <= size[0] for line in lines), step
        assert language.said(step.value) in lines[0], step


@pytest.mark.parametrize("page", spread(["plan", "hardware", "tune", "run"], every=2))
@pytest.mark.parametrize(
    "size", spread([((80, 24),), ((140, 40),)], every=2, ids=["80x24", "140x40"])
)
def test_page_looks_as_it_did_in_chinese(
    page: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    """Boxes and columns stay aligned where a character takes two cells."""
    assert snap_compare(OnePage(PAGES[page]), terminal_size=size, run_before=partial(settle))


async def test_help_and_the_palette_name_keys_in_chinese() -> None:
    app = OnePage(PAGES["plan"])
    async with app.run_test(size=(100, 30)) as pilot:
        await rest(pilot)
        assert "按下一个目标排序" in {
            command.help for command in app.get_system_commands(app.screen)
        }
        await pilot.press("question_mark")
        await rest(pilot)
        text = shown(app)
    assert "按下一个目标排序" in text
    assert left_in_english(text) == []
