"""Plan → {file name: text}: run.sh, spec.toml and its rungs, plan.json."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from engine.events import printable
from engine.ladder import exact_rungs
from engine.spec import ZERO_STAGES, Spec, dumps
from wizard import __version__
from wizard.answers import DEFAULT_POLICY, Policy
from wizard.facts import Facts
from wizard.islands import no_peer_access
from wizard.plan import Plan

TEMPLATE = Path(__file__).parent / "templates" / "run.sh"

_VISIBLE = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "cpu": "CUDA_VISIBLE_DEVICES",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
}


def render(
    plan: Plan,
    *,
    name: str,
    python: str,
    facts: Facts,
    written: str,
    alternatives: Sequence[Plan] = (),
    policy: Policy = DEFAULT_POLICY,
    nodes: int = 1,
) -> dict[str, str]:
    """Everything a run folder starts with; `policy` is what the run does about failures.

    `python` is the absolute path of the environment's interpreter, `written` a date in words.
    `nodes` machines like that of `facts` share the ranks evenly; each gets these files.
    Text from outside stands only in single quotes, here-documents and escaped comments.
    """
    specs = _specs(plan)
    return {
        "run.sh": _run_sh(
            plan,
            specs,
            policy,
            name=name,
            python=python,
            facts=facts,
            written=written,
            nodes=nodes,
        ),
        **specs,
        "plan.json": _plan_json(plan, name, facts, written, alternatives),
    }


def _specs(plan: Plan) -> dict[str, str]:
    """spec.toml, then spec.1.toml … for the rungs."""
    rungs = {f"spec.{n}.toml": spec for n, spec in enumerate(plan.rungs, start=1)}
    all_specs = {"spec.toml": plan.spec, **rungs}
    ranks = {spec.parallel.ranks for spec in all_specs.values()}
    assert len(ranks) == 1, "torchrun starts as many ranks for every rung"
    return {file: dumps(spec, _reasons(plan, spec)) for file, spec in all_specs.items()}


def _reasons(plan: Plan, spec: Spec) -> dict[str, str]:
    """Reasons of the settings that a rung shares with the plan, and what it changes."""
    values = _settings(spec)
    return {
        d.setting: d.reason
        if values.get(d.setting) == _settings(plan.spec).get(d.setting)
        else "changed by this rung: less memory"
        for d in plan.decisions
        if d.setting in values
    }


def _settings(spec: Spec) -> dict[str, Any]:
    return {
        k: v for table in spec.model_dump(exclude={"version"}).values() for k, v in table.items()
    }


def _run_sh(
    plan: Plan,
    specs: dict[str, str],
    policy: Policy,
    *,
    name: str,
    python: str,
    facts: Facts,
    written: str,
    nodes: int,
) -> str:
    spec = plan.spec
    ranks = spec.parallel.ranks // nodes
    assert ranks * nodes == spec.parallel.ranks, "every machine has as many ranks"
    return _fill(
        TEMPLATE.read_text(encoding="utf-8"),
        {
            "title": printable(f"{name}: {plan.title}"),
            "model": printable(spec.model.model),
            "data": printable(spec.data.data) + _own_code(spec),
            "version": __version__,
            "written": printable(written),
            "name": shlex.quote(printable(name)),
            "python": shlex.quote(python),
            "ranks": str(ranks),
            "rungs": str(len(plan.rungs)),
            "environment": _environment(spec, facts, ranks),
            "visible": _VISIBLE[spec.parallel.device_kind],
            "kind": spec.parallel.device_kind,
            **_policy(policy, plan),
            "specs": "\n\n".join(_document(file, text) for file, text in specs.items()),
        },
    )


def _own_code(spec: Spec) -> str:
    """A comment for each code that is not ours and runs: the model's own, and plug-ins of the user.

    Of plug-ins a copy is kept in plugins/; the model's own is compared with what was fetched.
    """
    lines = [
        f"# code  {kind}: {text} (yours; the run keeps a copy in plugins/)"
        for kind, named in spec.plugins.named.items()
        for text in named
    ]
    if spec.model.trust_remote_code:
        at = f" at commit {spec.model.revision}" if spec.model.revision else ""
        whose = "trust_remote_code: the run ends with 64 where it is not what was fetched first"
        lines.append(f"# code  Python files that come with {spec.model.model}{at} ({whose})")
    return "".join(f"\n{printable(line)}" for line in lines)


def _policy(policy: Policy, plan: Plan) -> dict[str, str]:
    """The variables at the top of run.sh that say what is done about failures."""
    return {
        "on_oom": policy.on_oom,
        "on_hang": policy.on_hang,
        "hang_seconds": str(policy.hang_seconds),
        "max_restarts": str(policy.max_restarts),
        "exact": str(int(policy.exact)),
        "exact_rungs": str(exact_rungs(plan.spec, plan.rungs)),
    }


def _fill(template: str, values: dict[str, str]) -> str:
    """The template with each `{{key}}` replaced, in one pass: values are never looked into."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def _environment(spec: Spec, facts: Facts, ranks: int) -> str:
    lines = [
        ("PYTHONSAFEPATH", "1", "a folder beside this file never replaces an installed package"),
        ("PYTHONUNBUFFERED", "1", "logs show a line when it is written"),
        ("OMP_NUM_THREADS", *_threads(ranks, facts)),
        ("TOKENIZERS_PARALLELISM", "false", "its threads do not survive forked data workers"),
        *_device_lines(spec),
        *_exchange_lines(spec, facts),
    ]
    words = [(f"export {key}={shlex.quote(value)}", reason) for key, value, reason in lines]
    width = max(len(word) for word, _ in words)
    return "\n".join(f"{word:<{width}} # {printable(reason)}" for word, reason in words)


