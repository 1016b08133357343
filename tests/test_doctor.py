"""What the doctor prints, and what its exit code is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.probe.checks.sound import FINE, NOTHING_KNOWN, around, of_software
from wizard import doctor
from wizard.cli import main
from wizard.facts import Facts
from wizard.probe.checks import CHECKS, check
from wizard.problem import Problem

LOST = Problem(
    what="it has fallen off the bus; it is left out",
    where="device 3",
    fix="reboot",
    severity="warning",
    exit_code=6,
)


def test_each_check_is_a_line_and_each_problem_has_its_remedy_below_it() -> None:
    lines = doctor.lines(around(open_files=256))

    assert "ok    torch sees every device" in lines
    place = lines.index(
        "warn  ulimit -n: only 256 files may be open at once: many data workers need more"
    )
    assert lines[place + 1] == "      fix: ulimit -n 65536"
    fine = sum(line.startswith("ok ") for line in lines)
    skipped = len(CHECKS) - fine - 1
    assert lines[-1] == (f"{fine} ok, 0 to note, 1 warning, 0 failed; {skipped} do not apply here")


def test_what_the_probe_met_is_said_first_and_said_once() -> None:
    facts = around(open_files=256)
    facts = replace(facts, problems=(LOST, *check(facts)))
    lines = doctor.lines(facts)

    assert lines[0] == "warn  device 3: it has fallen off the bus; it is left out"
    assert sum("ulimit -n" in line and line.startswith("warn") for line in lines) == 1
    assert "2 warnings" in lines[-1]


@pytest.mark.parametrize(
    ("facts", "passes"),
    [
        (FINE, True),
        (NOTHING_KNOWN, True),
        (around(open_files=256), True),
        (of_software(cuda="12.4"), False),
        (replace(FINE, problems=(LOST,)), True),
        (replace(FINE, problems=(replace(LOST, severity="error"),)), False),
    ],
)
def test_only_an_error_fails(facts: Facts, passes: bool) -> None:
    assert doctor.passes(facts) is passes


def test_json_holds_every_check_with_its_state() -> None:
    said = json.loads(json.dumps(doctor.as_json(of_software(cuda="12.4"))))

    states = {one["id"]: one["state"] for one in said["checks"]}
    assert list(states) == [one.id for one in CHECKS]
    assert (said["schema"], said["ok"]) == (1, False)
    assert (states["driver.fits-torch"], states["host.wsl"]) == ("FAIL", "none")


@pytest.mark.parametrize(("facts", "code"), [(FINE, 0), (of_software(cuda="12.4"), 1)])
def test_the_command_ends_with_what_was_found(
    facts: Facts,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("wizard.probe.probe_machine", lambda **given: facts)

    assert main(["doctor"]) == code
    assert capsys.readouterr().out.splitlines() == doctor.lines(facts)


def test_json_of_the_command_is_one_document(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wizard.probe.probe_machine", lambda **given: FINE)

    assert main(["doctor", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["ok"] is True


def test_a_machine_that_is_not_here_is_examined_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--machine", "8xH100-SXM"]) == 0
    assert "0 failed" in capsys.readouterr().out
