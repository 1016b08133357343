"""Nonsense from tools, files and variables: devices and problems, never a traceback."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import recordings
from tests.fakes.recordings import Recording
from wizard.probe import amd, apple, ascend, intel
from wizard.probe.accelerators import Accelerators
from wizard.probe.running import Ran

KEYS = [
    *("card0", "card²", "system", "VRAM Total Memory (B)", "GTT Total Memory (B)", "Node ID"),
    *("Unique ID", "PCI Bus", "GFX Version", "Card Series", "gpu_data", "asic", "vram", "size"),
    *("value", "device_list", "device_name", "device_id", "memory_physical_size_byte"),
    *("number_of_tiles", "uuid", "pci_bdf_address", "tile_level", "data_list", "metrics_type"),
    *("SPDisplaysDataType", "sppci_model", "sppci_cores"),
]
WORDS = st.sampled_from(["N/A", "-", "²", "9" * 400, "-1", "1e999", "0x0", "gfx", "0000:00:00.0"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
MACHINES = {
    "mi300x_x8": amd.read,
    "rx7900xt": amd.read,
    "intel_max1550_x8": intel.read,
    "apple_m3_max": apple.read,
    "ascend_a3_16": ascend.read,
}
SOME = settings(max_examples=25, deadline=None)
"""Each example plants a machine on the disk."""
VARIABLES = (
    *("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("ASCEND_RT_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
)


def sound(found: Accelerators) -> None:
    for device in found.devices:
        for size in (device.memory_total_bytes, device.memory_free_bytes):
            assert size is None or size >= 0
    for link in found.known_links:
        assert max(link.devices) < len(found.devices)


@SOME
@given(st.sampled_from(sorted(MACHINES)), JSON, st.integers(0, 30))
def test_any_answer_of_a_tool_is_devices_or_problems(name: str, value: object, which: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = recordings.plant(name, Path(folder))
        answers = dict(recordings.session(name).answers)
        command = sorted(answers)[which % len(answers)]
        answers[command] = Ran(0, json.dumps(value))
        sound(MACHINES[name](root, Recording(answers), {}))


@SOME
@given(st.sampled_from(sorted(MACHINES)), st.data())
def test_any_text_in_a_file_is_devices_or_problems(name: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = recordings.plant(name, Path(folder))
        files = sorted(path for path in root.rglob("*") if path.is_file())
        broken = data.draw(st.sampled_from(files))
        broken.write_bytes(data.draw(st.binary(max_size=60)))
        sound(MACHINES[name](root, recordings.session(name), {}))


@SOME
@given(
    st.sampled_from(["mi300x_x8", "intel_max1550_x8", "ascend_a3_16"]),
    st.dictionaries(
        st.sampled_from(VARIABLES),
        st.text(alphabet="0123456789.,- GPUx²", max_size=12),
        max_size=3,
    ),
)
def test_any_variable_leaves_devices_that_are_there(name: str, environment: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = recordings.plant(name, Path(folder))
        sound(MACHINES[name](root, recordings.session(name), environment))
