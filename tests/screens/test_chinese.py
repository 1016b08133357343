"""The screens in Chinese: nothing left in English, nothing out of line; walks are elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.screens.pages import PAGES
from tests.screens.stage import OnePage, rest, shown
from tests.screens.test_pictures import settle
from tests.tiers import spread
from wizard import language

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


@pytest.mark.wide
@pytest.mark.parametrize("size", [(80, 24), (60, 16)])
async def test_the_help_of_a_run_is_read_to_its_end_on_a_small_screen(
    size: tuple[int, int],
) -> None:
    """The box is closed on all sides, says which keys go on, and they reach the last key."""
    app = OnePage(PAGES["run"])
    async with app.run_test(size=size) as pilot:
        await rest(pilot)
        await pilot.press("question_mark")
        await rest(pilot)
        first = shown(app)
        await pilot.press("end")
        await rest(pilot)
        last = shown(app)
    assert "打开命令面板" not in first
    assert "打开命令面板" in last
    for text in (first, last):
        assert "实时查看任务" in text
        assert "Page Down 看其余内容；Esc 关闭" in text
