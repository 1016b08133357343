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
