"""What finished runs measured beside what was predicted → corrections of later plans.

A file of this user's on this machine; nothing is ever sent anywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.spec import Spec, SpecError, loads
from wizard import paths
from wizard.facts import Facts
from wizard.plan import MemoryPart, Plan
from wizard.wording import counted, gib

SCHEMA = 1
FEW_STEPS = 3
"""Fewer steps say little about speed."""
WORTH_SAYING = 0.02
"""Corrections below this share change nothing."""
PLAUSIBLE = (0.2, 5.0)
"""Beyond it something else was measured than was planned."""
SAME_PREDICTION = 0.02
"""Runs whose predictions differ by less than this share are of the same plan."""
PART = "seen in finished runs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """One finished run: what it was like, predicted and measured; unknown is None."""

    run: str
    """Its folder and when its result was written: each run counts once."""
    machine: str
    """Name of its devices and how many."""
    family: str
    """The model's architecture."""
    setup: str
    """Method, sharing and what else decides where memory goes."""
    predicted_bytes: float | None
    measured_bytes: float | None
    predicted_tokens_per_second: float | None
    measured_tokens_per_second: float | None
    same: str = ""
    """What a plan must share with it to take as long: model, batch and length."""
    measured_step_seconds: float | None = None


def learn(root: Path) -> tuple[Finished, ...]:
    """Everything remembered, after the finished runs under root that were not in it were added.

    A disk that refuses it costs the history, never the plan.
    """
    remembered = entries()
    known = {entry.run for entry in remembered}
    with contextlib.suppress(OSError):
        keys = {key: folder for folder in sorted(root.iterdir()) if (key := _key(folder))}
        found = [_finished(folder, key) for key, folder in keys.items() if key not in known]
        new = [entry for entry in found if entry is not None]
        if new:
            _append(paths.history(), new)
            return (*remembered, *new)
    return remembered


def _key(folder: Path) -> str | None:
    """What tells a run's result from every other; None while there is none."""
    try:
        return f"{folder.absolute()} {(folder / 'result.json').stat().st_mtime_ns}"
    except OSError:
        return None


def _append(path: Path, new: Iterable[Finished]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"schema": SCHEMA, **asdict(entry)}) + "\n" for entry in new]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with open(descriptor, "a", encoding="utf-8") as file:
        file.write("".join(lines))


def entries() -> tuple[Finished, ...]:
    """Everything remembered; lines that are not understood are passed over."""
    try:
        lines = paths.history().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    return tuple(entry for line in lines if (entry := _entry(line)) is not None)


def _entry(line: str) -> Finished | None:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.pop("schema", None) != SCHEMA:
        return None
    texts: dict[str, Any] = {key: said.get(key) for key in ("run", "machine", "family", "setup")}
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    same = said.get("same")
    numbers: dict[str, Any] = {
        key: _number(said.get(key)) for key in Finished.__slots__ if key not in (*texts, "same")
    }
    return Finished(**texts, **numbers, same=same if isinstance(same, str) else "")


