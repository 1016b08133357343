"""Every action has a key, an id to move it by, and words; the mouse does what keys do."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from textual.binding import Binding
from textual.dom import DOMNode
from textual.widget import Widget
from textual.widgets import OptionList

import wizard.app
import wizard.dashboard
import wizard.screens
import wizard.widgets
from tests.screens import values
from tests.screens.pages import PAGES, data, model
from tests.screens.stage import OnePage, World, rest, shown, until
from tests.screens.test_walk import step_of
from wizard.app import TunewrightApp
from wizard.commands.keymap import binding_ids
from wizard.language import said
from wizard.steps import Step
from wizard.widgets.help import Help
from wizard.widgets.keyline import KeyLine
from wizard.widgets.page import Page
from wizard.widgets.question import Question
from wizard.widgets.table import Rows


def subclasses(kind: type[object]) -> Iterator[type[object]]:
    one: type[object]
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def bindings() -> Iterator[tuple[type, Binding]]:
    for package in (wizard.screens, wizard.widgets, wizard.dashboard):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    for kind in {*subclasses(DOMNode)}:
        if kind.__module__.startswith("wizard."):
            for binding in kind.__dict__.get("BINDINGS", ()):
                yield kind, binding


def test_every_key_has_an_id_that_a_keymap_knows_and_a_tooltip() -> None:
    found = list(bindings())
    assert len(found) > 60
    known = binding_ids()
    wanting = [
        (kind.__name__, getattr(binding, "key", binding))
        for kind, binding in found
        if not isinstance(binding, Binding) or binding.id not in known or not binding.tooltip
    ]
    assert wanting == []


async def test_a_click_marks_a_row_and_one_on_the_marked_row_takes_it() -> None:
    app = OnePage(PAGES["plan"])
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.click(Rows, offset=(4, 1))
        await pilot.pause()
        assert (app.left, app.screen.query_one(Rows).highlighted) == ([], 1)
        await pilot.click(Rows, offset=(4, 1))
        await pilot.pause()
    assert app.left[0].plan == values.PLANS[1]


async def test_a_clicked_model_is_the_one_that_is_taken() -> None:
    app = OnePage(lambda: model(World(known=values.KNOWN)))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.click(Rows, offset=(8, 0))
        await rest(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].name == values.KNOWN[0].name


async def test_a_key_of_the_last_line_can_be_clicked_and_a_choice_of_a_question() -> None:
    app = TunewrightApp(World().verbs())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: step_of(app) is Step.HARDWARE)
        await rest(pilot)
        line = shown(app).split("\n")[-1]
        await pilot.click(KeyLine, offset=(line.index("Back"), 0))
        await until(pilot, lambda: isinstance(app.screen, Question))
        await pilot.click(Rows, offset=(4, 1))
        await until(pilot, lambda: step_of(app) is Step.HARDWARE)
        await pilot.hover(KeyLine, offset=(line.index("Help"), 0))
        assert app.screen.query_one(KeyLine).tooltip == "What this page is about"
        await pilot.click(KeyLine, offset=(line.index("Help"), 0))
        await until(pilot, lambda: isinstance(app.screen, Help))


async def test_help_begins_with_the_widget_that_has_the_focus() -> None:
    app = OnePage(data)
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        app.screen.query_one("#bad", OptionList).focus()
        await pilot.press("?")
        await until(pilot, lambda: isinstance(app.screen, Help))
        assert "Each row that cannot be used, with its line." in " ".join(shown(app).split())


@pytest.mark.wide
async def test_every_widget_that_takes_keys_has_help_of_its_own() -> None:
    for name in ("start", "hardware", "model", "data", "plan", "tune", "review"):
        app = OnePage(PAGES[name])
        async with app.run_test(size=(80, 24)) as pilot:
            page = app.screen
            assert isinstance(page, Page)
            takers = [one for one in page.walk_children(Widget) if one.can_focus and one.display]
            assert takers, name
            for one in takers:
                page.set_focus(one)
                await pilot.pause(0)
                assert page.help_text() != said(page.HELP_TEXT), (name, one)


@pytest.mark.wide
@pytest.mark.parametrize("name", PAGES)
async def test_no_action_of_a_page_raises_and_escape_closes_what_it_opens(name: str) -> None:
    """Each in turn, on one page.

    A smoke test waits for a run, and there is none here: it has a test of its own.
    """
    leaving = {"accept", "back", "quit", "foreground", "app.quit", "smoke"}
    app = OnePage(PAGES[name])
    done = []
    async with app.run_test(size=(100, 30)) as pilot:
        await rest(pilot)
        page = app.screen
        for active in list(page.active_bindings.values()):
            action = active.binding.action
            if action.split("(")[0] in leaving or not active.binding.tooltip:
                continue
            done.append(action)
            node = page if isinstance(active.node, Page) else active.node
            await app.run_action(action, node)
            await rest(pilot)
            for _ in range(3):
                if app.screen is page or app.left:
                    break
                await pilot.press("escape")
                await pilot.pause()
            if app.left:  # it leaves: the next ones begin anew
                app.left.clear()
                page = app._page()
                await app.push_screen(page, app.left.append)
                await rest(pilot)
            assert app.screen is page, action
    assert len(done) > 4
