"""Machines that are not this one: saved and read back, shipped, composed, refused in words."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import machines as fakes
from tests.probe import machines, write_machines
from wizard.answers import Answers
from wizard.facts import Dataset, Facts
from wizard.planner import plans
from wizard.probe import composed, machine
from wizard.probe.document import explained, from_document, to_document
from wizard.probe.model import read_model
from wizard.problem import Problem, ProblemError

DATA = Dataset(path="/d.jsonl", format="messages", rows=400, longest_row_chars=2000)


def refusal(text: str) -> Problem:
    with pytest.raises(ProblemError) as raised:
        machine.find(text)
    assert raised.value.problem.exit_code == 2
    return raised.value.problem


@pytest.mark.parametrize("name", machines.NAMES)
def test_a_saved_machine_is_read_back_as_it_was(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(tmp_path / "home"))
    facts = machines.probed(name, tmp_path / "root")
    path = machine.save(facts, tmp_path / "server.json")
    assert machine.load(path) == replace(explained(facts), machine="server")


def test_a_file_that_is_there_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text("old")
    machine.save(fakes.machine("h100x8"), path)
    assert len(machine.load(path).devices) == 8
    assert [one.name for one in tmp_path.iterdir()] == ["m.json"]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="cannot be written"):
        machine.save(fakes.machine("cpu"), tmp_path / "no" / "m.json")


def test_every_null_of_the_document_has_a_reason() -> None:
    document = json.loads(json.dumps(to_document(fakes.machine("h100x8"))))
    assert document["schema"] == 1
    assert document["unknown"]["torch"] == "not asked: probe --torch asks it"
    device = document["devices"][0]
    for group in (device, device["bus"], device["readings"]):
        for key, value in group.items():
            if value is None and key != "mig_parent_uuid":
                assert device["unknown"][key], key


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": 2}, "schema 2 is not known"),
        ({"devises": []}, "`devises` is not known (did you mean devices?)"),
        ({"host": {"hostname": "h"}}, "`host.system` is missing"),
        ({"model": None}, "`model` is not known"),
        ({"links": {}}, "`links` must be a list"),
        ({"host": {"hostname": "h", "system": "L", "cpu_cores": "8"}}, "must be a whole number"),
        ({"devices": [{"kind": "gpu", "index": 0, "name": "x"}]}, "`devices[0].kind` is 'gpu'"),
        ({"devices": [{"kind": "cuda", "index": True, "name": "x"}]}, "`devices[0].index`"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(change: dict[str, object], said: str) -> None:
    document = {**to_document(fakes.machine("rtx4090")), **change}
    with pytest.raises(ProblemError) as raised:
        from_document(json.loads(json.dumps(document)), "m.json")
    assert said in str(raised.value)
    assert str(raised.value).startswith("m.json: ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)


@given(st.sampled_from(["devices", "host", "software", "links", "torch", "problems"]), JSON)
def test_any_json_is_a_machine_or_is_refused_in_words(key: str, value: object) -> None:
    document = {**to_document(fakes.machine("rtx4090")), key: value}
    with contextlib.suppress(ProblemError):
        assert isinstance(from_document(json.loads(json.dumps(document)), "m.json"), Facts)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "not json", "\ud83d".encode("utf-8", "replace")]
)
def test_what_is_no_machine_file_is_refused(content: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert str(path) in refusal(str(path)).where


def test_the_shipped_machines_are_what_was_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(tmp_path / "home"))
    assert set(machine.shipped()) == set(write_machines.SHIPPED)
    for name, path in machine.shipped().items():
        wanted = write_machines.snapshot(name, tmp_path / name)
        assert path.read_text(encoding="utf-8") == wanted, "python -m tests.probe.write_machines"


@pytest.mark.parametrize("name", sorted(write_machines.SHIPPED))
def test_a_shipped_machine_is_found_in_any_spelling_and_can_be_planned_on(name: str) -> None:
    facts = machine.find(name.lower().replace("-", " "))
    assert facts.machine == name
    facts = replace(facts, model=read_model("Qwen/Qwen2.5-0.5B"), dataset=DATA)
    if facts.devices[0].kind == "xpu":
        with pytest.raises(ProblemError, match="recognised but not yet trained on"):
            plans(facts, Answers())
    else:
        assert any(plan.fits for plan in plans(facts, Answers()))


@pytest.mark.parametrize(
    ("text", "name", "count", "kind"),
    [
        ('4x "NVIDIA L40S"', "NVIDIA L40S", 4, "cuda"),
        ("2xRTX 4090", "NVIDIA GeForce RTX 4090", 2, "cuda"),
        ("rtx5090", "NVIDIA GeForce RTX 5090", 1, "cuda"),
        ("8×H200", "NVIDIA H200", 8, "cuda"),
        ("2 x mi300x", "AMD Instinct MI300X", 2, "rocm"),
        ("16x910B3", "Ascend910B3", 16, "npu"),
        ("M3 Max", "Apple M3 Max", 1, "mps"),
    ],
)
def test_a_machine_is_composed_of_a_count_and_a_name(
    text: str, name: str, count: int, kind: str
) -> None:
    facts = machine.find(text)
    assert [(d.name, d.kind, d.index) for d in facts.devices] == [
        (name, kind, index) for index in range(count)
    ]
    assert len(facts.links) == count * (count - 1) // 2
    assert facts.host.memory_total_bytes is None
    assert facts.machine == f"{count}x {name}"


def test_composed_links_are_those_of_the_table() -> None:
    switched = machine.find("8x H200").links[0]
    assert (switched.kind, switched.gbs, switched.peer_access) == ("nvswitch", 450.0, True)
    mesh = machine.find("4xA100-SXM").links[0]
    assert (mesh.kind, mesh.gbs) == ("nvlink", 100.0)
    stock = machine.find("2x RTX 4090").links[0]
    assert (stock.kind, stock.peer_access) == ("host-bridge", False)
    assert "stock driver" in stock.why
    assert machine.find("8x V100").links[0].kind == "unknown"


def test_a_size_that_no_driver_was_seen_to_report_is_counted_low_and_says_so() -> None:
    device = machine.find("1x RTX 3080").devices[0]
    assert device.memory_total_bytes == 10 * 10**9
    assert "sold" in device.sources["memory_total_bytes"]
    unknown = machine.find("1x M3 Max").devices[0]
    assert unknown.memory_total_bytes is None
    assert "36/48/64/96/128" in unknown.unknown["memory_total_bytes"]


@pytest.mark.parametrize(
    ("text", "near"),
    [("8xH10O", "NVIDIA H100 80GB HBM3"), ("8xH100-SMX", "8xH100-SXM"), ("L4OS", "L40S")],
)
def test_a_name_that_is_not_known_gets_the_nearest_offered(text: str, near: str) -> None:
    assert near in refusal(text).fix


@pytest.mark.parametrize(
    "text", ["", "0x L40S", "65x L40S", "nowhere.json", "/tmp/none", "4x", '""']
)
def test_what_names_no_machine_is_refused(text: str) -> None:
    assert refusal(text).what


@given(st.text(max_size=40))
def test_any_text_names_a_machine_or_is_refused_in_words(text: str) -> None:
    with contextlib.suppress(ProblemError):
        assert machine.find(text).devices


def test_every_accelerator_of_the_table_can_be_composed() -> None:
    for name in composed.names():
        assert machine.find(f"2x {name}").devices
