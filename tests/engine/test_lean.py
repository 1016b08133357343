"""Processes of a run load what they use, and hold no more for more rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.lean import only_what_trains
from engine.record import write_json
from engine.spec import Spec, dumps
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

PREPARED = """
import json, resource, sys
from engine import prepare
sys.argv = ["prepare", "spec.toml"]
code = prepare.main()
torch = any(name.startswith("torch.") for name in sys.modules)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"code": code, "torch": torch, "peak_bytes": peak}))
"""
MEBIBYTE = 1024**2
NAMES = """
from engine import lean
lean.only_tokenizers()
from transformers import models
from transformers.utils import import_utils
import_utils.create_import_structure_from_path.cache_clear()
import_utils.define_import_structure.cache_clear()
found = import_utils.define_import_structure(models.__file__)
assert models._class_to_module == type(models)("m", models.__file__, found)._class_to_module
assert len(models._class_to_module) > 1000
"""


def spec(model: Path, data: Path, **changes: dict[str, Any]) -> Spec:
    tables: dict[str, dict[str, Any]] = {
        "model": {"model": str(model)},
        "data": {"data": str(data), "max_length": 64},
        "method": {"method": "lora", "stage": "pretrain"},
        "parallel": {"strategy": "single", "device_kind": "cpu"},
        "training": {"effective_batch_size": 1},
    }
    merged = {name: {**table, **changes.get(name, {})} for name, table in tables.items()}
    return Spec.model_validate({**merged, "plugins": changes.get("plugins", {})})


def prepared(folder: Path, rows: int) -> Any:
    """What a process said that prepared so many rows as a run does."""
    folder.mkdir()
    make.tokenizer().save_pretrained(folder / "model")
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps({"text": f"number {n}"}) + "\n" for n in range(rows)))
    where = {"path": str(folder / "model"), "revision": None, "source": "local"}
    write_json(folder / "fetched.json", where)
    (folder / "spec.toml").write_text(dumps(spec(folder / "model", data)))
    command = [sys.executable, "-c", PREPARED]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert "PyTorch was not found" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_data_is_prepared_without_torch_in_memory_that_does_not_grow_with_rows(
    tmp_path: Path,
) -> None:
    few, many = prepared(tmp_path / "few", 5_000), prepared(tmp_path / "many", 40_000)

    assert [said["code"] for said in (few, many)] == [0, 0]
    assert not few["torch"]
    # A Python object for each row would be more; what is mapped of the file is less.
    assert many["peak_bytes"] - few["peak_bytes"] < 16 * MEBIBYTE


def test_transformers_that_looks_for_its_names_once_has_all_of_them() -> None:
    subprocess.run([sys.executable, "-c", NAMES], check=True)


def test_deepspeed_is_loaded_only_where_it_shares_or_code_of_the_user_might(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "config.json", {})
    own, shared = {"callback": "mine.py:Mine"}, {"strategy": "zero2", "num_devices": 2}
    for changes, left_out in (
        ({}, True),
        ({"plugins": own}, False),
        ({"parallel": shared, "training": {"effective_batch_size": 2}}, False),
    ):
        for name in ("bitsandbytes", "deepspeed"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        only_what_trains(spec(tmp_path, tmp_path, **changes), tmp_path)
        assert ("deepspeed" in sys.modules) is left_out
        sys.modules.pop("bitsandbytes", None)
        sys.modules.pop("deepspeed", None)


@pytest.mark.parametrize(
    ("changes", "config", "left_out"),
    [
        ({}, {}, True),
        ({"method": {"method": "qlora"}}, {}, False),
        ({"training": {"effective_batch_size": 1, "optim": "adamw_bnb_8bit"}}, {}, False),
        ({"training": {"effective_batch_size": 1, "activation_offloading": True}}, {}, False),
        ({"plugins": {"callback": "mine.py:Mine"}}, {}, False),
        ({}, {"quantization_config": {"quant_method": "bitsandbytes"}}, False),
    ],
)
def test_bitsandbytes_is_loaded_only_where_a_run_uses_its_formats(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    config: dict[str, Any],
    left_out: bool,
) -> None:
    monkeypatch.delitem(sys.modules, "bitsandbytes", raising=False)
    write_json(tmp_path / "config.json", config)

    only_what_trains(spec(tmp_path, tmp_path, **changes), tmp_path)

    assert ("bitsandbytes" in sys.modules) is left_out
    sys.modules.pop("bitsandbytes", None)
    sys.modules.pop("deepspeed", None)
