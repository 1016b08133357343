"""The parts of the probe: at once, each with its limit, none taking another along."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml import in_child, load, plant, running, said
from tests.probe.nvidia.saying import answering, torch_sees
from wizard.facts import Device, Facts, Software
from wizard.probe import assembly, checks, links, probe_machine
from wizard.probe.accelerators import Accelerators
from wizard.probe.assembly import assemble
from wizard.probe.parts import Part, together
from wizard.probe.running import Ran, ask_child, run


def test_parts_are_read_at_once() -> None:
    meeting = threading.Barrier(3, timeout=5)
    parts = [Part(str(number), meeting.wait, 5.0) for number in range(3)]
    assert sorted(name for name, _, problem in together(parts) if problem is None) == [
        "0",
        "1",
        "2",
    ]


def test_a_part_that_hangs_is_a_problem_and_the_others_stay() -> None:
    never = threading.Event()
    parts = [Part("slow", never.wait, 0.1), Part("quick", lambda: 7, 5.0)]
    answers = {name: (value, problem) for name, value, problem in together(parts)}
    assert answers["quick"] == (7, None)
    assert "within 0 seconds" in str(answers["slow"][1])


def test_a_part_that_raises_is_a_problem() -> None:
    ((_, value, problem),) = together([Part("broken", lambda: 1 / 0, 5.0)])
    assert value is None
    assert "ZeroDivisionError" in str(problem)


def test_a_part_may_tell_early() -> None:
    def read(tell: Callable[[Any], None]) -> str:
        tell("early")
        return "late"

    answers = [value for _, value, _ in together([Part("one", read, 5.0, tells=True)])]
    assert answers == ["early", "late"]


def test_a_command_is_run_with_its_code_and_both_its_outputs() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    ran = run([sys.executable, "-c", code], 20)
    assert (ran.code, ran.out, ran.err, ran.timed_out) == (3, "out\n", "err\n", False)
    assert not ran.ok


@pytest.mark.parametrize("command", [["/no/such/command"], ["/"], ["\0"]])
def test_a_command_that_cannot_start_is_missing(command: list[str]) -> None:
    assert run(command, 5).missing


def test_a_command_that_dies_has_its_signal() -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    assert run([sys.executable, "-c", code], 20).code == -11


def test_a_child_that_hangs_is_left_after_the_limit_and_what_it_said_is_kept() -> None:
    code = "import time; print('said', flush=True); time.sleep(600)"
    begun = time.monotonic()
    text, finished = ask_child([sys.executable, "-c", code], 0.6)
    assert time.monotonic() - begun < 5
    assert not finished
    assert text == "said\n"


@pytest.mark.wide
def test_children_of_a_child_that_hangs_end_with_it(tmp_path: Path) -> None:
    mark = tmp_path / "alive"
    grandchild = f"import time; time.sleep(1.5); open({str(mark)!r}, 'w')"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    assert run([sys.executable, "-c", code], 0.7).timed_out
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        assert not mark.exists()
        time.sleep(0.1)


def test_what_is_said_is_heard_in_whole_lines() -> None:
    heard: list[str] = []
    code = (
        "import sys, time; print('one', flush=True); time.sleep(0.4);"
        "sys.stdout.write('tw'); sys.stdout.flush(); time.sleep(0.4); print('o')"
    )
    ran = run([sys.executable, "-c", code], 20, heard=heard.append)
    assert heard[0] == "one\n"
    assert "one\ntw" not in heard
    assert ran.out == "one\ntwo\n"


@pytest.mark.wide
def test_facts_are_told_as_they_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in in_child("rtx3090x2_nvlink", seconds_per_call=0.02).items():
        monkeypatch.setenv(name, value)
    heard: list[Facts] = []
    facts = probe_machine(say=heard.append)
    named = [one for one in heard if one.accelerators]
    assert named[0].accelerators[0].compute_capability is None
    assert named[0].accelerators[0].memory_total_bytes
    assert facts.accelerators[1].compute_capability == (8, 6)
    assert facts.links[0].kind == "nvlink"


def test_this_machine_has_at_least_one_device() -> None:
    facts = probe_machine()
    assert facts.devices
    assert facts.host.cpu_cores
    assert facts.software.versions["transformers"]
    assert not [problem for problem in facts.problems if "fault of the probe" in problem.fix]


def test_a_part_that_breaks_leaves_the_rest_of_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("broken")

    for name in ("read_host", "read_software", "read_torch"):
        monkeypatch.setattr(assembly, name, broken)
    for module, name in ((links, "read_links"), (checks, "check")):
        monkeypatch.setattr(module, name, broken)
    facts = assemble(root=tmp_path, run=running(said(load("h100nvlx2"))))
    assert len(facts.accelerators) == 2
    assert sum("broken" in problem.what for problem in facts.problems) == 5


def test_devices_of_a_second_vendor_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = Accelerators(devices=(Device(kind="xpu", index=0, name="Intel Arc A770"),))
    monkeypatch.setattr(assembly, "VENDORS", {"Intel": lambda root, run: second})
    facts = assemble(root=tmp_path, run=running(said(load("l40s_single"))))
    assert [device.name for device in facts.accelerators] == ["NVIDIA L40S"]
    assert any(problem.where == "Intel Arc A770" for problem in facts.problems)


def test_a_device_the_driver_lists_and_torch_does_not_see_is_an_error(tmp_path: Path) -> None:
    others = answering(torch=torch_sees(error="CUDA driver initialization failed"))
    double = load("l40s_single")
    facts = assemble(torch=True, root=tmp_path, run=running(said(double), others))
    assert len(facts.accelerators) == 1
    errors = [problem for problem in facts.problems if problem.severity == "error"]
    assert any("CUDA driver initialization failed" in problem.what for problem in errors)


def test_whether_cpu_adam_can_be_built_is_part_of_what_torch_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = answering(torch=torch_sees())
    for lacks, can in (((), True), (("ninja",), False), (None, None)):
        software = Software(python="3.12.4", cpu_adam_lacks=lacks)
        monkeypatch.setattr(assembly, "read_software", lambda run, told=software: told)
        facts = assemble(torch=True, root=tmp_path, run=running(said(load("l40s_single")), others))
        assert facts.torch is not None
        assert facts.torch.cpu_adam is can


def test_the_order_of_the_users_variable_is_that_of_the_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,0")
    facts = assemble(root=tmp_path, run=running(said(load("a10gx4_g5_12xlarge"))))
    assert [device.index for device in facts.devices] == [3, 0]
    assert [link.devices for link in facts.links] == [(0, 1)]


def test_no_device_and_no_trace_of_one_is_a_machine_with_a_cpu(tmp_path: Path) -> None:
    root = plant({"proc/meminfo": "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\n"}, tmp_path)
    facts = assemble(root=root, run=running(said(load("cpu_only_cgroup"))))
    assert [device.kind for device in facts.devices] == ["cpu"]
    assert not [p for p in facts.problems if p.where == "NVIDIA driver"]


def test_nothing_at_all_answering_gives_facts(tmp_path: Path) -> None:
    facts = assemble(root=tmp_path, run=lambda command, limit_seconds: Ran(None))
    assert facts.devices
