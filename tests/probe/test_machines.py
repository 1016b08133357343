"""Every recorded machine, from raw answers to Facts, field by field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe import machines


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(tmp_path / "home"))
    for name in machines.VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", machines.NAMES)
def test_the_facts_of_a_machine_are_what_was_recorded_of_it(name: str, tmp_path: Path) -> None:
    facts = machines.probed(name, tmp_path / "root")
    assert list(machines.differences(facts, machines.true(name))) == []


def test_no_recorded_machine_is_left_out() -> None:
    assert len(machines.NAMES) == 29


@pytest.mark.parametrize("name", machines.NAMES)
def test_what_is_not_known_of_a_device_has_a_reason(name: str, tmp_path: Path) -> None:
    from wizard.probe.document import explained

    for device in explained(machines.probed(name, tmp_path / "root")).devices:
        for field in ("memory_total_bytes", "memory_free_bytes", "uuid", "bf16_native"):
            assert getattr(device, field) is not None or device.unknown.get(field)
