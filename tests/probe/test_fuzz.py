"""Whatever NVML fails at or makes up: facts and problems, never a traceback, never a hang."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.nvml import Nvml, NVMLError, in_child, load, running, said
from wizard.facts import Facts
from wizard.probe import accelerators, smi, torchview
from wizard.probe.accelerators import read_nvidia
from wizard.probe.assembly import assembled
from wizard.probe.nvidia import report
from wizard.probe.nvml_decode import decode
from wizard.probe.running import Ran, run

NOWHERE = Path("/nonexistent")
MACHINES = ("l40s_single", "rtx3090x2_nvlink", "mig_h100_1g10gb", "gb10_spark", "a40x10")
CODES = (1, 2, 3, 4, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 21, 25, 27, 28, 999)
CALLS = tuple(
    sorted(
        {
            "nvmlInit",
            "nvmlSystemGetDriverVersion",
            "nvmlSystemGetCudaDriverVersion_v2",
            "nvmlSystemGetProcessName",
            "nvmlDeviceGetCount",
            "nvmlDeviceGetHandleByIndex",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetMaxMigDeviceCount",
            "nvmlDeviceGetMigDeviceHandleByIndex",
            "nvmlDeviceGetName",
            "nvmlDeviceGetUUID",
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetCudaComputeCapability",
            "nvmlDeviceGetPciInfo",
            "nvmlDeviceGetMaxPcieLinkGeneration",
            "nvmlDeviceGetMaxPcieLinkWidth",
            "nvmlDeviceGetMemoryAffinity",
            "nvmlDeviceGetCpuAffinity",
            "nvmlDeviceGetUtilizationRates",
            "nvmlDeviceGetTemperature",
            "nvmlDeviceGetPowerUsage",
            "nvmlDeviceGetEnforcedPowerLimit",
            "nvmlDeviceGetPowerManagementLimit",
            "nvmlDeviceGetClockInfo",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
            "nvmlDeviceGetTotalEccErrors",
            "nvmlDeviceGetRemappedRows",
            "nvmlDeviceGetComputeMode",
            "nvmlDeviceGetPersistenceMode",
            "nvmlDeviceGetDisplayActive",
            "nvmlDeviceGetComputeRunningProcesses",
            "nvmlDeviceGetGraphicsRunningProcesses",
            "nvmlDeviceGetNvLinkState",
            "nvmlDeviceGetNvLinkVersion",
            "nvmlDeviceGetNvLinkRemotePciInfo",
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetTopologyCommonAncestor",
            "nvmlDeviceGetP2PStatus",
        }
    )
)


class Asked(Nvml):
    """Notes the calls that are made."""

    def _call(self, name: str, *arguments: Any) -> Any:
        NOTED.add(name)
        return super()._call(name, *arguments)


NOTED: set[str] = set()


def test_the_fuzz_reaches_every_call_that_the_probe_makes() -> None:
    double = load("rtx3090x2_nvlink")
    process = {"pid": 1, "usedGpuMemory": 1}
    divided = {"nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetMaxMigDeviceCount": 1}
    holding = {"nvmlDeviceGetComputeRunningProcesses": [process]}
    cards = [{**card, **divided, **holding} for card in double.cards]
    report(Asked(cards=cards), lambda _: None)
    assert set(CALLS) == NOTED


nonsense = st.one_of(
    st.none(),
    st.integers(),
    st.integers(min_value=2**31, max_value=2**64),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.booleans(),
    st.lists(st.integers() | st.text(max_size=3), max_size=5),
    st.just({}),
    st.just(object()),
)
failures = st.sampled_from(CODES).map(NVMLError) | st.sampled_from(
    [OSError("gone"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), ValueError(), KeyError(3)]
)
places = st.sampled_from(["", " 0", " 1", " 9"])
keys = st.tuples(st.sampled_from(CALLS), places).map("".join)
breakages = st.dictionaries(keys, nonsense | failures, max_size=12)


def facts_of(machine: str, broken: dict[str, Any]) -> Facts:
    double = load(machine)
    double.broken = broken
    found = read_nvidia(NOWHERE, running(said(double)))
    return assembled({"NVIDIA": found}, (), NOWHERE)


def whole(facts: Facts) -> None:
    """Nothing that cannot be, nothing unknown without a reason, nothing broken in the probe."""
    for device in facts.accelerators:
        total, free = device.memory_total_bytes, device.memory_free_bytes
        assert device.name.isprintable()
        assert total is None or 0 < total < 2**50
        assert free is None or total is None or 0 <= free <= total
        assert total is not None or device.unknown["memory_total_bytes"] or device.unified_memory
        assert device.compute_capability is None or device.compute_capability >= (1, 0)
    for problem in facts.problems:
        assert problem.what
        assert "fault of the probe" not in problem.fix, str(problem)


FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.wide
@settings(FUZZ, max_examples=150)
@given(machine=st.sampled_from(MACHINES), broken=breakages)
def test_any_calls_failing_in_any_way_give_facts(machine: str, broken: dict[str, Any]) -> None:
    whole(facts_of(machine, broken))


@pytest.mark.slow
@settings(FUZZ, max_examples=2500)
@given(machine=st.sampled_from(MACHINES), broken=breakages)
def test_any_calls_failing_in_any_way_give_facts_at_length(
    machine: str, broken: dict[str, Any]
) -> None:
    whole(facts_of(machine, broken))


@pytest.mark.parametrize("code", CODES)
def test_every_call_failing_with_one_code_gives_facts(code: int) -> None:
    for calls in (CALLS, [call for call in CALLS if call != "nvmlInit"], CALLS[10:]):
        whole(facts_of("rtx3090x2_nvlink", {call: NVMLError(code) for call in calls}))


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
kinds = st.sampled_from(["driver", "device", "slice", "details", "error", "link", "pair", "end"])
names = st.sampled_from(["index", "slice", "mig", "values", "errors", "code", "uuid", "where"])
lines = st.dictionaries(names, anything, max_size=5).flatmap(
    lambda line: kinds.map(lambda kind: json.dumps({"kind": kind, **line}))
)


@pytest.mark.wide
@settings(FUZZ, max_examples=150)
@given(st.lists(lines | st.text(max_size=30), max_size=8).map("\n".join))
def test_lines_of_any_content_are_understood_or_skipped(text: str) -> None:
    decode(text)
    torchview.decode(Ran(0, text))
    smi.decode(text)


@settings(FUZZ, max_examples=100)
@given(
    rows=st.lists(
        st.lists(st.sampled_from(["0", "[N/A]", "ERR!", "-1", "9" * 40, "NVIDIA A10G", "8.6", ""]))
        | st.lists(st.text(max_size=10)),
        max_size=4,
    )
)
def test_nvidia_smi_may_print_anything(rows: list[list[str]]) -> None:
    header = "index, name, memory.total [MiB], memory.free [MiB], compute_cap"
    smi.decode("\n".join([header, *(", ".join(row) for row in rows)]))


SOON = (
    ("nvmlInit", "hang"),
    ("nvmlInit", "SIGSEGV"),
    ("nvmlDeviceGetMemoryInfo", "hang"),
    ("nvmlDeviceGetTemperature", "SIGKILL"),
)
LATER = (
    ("nvmlSystemGetDriverVersion", "hang"),
    ("nvmlSystemGetDriverVersion", "SIGABRT"),
    ("nvmlDeviceGetCount", "hang"),
    ("nvmlDeviceGetCount", "SIGBUS"),
    ("nvmlDeviceGetHandleByIndex", "hang"),
    ("nvmlDeviceGetHandleByIndex", "SIGSEGV"),
    ("nvmlDeviceGetName", "hang"),
    ("nvmlDeviceGetName", "SIGFPE"),
    ("nvmlDeviceGetUUID", "SIGILL"),
    ("nvmlDeviceGetCudaComputeCapability", "hang"),
    ("nvmlDeviceGetPciInfo", "SIGTERM"),
    ("nvmlDeviceGetUtilizationRates", "hang"),
    ("nvmlDeviceGetNvLinkState", "hang"),
    ("nvmlDeviceGetNvLinkState", "SIGSEGV"),
    ("nvmlDeviceGetTopologyCommonAncestor", "hang"),
    ("nvmlDeviceGetP2PStatus", "SIGKILL"),
)
AFTER_MEMORY = ("Capability", "PciInfo", "Utilization", "NvLink", "Ancestor", "P2P", "Temperature")


def only_the_child(command: Sequence[str], limit_seconds: float) -> Ran:
    return run(command, limit_seconds) if "wizard.probe.nvidia" in command else Ran(None)


def through_the_child(
    call: str, how: str, root: Path, monkeypatch: pytest.MonkeyPatch, limit_seconds: float
) -> None:
    """Through the real child: it ends in time, with a problem, and names are kept once said."""
    for name, value in in_child("rtx3090x2_nvlink", {call: how}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(accelerators, "TIME_LIMIT_SECONDS", limit_seconds)
    (root / "dev").mkdir()
    (root / "dev/nvidia0").touch()
    begun = time.monotonic()
    found = read_nvidia(root, only_the_child)
    assert time.monotonic() - begun < limit_seconds + 10
    said_something = any(word in call for word in AFTER_MEMORY)
    assert len(found.devices) == (2 if said_something else 0)
    (problem,) = found.problems
    assert ("did not answer" if how == "hang" else "ended before") in problem.what
    assert problem.severity == ("warning" if found.devices else "error")


@pytest.mark.parametrize(("call", "how"), SOON)
def test_a_driver_that_hangs_or_kills_its_caller_ends_in_time(
    call: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through_the_child(call, how, tmp_path, monkeypatch, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize(("call", "how"), LATER)
def test_a_driver_that_hangs_or_kills_its_caller_anywhere_ends_in_time(
    call: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through_the_child(call, how, tmp_path, monkeypatch, 3.0)
