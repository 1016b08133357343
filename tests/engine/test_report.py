"""A rank's events reach its file, and never trouble it."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.events import decode_all
from engine.report import (
    Report,
    device_property,
    process_memory_bytes,
    process_memory_peak_bytes,
)
from engine.sensors import Sampler, sensors
from tests.runner.waiting import until


def events(run: Path) -> list[dict[str, object]]:
    return list(decode_all((run / "events/rank-00003.jsonl").read_bytes()))


def test_events_are_appended_with_who_and_when(tmp_path: Path) -> None:
    for attempt in (0, 1):
        report = Report(tmp_path, rank=3, attempt=attempt, rung=2)
        report.step = 7
        report.warn("careful")

    assert [(e["rank"], e["attempt"], e["rung"], e["step"]) for e in events(tmp_path)] == [
        (3, 0, 2, 7),
        (3, 1, 2, 7),
    ]


def test_a_change_of_phase_is_a_pulse_at_once(tmp_path: Path) -> None:
    report = Report(tmp_path, rank=3, attempt=0, rung=0)
    report.start()
    report.phase("loading model")

    deadline = time.monotonic() + 4
    while time.monotonic() < deadline:
        pulses = [e for e in events(tmp_path) if e["kind"] == "pulse"]
        if any(pulse["phase"] == "loading model" for pulse in pulses):
            break
    report.end()

    assert pulses[-1]["phase"] == "loading model"
    assert pulses[-1]["power_w"] is None
    assert pulses[-1]["process_memory_bytes"]


def test_a_full_disk_costs_events_and_nothing_else(tmp_path: Path) -> None:
    report = Report(tmp_path, rank=3, attempt=0, rung=0)
    assert report._file is not None
    os.dup2(os.open("/dev/full", os.O_WRONLY), report._file)

    report.warn("lost")

    assert events(tmp_path) == []


def test_a_folder_that_refuses_events_lets_the_rank_work(tmp_path: Path) -> None:
    (tmp_path / "events").write_text("in the way")

    Report(tmp_path, rank=3, attempt=0, rung=0).warn("lost")

    assert (tmp_path / "events").read_text() == "in the way"


def test_the_peak_of_a_process_is_at_least_what_it_holds() -> None:
    held = process_memory_bytes()

    assert held is not None
    assert process_memory_peak_bytes() >= held > 1_000_000


class Nvml(SimpleNamespace):
    """What of the driver's library a rank asks; `told` are error numbers that wait to be told."""

    def __init__(self, told: list[int], **missing: None) -> None:
        def wait(events: object, milliseconds: int) -> SimpleNamespace:
            assert milliseconds == 0, "a pulse must not wait"
            return SimpleNamespace(eventData=told.pop(0))

        super().__init__(
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByUUID=lambda uuid: 1,
            nvmlDeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=97),
            nvmlDeviceGetCurrPcieLinkWidth=lambda h: 8,
            nvmlEventTypeXidCriticalError=8,
            nvmlEventSetCreate=lambda: 2,
            nvmlDeviceRegisterEvents=lambda h, kind, events: None,
            nvmlEventSetWait_v2=wait,
        )
        for name in missing:
            delattr(self, name)


def test_the_newest_error_that_the_driver_told_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(told))
    read = sensors("GPU-1")
    assert read()["xid"] == 0
    told += [13, 79]
    assert read() == {"utilization_percent": 97, "pcie_link_width": 8, "xid": 79}
    assert read()["xid"] == 79


def test_a_device_that_tells_no_errors_leaves_them_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    missing: Any = {"nvmlDeviceRegisterEvents": None, "nvmlDeviceGetCurrPcieLinkWidth": None}
    monkeypatch.setitem(sys.modules, "pynvml", Nvml([], **missing))
    assert sensors("GPU-1")() == {"utilization_percent": 97}


def test_a_driver_that_hangs_holds_up_neither_pulses_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G01, G02: a call into the driver may take seconds, or never come back."""
    answers = threading.Event()
    driver = Nvml([])
    driver.nvmlInit = lambda: answers.wait(600)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    monkeypatch.setattr("engine.report.device_uuid", lambda device: "GPU-1")
    report = Report(tmp_path, rank=3, attempt=0, rung=0)
    report.hello(world_size=1, local_rank=0, device="cpu", data_hash="")
    report.start()
    until(lambda: any(e["kind"] == "pulse" for e in events(tmp_path)))
    report.end()
    report._thread.join(1)
    assert not report._thread.is_alive()
    assert {e["utilization_percent"] for e in events(tmp_path) if e["kind"] == "pulse"} == {None}
    answers.set()
    until(lambda: report._sensors().get("utilization_percent") == 97)


def test_readings_of_a_driver_that_stopped_answering_are_not_told_as_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """G01: the last good sample is told while it is fresh, later it is unknown."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml([]))
    sampler = Sampler("GPU-1", 0.5)
    until(sampler.newest)
    sampler._newest = time.monotonic() - 1.6, {"xid": 0}
    assert sampler.newest() == {}


def test_a_cpu_has_no_properties_of_a_device() -> None:
    assert device_property("cpu", "name") is None
