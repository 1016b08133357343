"""Plans that need no planner: what the script and the runner are given in tests."""

from __future__ import annotations

from typing import Any

from engine.spec import Spec
from wizard.facts import Device, Facts, Host, Software
from wizard.plan import Decision, Memory, MemoryPart, Plan


def spec(**changes: dict[str, Any]) -> Spec:
    """Two CPU ranks, LoRA; `changes` are per table."""
    tables: dict[str, dict[str, Any]] = {
        "model": {"model": "/models/tiny", "dtype": "float32"},
        "data": {"data": "/data/rows.jsonl"},
        "method": {"method": "lora"},
        "parallel": {"strategy": "ddp", "device_kind": "cpu", "num_devices": 2},
        "training": {
            "effective_batch_size": 4,
            "gradient_accumulation_steps": 2,
            "gradient_checkpointing": False,
        },
    }
    for table, values in changes.items():
        tables[table] = {**tables[table], **values}
    return Spec.model_validate(tables)


def plan(main: Spec | None = None, rungs: tuple[Spec, ...] = (), **changes: Any) -> Plan:
    """A plan of these specs with one reasoned decision."""
    main = main or spec()
    given: dict[str, Any] = {
        "title": "LoRA r16 fp32, DDP on 2 CPU ranks",
        "decisions": (
            Decision(
                setting="learning_rate",
                value=main.training.learning_rate,
                reason="adapters take ten times the rate of full training",
            ),
        ),
        "memory": Memory(
            parts=(MemoryPart(name="weights", bytes=10, formula="5 × 2"),),
            device_bytes=10,
            device_budget_bytes=None,
            host_bytes=20,
            host_budget_bytes=None,
            left_out=(),
        ),
        "steps": 12,
    }
    return Plan(spec=main, rungs=rungs, **{**given, **changes})


def facts(cores: int | None = 2) -> Facts:
    """A machine without accelerators."""
    return Facts(
        devices=(Device(kind="cpu", index=0, name="CPU"),),
        host=Host(hostname="host", system="Linux", cpu_cores=cores),
        software=Software(python="3.12"),
    )
