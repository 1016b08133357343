"""States that any page can be in: offline, empty, broken. Others are in the pages' own tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.screens import values
from tests.screens.pages import model
from tests.screens.stage import OnePage, World, rest, shown, until
from tests.screens.test_leaving import folder
from tests.screens.test_walk import reach
from wizard import cli
from wizard.app import TunewrightApp
from wizard.commands import wizard as command
from wizard.steps import Step

__all__ = ["folder"]


@pytest.mark.parametrize("size", [(60, 16), pytest.param((100, 30), marks=pytest.mark.slow)])
async def test_offline_is_said_on_top_and_by_what_needs_the_hub(size: tuple[int, int]) -> None:
    asked: list[str] = []
    world = World(known=values.KNOWN)
    verbs = world.verbs(offline="HF_HUB_OFFLINE is set", read_hub_model=asked.append)
    app = TunewrightApp(verbs)
    async with app.run_test(size=size) as pilot:
        await reach(pilot, Step.HARDWARE)
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.MODEL)
        await rest(pilot)
        head = shown(app).split("\n")[0]
        await pilot.press(*"org/m", "ctrl+o")
        await rest(pilot)
        told = " ".join(shown(app).split())
    assert "offline" in head
    assert "8" in head
    assert "the hub is not asked: HF_HUB_OFFLINE is set" in told
    assert asked == []


async def test_a_search_that_matches_nothing_says_what_enter_does() -> None:
    app = OnePage(lambda: model(World(known=values.KNOWN)))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("ctrl+u", *"zzz")
        await until(pilot, lambda: "No listed model matches." in shown(app))
        await pilot.press("ctrl+u", *"llama")
        await until(pilot, lambda: "No listed model matches." not in shown(app))


def test_a_screen_that_breaks_is_told_in_a_line_and_the_run_goes_on(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken(TunewrightApp):
        def on_mount(self) -> None:
            raise ZeroDivisionError("by a bug")

        def run(self, *args: object, **kwargs: object) -> Path | None:
            return super().run(headless=True, size=(80, 24))

    monkeypatch.setattr(
        command, "_app", lambda machine, **options: Broken(World().verbs(), **options)
    )
    with pytest.raises(ZeroDivisionError) as caught:
        command.attach(folder, leave_when_done=False)
    assert cli._internal(caught.value) == 70
    said = capsys.readouterr().err
    assert "left; the run goes on: tunewright watch 'my run'" in said
    assert "internal error, ZeroDivisionError: by a bug" in said
    assert "Traceback" not in said
