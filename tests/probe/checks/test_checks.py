"""Every check: what trips it, what it says then, and that it is quiet otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.probe.checks.device_cases import DEVICE_CASES
from tests.probe.checks.host_cases import HOST_CASES
from tests.probe.checks.sound import (
    CARD,
    FINE,
    NOTHING_KNOWN,
    VERSIONS,
    Case,
    of_software,
    result_of,
)
from wizard.facts import GIB
from wizard.probe import checks
from wizard.probe.checks.software import covers

CASES = (*DEVICE_CASES, *HOST_CASES)


@pytest.mark.parametrize("case", CASES, ids=[f"{case.id}-{case.says[:24]}" for case in CASES])
def test_a_check_says_what_is_wrong_and_how_to_fix_it(case: Case) -> None:
    found = result_of(case.id, case.facts)

    assert found.state == case.state
    assert any(case.says in str(problem) for problem in found.problems), found.problems
    assert any(case.fix in problem.fix for problem in found.problems), found.problems


def test_every_check_has_a_case_that_trips_it() -> None:
    assert {check.id for check in checks.CHECKS} == {case.id for case in CASES}


def test_names_of_checks_are_their_own() -> None:
    names = [check.id for check in checks.CHECKS]
    assert len(names) == len(set(names))


def test_a_sound_machine_passes_every_check() -> None:
    assert [str(problem) for problem in checks.check(FINE)] == []


def test_what_is_not_known_is_never_a_problem() -> None:
    assert checks.check(NOTHING_KNOWN) == ()


def test_a_cpu_only_machine_is_not_asked_about_devices() -> None:
    about_devices = {"driver.fits-torch", "torch.kernels", "devices.in-use", "devices.alike"}
    facts = replace(FINE, devices=NOTHING_KNOWN.devices)
    skipped = {result.check.id for result in checks.results(facts) if result.state == "none"}
    assert about_devices <= skipped


@pytest.mark.parametrize("case", CASES, ids=[f"{case.id}-{case.says[:24]}" for case in CASES])
def test_problems_are_one_line_each_with_a_place(case: Case) -> None:
    for problem in result_of(case.id, case.facts).problems:
        assert problem.where
        assert "\n" not in str(problem)


def test_errors_of_devices_stop_a_run_on_the_cpu_that_nobody_asked_for() -> None:
    """The planner refuses to fall back to the CPU on errors with this exit code."""
    for name in ("driver.fits-torch", "torch.build", "torch.sees-devices", "torch.kernels"):
        for case in (case for case in CASES if case.id == name):
            problems = result_of(name, case.facts).problems
            assert {problem.exit_code for problem in problems} == {6}


TORCH_2_8 = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")


@pytest.mark.parametrize(
    ("arch_list", "capability", "covered"),
    [
        (TORCH_2_8, (8, 9), True),  # 8.9 runs what was built for 8.6
        (TORCH_2_8, (6, 1), False),
        (TORCH_2_8, (12, 1), True),
        (TORCH_2_8, (13, 0), True),  # compute_120 is compiled further on the device
        (("sm_60",), (6, 1), True),
        (("sm_80", "sm_90"), (12, 0), False),
        (("sm_90a",), (9, 0), True),
        (("sm_90a",), (9, 1), False),
        (("sm_100f",), (10, 3), True),
        (("compute_90a",), (10, 0), False),
        (("gfx90a", "gfx942"), (9, 4), False),
        ((), (9, 0), False),
    ],
)
def test_kernels_run_on_their_own_generation_and_intermediate_code_on_later_ones(
    arch_list: tuple[str, ...], capability: tuple[int, int], covered: bool
) -> None:
    assert covers(arch_list, capability) is covered


@pytest.mark.parametrize(
    ("build", "torch", "capability", "covered"),
    [
        ("cuda 12.6", "2.8.0", (6, 1), True),
        ("cuda 12.6", "2.8.0", (12, 0), False),
        ("cuda 12.8", "2.8.0", (7, 0), True),
        ("cuda 12.8", "2.11.0", (7, 0), False),
        ("cuda 13.0", "2.13.0", (7, 0), False),
        ("cuda 13.0", "2.13.0", (12, 0), True),
    ],
)
def test_without_asking_torch_its_build_tells_what_it_serves(
    build: str, torch: str, capability: tuple[int, int], covered: bool
) -> None:
    facts = of_software(torch_build=build, versions={**VERSIONS, "torch": torch})
    facts = replace(facts, devices=(replace(CARD, compute_capability=capability),))

    assert (result_of("torch.kernels", facts).state == "ok") is covered


def test_old_and_new_cards_together_are_told_that_no_build_serves_both() -> None:
    old, new = replace(CARD, compute_capability=(7, 0)), replace(CARD, compute_capability=(12, 0))
    found = result_of("torch.kernels", replace(FINE, devices=(old, new)))

    assert [problem.fix for problem in found.problems] == [
        "no one build serves both the old and the new cards here: train on one kind of them"
    ]


def test_a_card_that_an_npu_driver_holds_a_little_of_is_free() -> None:
    idle = replace(CARD, kind="npu", memory_free_bytes=76 * GIB, memory_reserved_bytes=None)
    assert result_of("devices.in-use", replace(FINE, devices=(idle,))).state == "ok"
