"""How far the planner's tokens per second lie from what public sources measured.

Run: python benchmarks/speed.py [--points FILE.csv] [--json OUT] [--rows] [--skipped]. FILE has the
columns of benchmarks/points/throughput_measured.csv, which is the default. Device rates come from
the shipped table of accelerators. Three numbers of wizard/planner/speed.py were chosen on the
sources named in FITTED; the others are reported apart.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import rows, scores
from benchmarks.rows import Row
from benchmarks.stacks import SkipRowError
from wizard.facts import Device
from wizard.planner.speed import Rates, StepTime, rates_of, step_time
from wizard.planner.tape.setup import Block, Setup
from wizard.probe import catalog

FITTED = frozenset({"mosaicml/llm-foundry", "pytorch/torchtune", "QwenLM/Qwen"})
"""Half of the sources, on which three numbers were chosen: Hopper's matrix share on llm-foundry's
rows of up to 2048 tokens, the consumer cards' on torchtune, seconds of a launch on Qwen."""

LINK_GBS: Mapping[str, float] = {"A100": 220, "H100": 350, "H200": 350, "RTX": 10}
"""Bandwidth that collectives reach inside a machine, by how a device's name begins."""
NETWORK_GBS: Mapping[str, float] = {"1600 Gbps": 160}
"""The same between machines, where the source states the network."""

