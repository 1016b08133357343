"""Measured rows become the steps they were, and the figures come out in the published shape."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import baselines, memory, prepare, rows, scores, speed, stacks
from benchmarks.rows import POINTS, Row
from benchmarks.stacks import SkipRowError
from wizard.planner.tape import device, reserve, simulate
from wizard.planner.tape.setup import Setup

MEASURED = {row["id"]: row for row in rows.read(POINTS / "memory_measured.csv")}
KNOWN = rows.models()


def setup_of(name: str, **changes: str) -> Setup:
    return rows.setup_of({**MEASURED[name], **changes}, KNOWN)


def write(path: Path, table: Iterable[Row]) -> Path:
    listed = list(table)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(listed[0]))
        writer.writeheader()
        writer.writerows(listed)
    return path


def test_a_row_of_pure_bfloat16_lora_has_its_releases_loss_and_float32_adapters() -> None:
    setup = setup_of("FMSmain-033")
    assert (setup.method, setup.micro_batch, setup.length) == ("lora", 4, 4096)
    assert setup.block.layers == 32
    assert setup.lora_targets == ("q", "k", "v", "o")
    assert setup.stack.loss_head == "full_shifted"
    assert setup.stack.optimizer == "adamw_foreach"
    assert setup.stack.adapter_dtype == "float32"
    assert not setup.stack.autocast


def test_only_rows_that_say_so_prepared_their_4_bit_weights() -> None:
    prepared, plain = setup_of("FMSmain-057").stack, setup_of("FMSmain-077").stack
    assert prepared.kbit_preparation
    assert not plain.kbit_preparation
    assert prepared.autocast
    assert plain.autocast


def test_adapters_that_fsdp_flattens_with_the_base_have_its_dtype() -> None:
    assert setup_of("FMSmain-034").stack.adapter_dtype == "bfloat16"
    assert setup_of("FMSliger-155").stack.adapter_dtype == "float16"


def test_mixed_precision_under_fsdp_keeps_trained_shards_in_float32() -> None:
    assert setup_of("FMSliger-162").stack.fsdp_upcast
    assert not setup_of("FMSmain-034").stack.fsdp_upcast


def test_the_loss_is_that_of_the_release_and_of_its_kernels() -> None:
    assert setup_of("FMSgran-009").stack.loss_head == "full_upcast"
    assert setup_of("FMSliger-109").stack.loss_head == "fused"
    assert setup_of("FMSmain-037").stack.kernel_loss
    assert not setup_of("FMSmain-033").stack.kernel_loss


def test_kernels_that_had_no_effect_on_a_row_are_not_simulated() -> None:
    with_liger, without = setup_of("FMSliger-142").stack, setup_of("FMSliger-138").stack
    assert with_liger.loss_head == without.loss_head == "full_upcast"
    assert with_liger.outputs_kept
    assert setup_of("FMSliger-166").stack.loss_head == "fused"


def test_qwen_1_brought_its_own_loss_and_torch_2_0_copied_twice_at_a_step() -> None:
    assert setup_of("QW-001").stack.loss_head == "full_narrow"
    assert setup_of("SWB-017").stack.loss_head == "full_narrow"
    assert setup_of("SWX-151").stack.loss_head != "full_narrow"
    assert (setup_of("QW-001").stack.step_copies, setup_of("SWB-017").stack.step_copies) == (2, 1)


def test_rows_above_the_limit_are_left_out_and_a_micro_batch_is_as_long_as_its_longest() -> None:
    row = MEASURED["SWB-017"]
    alone, four = (
        rows.orders_of(row, setup_of("SWB-017", per_device_batch=number)) for number in ("1", "4")
    )
    assert len(alone) == rows.ORDERS
    assert len(set(alone)) == rows.ORDERS
    for order in alone:
        assert len(order) == rows.STEPS
        assert order[-1] == max(order) == 2048
        assert sum(length == 2048 for length in order) == 1
    assert sum(map(sum, four)) > sum(map(sum, alone))
    assert rows.orders_of(MEASURED["FMSmain-033"], setup_of("FMSmain-033")) == ()


def test_cuda_11_may_have_loaded_every_kernel() -> None:
    old, new = (stacks.context_of(MEASURED[name]) for name in ("QW-001", "FMSmain-009"))
    assert old.low == new.low
    assert old.high > 2 * new.high


def test_what_is_not_explained_at_the_loss_is_still_there_at_the_optimizer_step() -> None:
    setup = setup_of("FMSmain-009")
    assert dict(simulate(setup).moments)["loss"] < simulate(setup).allocated_peak_bytes
    fused = replace(setup, stack=replace(setup.stack, loss_head="fused"))
    around = [device(each).high - reserve(each).high for each in (setup, fused)]
    assert around[0] > around[1] + 2**30


def test_dropout_of_a_sources_scripts_belongs_to_its_rows() -> None:
    assert setup_of("FMSmain-033").lora_dropout == 0.1
    assert setup_of("TT-010").lora_dropout == 0


def test_sharding_and_offload_of_another_trainer_are_carried_over() -> None:
    setup = setup_of("FQ-013")
    assert (setup.strategy, setup.world_size, setup.offload) == ("fsdp1", 2, "parameters")
    assert setup.stack.adapter_dtype == "bfloat16"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("FMSmain-069", "architecture gpt_bigcode is not simulated"),
        ("XM-001", "the source does not give the length of a row"),
        ("TT-012", "a compiled graph chooses itself what it keeps"),
        ("SWB-029", "parallelism not simulated: naive layer split (device_map) on 2 GPUs"),
        ("CAI-011", "method not simulated: full (simpo)"),
        ("LITC-020", "the source's own numbers contradict each other"),
    ],
)
def test_a_row_is_skipped_for_a_reason_that_has_a_name(name: str, why: str) -> None:
    with pytest.raises(SkipRowError) as caught:
        setup_of(name)
    assert str(caught.value) == why


def test_a_limit_is_not_taken_for_a_length() -> None:
    with pytest.raises(SkipRowError, match="a limit, not the length"):
        setup_of("FMSmain-033", seq_semantics="unpacked, max 4096; measured mean ~275")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("torch max_memory_allocated (HF Trainer memory metrics, rank 0)", "allocated"),
        ("torch peak active bytes (memory_stats active_bytes.all.peak) GiB", "active"),
        ("torch max_memory_reserved at end of training, per device", "reserved"),
        ("NVML peak used, whole process", "device"),
    ],
)
def test_the_four_kinds_of_memory_are_told_apart(text: str, kind: str) -> None:
    assert rows.kind_of({"mem_kind": text}) == kind


def test_a_row_that_does_not_say_what_it_measured_is_not_guessed_at() -> None:
    with pytest.raises(SkipRowError, match="which memory"):
        rows.kind_of({"mem_kind": "unclear, integer-rounded"})


def test_every_simulated_model_has_the_parameters_its_repository_states() -> None:
    checked = 0
    for name, model in KNOWN.items():
        if model["architecture"] in rows.LLAMA_LIKE:
            block = rows.block_of({"model": name}, KNOWN)
            assert baselines.parameters(block) == int(model["parameters"]), name
            checked += 1
    assert checked > 40


def test_the_figures_have_the_published_shape(tmp_path: Path) -> None:
    names = ["FMSmain-009", "FQ-003", "LIT-019", "XM-001"]
    points = write(tmp_path / "points.csv", [MEASURED[name] for name in names])
    target = tmp_path / "scores.json"
    memory.main(["--points", str(points), "--json", str(target)])
    found: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    assert list(found) == ["allocated", "reserved", "device", "fit", "by_source", "skipped"]
    summary = {"n", "median_abs_pct", "p90_abs_pct", "worst_pct"}
    assert set(found["allocated"]) == set(found["reserved"]) == summary
    assert set(found["device"]) == {"n", "covered_pct", "under_pct"}
    assert set(found["fit"]) == {"n", "right_pct"}
    assert (found["allocated"]["n"], found["reserved"]["n"], found["fit"]["n"]) == (1, 1, 3)
    assert found["skipped"]["n"] == sum(found["skipped"]["why"].values()) == 1


def test_a_file_without_the_columns_is_refused_in_one_sentence(tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text("id,source\na,b\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"points\.csv: lacks source_locator, "):
        memory.main(["--points", str(points)])
    with pytest.raises(SystemExit, match="cannot be read"):
        speed.main(["--points", str(tmp_path / "absent.csv")])


def test_a_row_whose_optimizer_step_peaks_is_met_within_a_percent() -> None:
    scored = memory.score([MEASURED["FMSmain-009"]])
    assert abs(scored.points[0].error("allocated")) < 1


def test_speed_has_the_published_shape_and_counts_what_it_skips(tmp_path: Path) -> None:
    table = rows.read(POINTS / "throughput_measured.csv")
    chosen = [row for row in table if row["id"] in ("T-FMSmain-009", "T-MPT-103", "T-NV-001")]
    points, target = write(tmp_path / "points.csv", chosen), tmp_path / "speed.json"
    speed.main(["--points", str(points), "--json", str(target)])
    found: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    assert {"n", "median_abs_pct", "p90_abs_pct", "by_source"} <= set(found)
    assert (found["n"], found["skipped"]["n"]) == (2, 1)
    assert len(found["by_source"]) == 2


def test_global_batches_are_shared_out_to_micro_steps() -> None:
    row = {"grad_accum_or_gbs": "gbs 168", "per_device_batch": "1", "n_gpus": "8"}
    assert speed.micro_steps(row) == 21
    assert speed.micro_steps({**row, "grad_accum_or_gbs": "GA 16"}) == 16
    assert speed.micro_steps({**row, "grad_accum_or_gbs": ""}) == 1


def test_the_estimators_formulas_give_their_published_examples() -> None:
    full = setup_of("FMSmain-009")
    count = baselines.parameters(full.block)
    assert count == 7_241_732_096
    assert baselines.accelerate(full) == 16 * count
    assert baselines.deepspeed(full) is None
    assert baselines.llama_factory(setup_of("FMSmain-033")) == 2 * count


def test_percentiles_are_interpolated_and_empty_groups_are_none() -> None:
    assert scores.percentile([0, 10], 0.9) == pytest.approx(9)
    assert scores.summary([-3, 1])["worst_pct"] == 3
    assert scores.summary([])["median_abs_pct"] is None
    assert scores.share_percent([]) is None


def test_the_rows_that_are_prepared_are_as_many_as_asked_for_and_the_same_each_time() -> None:
    made = list(prepare.rows(100_000))
    assert made == list(prepare.rows(100_000))
    assert 100_000 <= sum(len(line.encode()) for line in made) < 110_000
    assert all(json.loads(line)["messages"][-1]["role"] == "assistant" for line in made)