def _finished(folder: Path, key: str) -> Finished | None:
    """A run that came to its end on its first rung, as it was planned; None for any other."""
    result, state = _read(folder / "result.json"), _read(folder / "state.json")
    if state.get("exit_code") != 0 or state.get("rung") != 0 or not result:
        return None
    plan = _read(folder / "plan.json")
    measured, memory = _table(result, "measured"), _table(plan, "memory")
    try:
        spec = loads((folder / "spec.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SpecError):
        return None
    if _was_edited(spec, plan):
        return None
    facts = _table(plan, "facts")
    enough = (_number(measured.get("steps")) or 0) >= FEW_STEPS
    return Finished(
        run=key,
        machine=_machine(facts.get("devices"), spec),
        family=str(_table(facts, "model").get("architecture")),
        setup=_setup(spec),
        predicted_bytes=_predicted_bytes(memory),
        measured_bytes=_largest(measured.get("memory_peak_bytes"))
        or _largest(measured.get("process_memory_peak_bytes")),
        predicted_tokens_per_second=_predicted_speed(plan),
        measured_tokens_per_second=_number(measured.get("tokens_per_second")) if enough else None,
        same=_same(str(_table(facts, "model").get("name")), spec),
        measured_step_seconds=_number(measured.get("step_seconds")) if enough else None,
    )


def _predicted_bytes(memory: Mapping[str, Any]) -> float | None:
    """The prediction before it was corrected: a correction must not feed on itself."""
    whole = _number(memory.get("device_bytes"))
    parts = memory.get("parts")
    own = sum(
        _number(part.get("bytes")) or 0
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, dict) and part.get("name") == PART
    )
    return None if whole is None else whole - own


def _predicted_speed(plan: Mapping[str, Any]) -> float | None:
    speed, factor = _number(plan.get("tokens_per_second")), _number(plan.get("speed_factor"))
    return speed / factor if speed and factor else speed


def _was_edited(spec: Spec, plan: Mapping[str, Any]) -> bool:
    """Whether spec.toml says something else than was planned."""
    values = {
        key: list(value) if isinstance(value, tuple) else value
        for table in spec.model_dump(exclude={"version"}).values()
        for key, value in table.items()
    }
    decisions = plan.get("decisions")
    return not isinstance(decisions, list) or any(
        values.get(decision["setting"], decision.get("value")) != decision.get("value")
        for decision in decisions
        if isinstance(decision, dict) and isinstance(decision.get("setting"), str)
    )


def corrected(
    plans: Sequence[Plan], facts: Facts, finished: Sequence[Finished]
) -> tuple[Plan, ...]:
    """Plans with what runs of the same kind on this machine took beyond what is predicted.

    More memory is added as a part of its own, so that it counts for the fit; less is only said.
    Speed follows the runs in both directions. Plans of another machine are left as they are.
    """
    if facts.machine or facts.model is None:
        return tuple(plans)
    devices = [{"kind": device.kind, "name": device.name} for device in facts.devices]
    family, name = str(facts.model.architecture), facts.model.name
    alike: dict[tuple[str, str, str], list[Finished]] = {}
    for entry in finished:
        alike.setdefault((entry.machine, entry.family, entry.setup), []).append(entry)

    def of(spec: Spec) -> Sequence[Finished]:
        return alike.get((_machine(devices, spec), family, _setup(spec)), ())

    return tuple(_corrected(plan, name, of(plan.spec)) for plan in plans)


def _corrected(plan: Plan, model: str, finished: Sequence[Finished]) -> Plan:
    return _with_time(_with_speed(_with_memory(plan, finished), finished), model, finished)


def _with_memory(plan: Plan, finished: Sequence[Finished]) -> Plan:
    ratios = _ratios((entry.predicted_bytes, entry.measured_bytes) for entry in finished)
    if not ratios:
        return plan
    runs, predicted = counted(len(ratios), "run"), plan.memory.device_bytes
    # The usual run corrects; what this very plan has measured it may need again.
    ratio = max(statistics.median(ratios), *_seen(predicted, finished))
    if abs(ratio - 1) < WORTH_SAYING:
        return plan
    adjusted = round(predicted * ratio)
    text = f"memory: predicted {gib(predicted)}, adjusted {gib(adjusted)} from {runs} here"
    if adjusted < predicted:
        why = (*plan.why, f"{text}; the larger one counts for the fit")
        return replace(plan, why=why)
    part = MemoryPart(
        name=PART,
        bytes=adjusted - predicted,
        formula=f"({ratio:.3f} - 1) × {gib(predicted)}, measured / predicted in {runs}",
    )
    memory = replace(plan.memory, parts=(*plan.memory.parts, part), device_bytes=adjusted)
    return replace(plan, memory=memory, why=(*plan.why, text))


def _seen(predicted: float, finished: Sequence[Finished]) -> list[float]:
    """Measured over predicted memory of runs of which as much was predicted; 0 leads them."""
    same = [
        (entry.predicted_bytes, entry.measured_bytes)
        for entry in finished
        if entry.predicted_bytes is not None
        and abs(entry.predicted_bytes - predicted) <= SAME_PREDICTION * predicted
    ]
    return [0.0, *_ratios(same)]


def _with_speed(plan: Plan, finished: Sequence[Finished]) -> Plan:
    ratios = _ratios(
        (entry.predicted_tokens_per_second, entry.measured_tokens_per_second) for entry in finished
    )
    speed, seconds = plan.tokens_per_second, plan.step_seconds
    if not ratios or speed is None or abs(statistics.median(ratios) - 1) < WORTH_SAYING:
        return plan
    ratio = statistics.median(ratios)
    text = (
        f"speed: predicted {speed:,.0f} tokens/s, adjusted {speed * ratio:,.0f} from "
        f"{counted(len(ratios), 'run')} here"
    )
    return replace(
        plan,
        tokens_per_second=speed * ratio,
        step_seconds=None if seconds is None else seconds / ratio,
        step_terms=tuple((name, value / ratio) for name, value in plan.step_terms),
        run_seconds=None if plan.run_seconds is None else plan.run_seconds / ratio,
        energy_kwh=None if plan.energy_kwh is None else plan.energy_kwh / ratio,
        cost=None if plan.cost is None else plan.cost / ratio,
        speed_factor=ratio,
        why=(*plan.why, text),
    )


def _with_time(plan: Plan, model: str, finished: Sequence[Finished]) -> Plan:
    """The time that the same plan took before, where the rates of the devices are unknown."""
    if plan.step_seconds is not None:
        return plan
    runs = [
        (entry.measured_step_seconds, entry.measured_tokens_per_second)
        for entry in finished
        if entry.same == _same(model, plan.spec)
    ]
    steps = [step for step, _ in runs if step]
    speeds = [speed for _, speed in runs if speed]
    if not steps or not speeds:
        return plan
    step = statistics.median(steps)
    text = f"speed: not predicted, as measured in {counted(len(steps), 'run')} of this plan here"
    return replace(
        plan,
        step_seconds=step,
        tokens_per_second=statistics.median(speeds),
        run_seconds=None if plan.steps is None else plan.steps * step,
        why=(*plan.why, text),
    )


def _ratios(pairs: Iterable[tuple[float | None, float | None]]) -> list[float]:
    """Measured over predicted, where both are known and belong together."""
    ratios = [measured / predicted for predicted, measured in pairs if predicted and measured]
    return [ratio for ratio in ratios if PLAUSIBLE[0] <= ratio <= PLAUSIBLE[1]]


def _machine(devices: Any, spec: Spec) -> str:
    kind = spec.parallel.device_kind
    names = {
        str(device.get("name"))
        for device in (devices if isinstance(devices, list) else ())
        if isinstance(device, dict) and device.get("kind") == kind
    }
    return f"{spec.parallel.num_devices} × {', '.join(sorted(names))}"


def _same(model: str, spec: Spec) -> str:
    """What decides a step's time beside the setup: rows of one length are taken as alike."""
    training, data = spec.training, spec.data
    sizes = (training.per_device_train_batch_size, training.gradient_accumulation_steps)
    return " ".join(map(str, (model, spec.method.stage, *sizes, data.max_length, data.packing)))


def _setup(spec: Spec) -> str:
    training, parallel = spec.training, spec.parallel
    return (
        f"{spec.method.method} {spec.model.dtype} {parallel.strategy} {parallel.offload} "
        f"{training.optim} checkpointing={training.gradient_checkpointing}"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _table(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = values.get(key)
    return found if isinstance(found, Mapping) else {}


def _number(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if usable and 0 <= value < 2.0**63 else None


def _largest(value: Any) -> float | None:
    found = [number for v in value if (number := _number(v)) is not None] if value else []
    return max(found, default=None)
