"""A model folder is whole, or named as what it is not."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from engine.failure import RunError
from engine.fetch import fetch, verify
from engine.spec import ModelTable

HEADER = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
WEIGHTS = struct.pack("<Q", len(HEADER)) + HEADER + bytes(8)


def folder(path: Path, **files: bytes) -> Path:
    path.mkdir()
    (path / "config.json").write_text("{}")
    for name, content in files.items():
        (path / name.replace("__", ".")).write_bytes(content)
    return path


def test_a_whole_folder_is_fetched_where_it_lies(tmp_path: Path) -> None:
    model = folder(tmp_path / "a model $(x)", model__safetensors=WEIGHTS)

    found = fetch(ModelTable(model=str(model)))

    assert found.path == model
    assert found.source == "local"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "no weights"),
        ({"pytorch_model__bin": b"x"}, "pytorch_model.bin, which is not read"),
        ({"model__safetensors": WEIGHTS[:-1]}, "cut short"),
        ({"model__safetensors": WEIGHTS[:5]}, "cut short"),
        ({"model__safetensors": b""}, "cut short"),
        ({"model__safetensors": struct.pack("<Q", 2) + b"[]" + bytes(8)}, "not a safetensors"),
        ({"model__safetensors": struct.pack("<Q", 8) + b'{"w": 1}'}, "not a safetensors"),
        ({"model__safetensors": struct.pack("<Q", 9**5) + b"[" * 9**5}, "not a safetensors"),
        ({"model__safetensors": struct.pack("<Q", 4) + b"nope" + bytes(8)}, "not a safetensors"),
        ({"model__safetensors": b"version https://git-lfs.github.com/spec/v1\noid"}, "git-lfs"),
    ],
)
def test_f03_a_folder_that_is_not_whole_says_why(
    tmp_path: Path, files: dict[str, bytes], reason: str
) -> None:
    with pytest.raises(RunError, match=reason) as caught:
        verify(folder(tmp_path / "m", **files))

    assert caught.value.failure == "bad_spec"


def test_f03_every_shard_of_the_index_must_be_there(tmp_path: Path) -> None:
    model = folder(tmp_path / "m", one__safetensors=WEIGHTS)
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(RunError, match=r"two\.safetensors: a weight file of the model is missing"):
        verify(model)


def test_a_missing_folder_and_one_without_config_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such model folder"):
        fetch(ModelTable(model=str(tmp_path / "nowhere")))
    with pytest.raises(RunError, match=r"no config\.json"):
        fetch(ModelTable(model=str(tmp_path)))


@pytest.mark.wide
def test_a_model_that_needs_code_of_its_own_is_refused_and_one_that_does_not_is_taken(
    tmp_path: Path,
) -> None:
    model = folder(tmp_path / "m", model__safetensors=WEIGHTS)
    own = {"auto_map": {"AutoConfig": "configuration_x.X"}, "model_type": "nobody's"}
    (model / "config.json").write_text(json.dumps(own))
    with pytest.raises(RunError, match="run code that comes with them"):
        verify(model)
    (model / "config.json").write_text(json.dumps({**own, "model_type": "deepseek_v3"}))
    verify(model)