CHECKPOINTING = {"full": "y", "none": "n", "": ""}
OFFLOADED = "CPU offload"


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A row with its prediction."""

    row: Row
    setup: Setup
    step: StepTime

    @property
    def error(self) -> float:
        """Signed percent of tokens per second of one device."""
        measured = float(self.row["tok_s_per_gpu"])
        return scores.signed_percent(self.step.tokens_per_second, measured)


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """All rows of a file."""

    points: tuple[Point, ...]
    skipped: tuple[tuple[str, str], ...]


def as_memory_row(row: Row, measured: Mapping[str, Row]) -> Row:
    """The row in the columns of memory_measured.csv; its own memory row where there is one."""
    if re.search(r"fp8|float8|mxfp8", row["precision"] + row["kernels"], re.IGNORECASE):
        raise SkipRowError("8-bit products are not modelled")
    if row["memory_row_id"] in measured:
        found = measured[row["memory_row_id"]]
        return {**found, "fused_loss_or_kernels": _kernels(found["fused_loss_or_kernels"])}
    kernels = _kernels(row["kernels"])
    precision = row["precision"]
    four_bit = {"gptq int4": "gptq int4", "gptq int8": "gptq int8", "nf4": "bnb nf4"}
    return {
        "source": row["source"],
        "notes": row["notes"],
        "model": row["model"],
        "method": row["method"],
        "quantisation": next((q for t, q in four_bit.items() if t in precision), "none"),
        "dtype": precision.split(" ")[0] if "AMP" not in precision else precision,
        "optimizer": "adamw_torch",
        "per_device_batch": row["per_device_batch"],
        "grad_accum": str(micro_steps(row)),
        "seq_len": row["seq_len"],
        "seq_semantics": "exact",
        "gradient_checkpointing": CHECKPOINTING.get(row["activation_checkpointing"], "selective"),
        "attn_impl": "Qwen eager" if "eager" in kernels else "flash",
        "fused_loss_or_kernels": kernels,
        "parallel_strategy": row["parallel_strategy"].replace(" + " + OFFLOADED, ""),
        "offload": "params" if OFFLOADED in row["parallel_strategy"] else "none",
        "n_gpus": row["n_gpus"],
        "lora_rank": "",
        "target_modules": "",
        "framework_versions": "",
    }


def _kernels(text: str) -> str:
    """A compiled graph, and Unsloth, fuse what Liger fuses."""
    return text.split(";")[0].replace("compile", "liger").replace("Unsloth", "liger")


def micro_steps(row: Row) -> int:
    """Micro-batches of an optimizer step; one where the source says nothing."""
    text = row["grad_accum_or_gbs"]
    found = re.search(r"\d+", text)
    if found is None:
        return 1
    number = int(found[0])
    if not text.startswith("gbs"):
        return number
    if not row["per_device_batch"].isdigit():
        raise SkipRowError("the source does not give the micro-batch")
    return max(1, number // (int(row["per_device_batch"]) * int(row["n_gpus"])))


def setup_of(row: Row, known: Mapping[str, Row], measured: Mapping[str, Row]) -> Setup:
    """The step that a row of throughput_measured.csv ran.

    Raises SkipRowError with the first reason that it cannot be modelled.
    """
    if not row["tok_s_per_gpu"]:
        raise SkipRowError("the source gives no tokens per second")
    converted = as_memory_row(row, measured)
    model = known.get(row["model"])
    if model is None or model["architecture"] != "mpt":
        return rows.setup_of(converted, known)
    return _mpt(converted, model, known)


def _mpt(row: Row, model: Row, known: Mapping[str, Row]) -> Setup:
    """A decoder with LayerNorm and an ungated MLP, as the gated one of the same operations."""
    stand_in = {**model, "architecture": "llama"}
    setup = rows.setup_of(row, {**known, row["model"]: stand_in})
    block: Block = replace(setup.block, intermediate=setup.block.intermediate * 2 // 3)
    stack = replace(
        setup.stack, loss_head="fused", fused_norm=True, fused_rope=True, fused_mlp=True
    )
    return replace(setup, block=block, stack=stack)


def rates_for(row: Row) -> Rates:
    """Rates of the row's device from the shipped table.

    Raises SkipRowError when the table lacks the device, or the source the network.
    """
    device = rows.device_of(row)
    if device is None:
        raise SkipRowError("the device is not named, or not in the table of accelerators")
    name = device["name"].removeprefix("NVIDIA ").removeprefix("GeForce ")
    link = next((gbs for begin, gbs in LINK_GBS.items() if name.startswith(begin)), None)
    if int(row["n_gpus"]) > 8:
        link = next((g for t, g in NETWORK_GBS.items() if t in row["source_locator"]), None)
    found = rates_of(
        Device(
            kind="cuda",
            index=0,
            name=device["name"],
            compute_capability=_capability(device["compute_capability"]),
            bf16_tflops=catalog.number(device, "bf16_tflops"),
            memory_bandwidth_gbs=catalog.number(device, "memory_bandwidth_gbs"),
        ),
        link_gbs=link,
    )
    if found is None:
        raise SkipRowError("the table of accelerators lacks the device's rates")
    return found


def _capability(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major and minor else None


def score(table: Iterable[Row]) -> Scored:
    """Predictions of all rows that can be modelled."""
    known = rows.models()
    measured = {row["id"]: row for row in rows.read(rows.POINTS / "memory_measured.csv")}
    points, skipped = [], []
    for row in table:
        try:
            setup = setup_of(row, known, measured)
            step = step_time(setup, rates_for(row), micro_steps=micro_steps(row))
            if step is None:
                raise SkipRowError("the source does not give the network between its machines")
            points.append(Point(row=row, setup=setup, step=step))
        except SkipRowError as error:
            skipped.append((row["id"], str(error)))
    return Scored(points=tuple(points), skipped=tuple(skipped))


def report(scored: Scored) -> dict[str, Any]:
    """The published figures."""
    found = scores.summary([point.error for point in scored.points])
    sources = sorted({point.row["source"] for point in scored.points})
    return {
        "n": found["n"],
        "median_abs_pct": found["median_abs_pct"],
        "p90_abs_pct": found["p90_abs_pct"],
        "by_source": {
            source: scores.summary([p.error for p in scored.points if p.row["source"] == source])
            for source in sources
        },
        "skipped": {
            "n": len(scored.skipped),
            "why": dict(Counter(why for _, why in scored.skipped).most_common()),
        },
    }


def print_report(scored: Scored) -> None:
    """Tables for a reader."""
    points = scored.points
    print(f"{len(points)} rows modelled, {len(scored.skipped)} skipped\n\n{scores.HEADER}")
    print(scores.line("all", [p.error for p in points]))
    held = [p for p in points if p.row["source"] not in FITTED]
    print(scores.line("sources nothing was chosen on", [p.error for p in held]))
    confident = [p for p in held if p.row["confidence"] == "high"]
    print(scores.line("the same, high confidence", [p.error for p in confident]))
    for column in ("source", "gpu_model", "method", "parallel_strategy", "confidence"):
        print(f"\nBy {column}\n\n{scores.HEADER}")
        for value in sorted({p.row[column] for p in points}):
            print(scores.line(value, [p.error for p in points if p.row[column] == value]))
    print("\nSkipped:")
    for why, count in Counter(why for _, why in scored.skipped).most_common():
        print(f"  {count:4} {why}")


def print_rows(scored: Scored) -> None:
    """Each row with both numbers and what limits it, worst first."""
    for point in sorted(scored.points, key=lambda p: -abs(p.error)):
        said, was = point.step.tokens_per_second, float(point.row["tok_s_per_gpu"])
        print(
            f"{point.row['id']:<16} {said:9.1f} {was:9.1f} tok/s {point.error:+7.1f} %  "
            f"{point.step.limited_by}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Score a file of rows; print, and write JSON where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=Path, default=rows.POINTS / "throughput_measured.csv")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", action="store_true", help="list each row, worst first")
    parser.add_argument("--skipped", action="store_true", help="list each skipped row")
    options = parser.parse_args(arguments)
    scored = score(rows.read_like(options.points, "throughput_measured.csv"))
    print_report(scored)
    if options.rows:
        print_rows(scored)
    if options.skipped:
        print("\n".join(f"{name:<16} {why}" for name, why in scored.skipped))
    if options.json:
        options.json.write_text(json.dumps(report(scored), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