def _threads(ranks: int, facts: Facts) -> tuple[str, str]:
    cores = facts.host.cpu_cores
    if cores is None:
        return "1", "the number of cores is unknown, and ranks must not fight over them"
    return str(max(cores // ranks, 1)), f"{cores} cores shared by {ranks} ranks"


def _device_lines(spec: Spec) -> list[tuple[str, str, str]]:
    kind = spec.parallel.device_kind
    if kind == "cuda":
        return [
            ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "numbers mean what nvidia-smi shows"),
            ("PYTORCH_ALLOC_CONF", "expandable_segments:True", "less memory lost in fragments"),
        ]
    if kind == "cpu" and spec.parallel.strategy in ZERO_STAGES:
        return [("DS_ACCELERATOR", "cpu", "DeepSpeed would guess from what is installed")]
    return []


def _exchange_lines(spec: Spec, facts: Facts) -> list[tuple[str, str, str]]:
    """What NCCL must not try between these devices."""
    if spec.parallel.device_kind != "cuda":
        return []
    reason = no_peer_access(facts, _places(spec, facts))
    lines = [] if reason is None else [("NCCL_P2P_DISABLE", "1", reason)]
    if _refused_by_accelerate(facts):
        old = "accelerate refuses GeForce 40 cards with a driver before 550.40 unless this is set"
        lines = lines or [("NCCL_P2P_DISABLE", "1", old)]
        lines.append(("NCCL_IB_DISABLE", "1", old))
    return lines


def _places(spec: Spec, facts: Facts) -> list[int]:
    """Positions of the run's devices."""
    named = spec.parallel.devices
    places = [
        place
        for place, device in enumerate(facts.devices)
        if device.kind == "cuda" and (not named or {device.uuid, str(device.index)} & set(named))
    ]
    return places[: spec.parallel.num_devices]


def _refused_by_accelerate(facts: Facts) -> bool:
    """Its check counts the cards of the machine, not those of the run."""
    cards = [device for device in facts.devices if device.kind == "cuda"]
    numbers = [int(part) for part in re.findall(r"\d+", facts.software.driver or "")]
    return (
        len(cards) > 1 and any("RTX 40" in card.name for card in cards) and numbers < [550, 40, 7]
    )


def _document(file: str, text: str) -> str:
    """A here-document: bash takes the lines as they are up to a delimiter no line equals."""
    assert text.endswith("\n"), "a here-document holds whole lines"
    delimiter = "END_OF_SPEC"
    while delimiter in text.splitlines():
        delimiter += "_" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"keep {shlex.quote(file)} <<'{delimiter}'\n{text}{delimiter}"


def _plan_json(
    plan: Plan, name: str, facts: Facts, written: str, alternatives: Sequence[Plan]
) -> str:
    if facts.dataset is not None:  # the user's rows stay in the user's file
        facts = replace(facts, dataset=replace(facts.dataset, first_rows=()))
    content = {
        "schema": 1,
        "name": name,
        "title": plan.title,
        "written": written,
        "version": __version__,
        "decisions": [asdict(decision) for decision in plan.decisions],
        "memory": {**asdict(plan.memory), "fits": plan.memory.fits},
        "steps": plan.steps,
        "step_seconds": plan.step_seconds,
        "tokens_per_second": plan.tokens_per_second,
        "limited_by": plan.limited_by,
        "speed_factor": plan.speed_factor,
        "why": list(plan.why),
        "problems": [asdict(problem) for problem in plan.problems],
        "facts": asdict(facts),
        "alternatives": [_alternative(other) for other in alternatives],
    }
    return json.dumps(content, indent=2, default=str) + "\n"


def _alternative(plan: Plan) -> dict[str, Any]:
    return {
        "title": plan.title,
        "fits": plan.fits,
        "device_bytes": plan.memory.device_bytes,
        "over_bytes": plan.memory.over_bytes,
        "why": list(plan.why),
    }
