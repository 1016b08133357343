"""The hardware page: pictures of eight machines, and what it shows while facts come in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.fakes.machines import machine
from tests.screens import machines, values
from tests.screens.stage import OnePage, rest, shown, until
from tests.tiers import spread
from wizard.facts import Facts
from wizard.screens.hardware import HardwarePage
from wizard.steps import Machine

SIZES = [(80, 24), (140, 40)]


@pytest.mark.parametrize("size", SIZES, ids=["80x24", "140x40"])
@pytest.mark.parametrize("name", spread(machines.RECORDED, every=4))
def test_the_page_of_a_machine_looks_as_it_did(
    name: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    """Every device is told, columns are aligned, checks are in sight or a scroll away."""
    assert snap_compare(OnePage(lambda: machines.page(name)), terminal_size=size, run_before=rest)


@pytest.mark.wide
async def test_what_is_known_is_shown_before_the_rest_has_come_in() -> None:
    last = threading.Event()
    host_only = replace(values.MACHINE, devices=(), problems=())

    def probe(say: Callable[[Facts], None]) -> Facts:
        say(host_only)
        last.wait(10)
        return values.MACHINE

    app = OnePage(lambda: HardwarePage(probe, None))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        for _ in range(200):
            if "EPYC 7763" in shown(app):
                break
            await pilot.pause(0.02)
        assert "looking for accelerators" in shown(app)
        assert "No accelerator found" not in shown(app)
        await pilot.press("enter")
        assert app.left == []
        last.set()
        await until(pilot, lambda: "RTX 4090" in shown(app))
        await pilot.press("enter")
        await pilot.pause()
    assert app.left == [Machine(facts=values.MACHINE)]


async def test_facts_of_an_older_look_do_not_replace_newer_ones() -> None:
    old: list[Callable[[Facts], None]] = []

    def probe(say: Callable[[Facts], None]) -> Facts:
        old.append(say)
        return values.MACHINE

    app = OnePage(lambda: HardwarePage(probe, None))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "RTX 4090" in shown(app))
        old[0](replace(values.MACHINE, devices=(values.device(0, "gone"),)))
        await rest(pilot)
        assert "gone" not in shown(app)
        assert "RTX 4090" in shown(app)


@pytest.mark.wide
async def test_what_does_not_fit_is_reached_with_the_arrow_keys() -> None:
    app = OnePage(lambda: machines.page("mixed"))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        assert "bitsandbytes" not in shown(app)
        await pilot.press(*["down"] * 30)
        await pilot.pause()
        assert "bitsandbytes" in shown(app)


async def test_only_a_machine_with_devices_to_skip_speaks_of_skipping_them() -> None:
    cpu = machine("cpu")
    plain = HardwarePage(lambda say: cpu, cpu)
    devices = HardwarePage(lambda say: values.MACHINE, values.MACHINE)
    for page, some in ((plain, False), (devices, True)):
        app = OnePage(lambda page=page: page)  # type: ignore[misc]
        async with app.run_test(size=(100, 40)) as pilot:
            await rest(pilot)
            assert ("Space skips" in shown(app)) is some
            assert ("[x]" in page.help_text()) is some
            assert ("space" in page.active_bindings) is some
