"""What the link test's child says becomes rates and problems; the child itself never hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psutil
import pytest

from engine.linktest import pairs
from tests.probe.links.said import A100, cards, with_slice_of
from wizard.facts import Device, Link
from wizard.probe import linktest
from wizard.probe.running import Ran

HANG = {"kind": "hang", "rank": 0, "during": "copy", "pair": [0, 1], "seconds": 30.0}


def ended(code: int = 0, text: str = "") -> dict[str, Any]:
    return {"kind": "end", "code": code, "text": text}


def copy(a: int, b: int, gbs: float = 20.0, intact: bool = True) -> dict[str, Any]:
    return {"kind": "copy", "pair": [a, b], "gbs": gbs, "intact": intact}


def summed(ranks: int, intact: bool = True) -> dict[str, Any]:
    return {"kind": "all_reduce", "ranks": ranks, "gbs": 14.2, "intact": intact}


class Child:
    """A Run that answers with recorded lines, one answer after another."""

    def __init__(self, *answers: Sequence[dict[str, Any]], timed_out: bool = False) -> None:
        self.answers = list(answers)
        self.timed_out = timed_out
        self.commands: list[Sequence[str]] = []

    def __call__(self, command: Sequence[str], limit_seconds: float) -> Ran:
        self.commands.append(command)
        lines = self.answers.pop(0)
        return Ran(0, "".join(json.dumps(line) + "\n" for line in lines), timed_out=self.timed_out)


def known(count: int, gbs: float = 31.5) -> list[Link]:
    return [
        Link(devices=(a, b), kind="pcie-switch", gbs=gbs, peer_access=True, why="", source="nvml")
        for a in range(count)
        for b in range(a + 1, count)
    ]


def test_measured_rates_stand_in_place_of_what_links_can_do() -> None:
    child = Child([copy(0, 1, 26.4), summed(2), ended()])
    tested = linktest.test_links(cards(2, A100, (8, 0)), known(2), run=child)
    (link,) = tested.links
    assert (link.kind, link.gbs, link.peer_access, link.source) == (
        "pcie-switch",
        26.4,
        True,
        "measured",
    )
    assert [(p.severity, p.where) for p in tested.problems] == [("info", "all-reduce")]


def test_devices_are_named_to_the_child_in_their_order() -> None:
    first, second = cards(2, A100, (8, 0))
    child = Child([copy(0, 1), summed(2), ended()])
    linktest.test_links((second, first), run=child)
    (command,) = child.commands
    assert command[command.index("--devices") + 1] == "GPU-00000001,GPU-00000000"


def test_a_hang_is_a_finding_with_the_way_around_that_was_tried() -> None:
    child = Child([HANG, ended(-9)], [copy(0, 1, 11.0), summed(2), ended()])
    tested = linktest.test_links(cards(2, A100, (8, 0)), known(2), run=child)
    (problem,) = tested.problems
    assert problem.where == "devices 0 and 1"
    assert "the copy hangs: no answer within 30 s" in problem.what
    assert "NCCL_P2P_DISABLE=1" in problem.fix
    assert "ACS" in problem.fix
    assert (tested.links[0].peer_access, tested.links[0].gbs) == (False, 11.0)
    assert "--without-peer-access" in child.commands[1]


def test_a_hang_that_stays_without_peer_access_says_so() -> None:
    child = Child([HANG, ended(-9)], [HANG, ended(-9)])
    tested = linktest.test_links(cards(2, A100, (8, 0)), known(2), run=child)
    assert "also without peer access" in tested.problems[0].what
    assert tested.links == tuple(known(2))


def test_data_that_comes_over_wrong_is_an_error_though_it_is_fast() -> None:
    child = Child([copy(0, 1, intact=False), summed(2, intact=False), ended()], [ended(1)])
    tested = linktest.test_links(cards(2, A100, (8, 0)), known(2), run=child)
    assert {problem.severity for problem in tested.problems} == {"error"}
    assert "other data" in tested.problems[0].what
    assert tested.links[0].peer_access is False


def test_a_link_far_below_what_it_can_do_is_a_warning() -> None:
    child = Child([copy(0, 1, 0.05), summed(2), ended()])
    tested = linktest.test_links(cards(2, A100, (8, 0)), known(2), run=child)
    assert [problem.severity for problem in tested.problems] == ["warning", "info"]
    assert "31.5 GB/s" in tested.problems[0].what


def test_a_start_that_fails_is_said_once_and_not_tried_again() -> None:
    child = Child([ended(1, "ModuleNotFoundError: No module named 'torch'")])
    tested = linktest.test_links(cards(2, A100, (8, 0)), run=child)
    assert [problem.severity for problem in tested.problems] == ["error"]
    assert "No module named 'torch'" in tested.problems[0].what


def test_a_child_that_never_answers_is_said() -> None:
    tested = linktest.test_links(cards(2, A100, (8, 0)), run=Child([], timed_out=True))
    assert "did not end within 180 s" in tested.problems[0].what


def test_what_has_no_link_to_test_is_told_without_a_child() -> None:
    (one,) = cards(1, A100, (8, 0))
    slices = [with_slice_of(device, "GPU-0") for device in cards(2, A100, (8, 0))]
    mixed = (one, replace(one, kind="npu", uuid=None))
    for devices in ((one,), slices, mixed):
        tested = linktest.test_links(devices, run=Child())
        assert [problem.severity for problem in tested.problems] == ["info"]


def test_lines_of_libraries_and_nonsense_are_skipped() -> None:
    noise = "host:1:1 [0] NCCL WARN x\n[1]\n{\n" + json.dumps(copy(0, 1) | {"pair": "x"}) + "\n"
    said = linktest.understand(Ran(0, noise + json.dumps(ended()) + "\n"))
    assert (said.copies, said.code) == ({}, 0)


def test_all_pairs_are_tested_of_sixteen_and_neighbours_of_more() -> None:
    assert len(pairs(16)) == 120
    assert pairs(64)[:2] == [(0, 1), (1, 2)]
    assert len(pairs(64)) == 63


@pytest.mark.engine
def test_two_ranks_on_the_processor_exchange_data_for_real() -> None:
    tested = linktest.test_links((Device(kind="cpu", index=0, name="CPU"),))
    (problem,) = tested.problems
    assert (problem.severity, problem.where) == ("info", "all-reduce")
    assert "GB/s for each of 2" in problem.what


@pytest.mark.engine
def test_a_rank_that_stops_is_named_and_every_process_is_ended() -> None:
    command = [sys.executable, "-m", "engine.linktest", "--exchange-seconds", "10"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    assert child.stdout is not None
    ranks: dict[int, int] = {}
    lines = []
    for text in child.stdout:
        lines.append(json.loads(text))
        if lines[-1]["kind"] == "rank":
            ranks[lines[-1]["rank"]] = lines[-1]["pid"]
            if lines[-1]["rank"] == 1:
                os.kill(lines[-1]["pid"], signal.SIGSTOP)
    assert child.wait(30) != 0
    kinds = [line["kind"] for line in lines]
    assert "hang" in kinds
    assert kinds[-1] == "end"
    assert next(line for line in lines if line["kind"] == "hang")["rank"] == 0
    until = time.monotonic() + 10
    while any(psutil.pid_exists(pid) for pid in ranks.values()) and time.monotonic() < until:
        time.sleep(0.1)
    assert not [pid for pid in ranks.values() if psutil.pid_exists(pid)]
