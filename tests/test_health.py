"""Health: what is wrong with a run, told from its events, and nothing where nothing is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.health_streams import BEGAN, GIB, PLAN, STEPS, Change, event, run_with
from wizard.dashboard.health import Finding, health, ranks_text, verdict
from wizard.dashboard.predicted import Predicted, predicted
from wizard.dashboard.state import RunState, fold, fold_all

NOW = BEGAN + STEPS + 2


def found(state: RunState, kind: str, now: float = NOW, plan: Predicted = PLAN) -> list[Finding]:
    return [finding for finding in health(state, plan, now) if finding.kind == kind]


def of_rank(number: int, *kinds: str, **fields: Any) -> Change:
    return lambda e: fields if e["rank"] == number and e["kind"] in kinds else {}


def later_than(t: float, kind: str, fields: Callable[[dict[str, Any]], dict[str, Any]]) -> Change:
    return lambda e: fields(e) if e["kind"] == kind and e["t"] > BEGAN + t else {}


def test_nothing_is_wrong_with_a_run_in_which_nothing_is_wrong() -> None:
    assert health(run_with(), PLAN, NOW) == ()
    assert health(run_with(steps=400), PLAN, BEGAN + 402) == ()
    assert verdict(()) == "ok"


def test_nothing_is_found_in_a_run_of_which_nothing_is_known() -> None:
    assert health(RunState(), Predicted(), NOW) == ()


def test_sensors_that_are_missing_are_no_finding() -> None:
    silent = dict.fromkeys(
        ("utilization_percent", "sm_clock_mhz", "temperature_c", "power_w", "power_cap_w",
         "memory_used_bytes", "pcie_link_width", "xid", "own_seconds", "wait_seconds",
         "data_seconds", "memory_allocated_bytes", "memory_reserved_bytes",
         "memory_peak_bytes", "memory_total_bytes")
    )  # fmt: skip
    assert health(run_with(lambda e: {k: None for k in silent if k in e}), PLAN, NOW) == ()


SLOW = {"own_seconds": 0.97, "wait_seconds": 0.03}


@pytest.mark.parametrize(
    ("sensors", "cause"),
    [
        ({"sm_clock_mhz": 1200, "temperature_c": 88}, "its clock: 1200 MHz, the others 1700 MHz; "
         "it is hot: 88 °C, the others 65 °C"),
        ({"sm_clock_mhz": 1200, "power_w": 399, "power_cap_w": 400},
         "its clock: 1200 MHz, the others 1700 MHz; its power cap is 400 W, theirs 700 W"),
        ({"sm_clock_mhz": 1500, "power_w": 698}, "its clock: 1500 MHz, the others 1700 MHz; "
         "it is at its power cap of 700 W"),
        ({"pcie_link_width": 4}, "its PCIe link: x4, the others x16"),
        ({"data_seconds": 0.16}, "its data: 0.160 s a step, the others 0.010 s"),
        ({"memory_used_bytes": 29 * GIB},
         "another process on its device: 9.0 GiB there are not the run's"),
        ({}, ""),
    ],
)  # fmt: skip
def test_a_straggler_is_found_by_its_own_work_with_what_differs(
    sensors: dict[str, Any], cause: str
) -> None:
    def change(e: dict[str, Any]) -> dict[str, Any]:
        if e["rank"] != 2:
            return {}
        own = SLOW if e["kind"] == "step" else {}
        return {**own, **{name: value for name, value in sensors.items() if name in e}}

    (finding,) = found(run_with(change), "straggler")
    assert finding.ranks == (2,)
    assert "rank 2 is 18 % slower" in finding.what
    assert finding.cause == cause


def test_a_rank_that_was_slow_for_a_few_steps_is_no_straggler() -> None:
    slow = later_than(STEPS - 5, "step", lambda e: SLOW if e["rank"] == 2 else {})
    assert found(run_with(slow), "straggler") == []


def test_a_straggler_whose_work_is_measured_in_some_steps_alone_is_found_by_these() -> None:
    """As under ZeRO and FSDP, where collectives are inside the passes."""

    def change(e: dict[str, Any]) -> dict[str, Any]:
        if e["kind"] != "step":
            return {}
        if e["step"] % 20 != 3:
            return {"own_seconds": None, "wait_seconds": None}
        return {"sampled_steps": 1, **(SLOW if e["rank"] == 2 else {})}

    (finding,) = found(run_with(change), "straggler")
    assert finding.ranks == (2,)
    state = run_with(change)
    assert state.ranks[2].sampled == (0.97, 0.97, 0.97)
    assert state.ranks[2].wait_seconds == 0.03
    assert found(run_with(change, steps=40), "straggler") == []


def test_of_two_ranks_the_slow_one_is_the_straggler() -> None:
    def change(e: dict[str, Any]) -> dict[str, Any]:
        if e["rank"] > 1:
            return {"dropped": True}
        return SLOW if e["rank"] == 1 and e["kind"] == "step" else {}

    assert [finding.ranks for finding in found(run_with(change), "straggler")] == [(1,)]


def test_a_rank_that_waits_longer_than_the_others_is_not_slow() -> None:
    def change(e: dict[str, Any]) -> dict[str, Any]:
        if e["kind"] != "step" or e["rank"] != 0:
            return {}
        return {"own_seconds": 1.0, "wait_seconds": 0.9, "seconds": 1.9}

    assert found(run_with(change), "straggler") == []


def hung(missing: dict[str, Any]) -> RunState:
    """All pulse on for a minute after step 60, which rank 3 spends otherwise."""
    state = run_with()
    pulses = [
        event("pulse", STEPS + 1.0 + t, rank, STEPS, phase="training", seconds=STEPS + t)
        | (missing if rank == 3 else {})
        for t in range(5, 61, 5)
        for rank in range(4)
    ]
    return fold_all(state, (e for e in pulses if not e.get("dropped")))


def test_a_hang_names_the_rank_in_another_phase() -> None:
    (finding,) = found(hung({"phase": "saving"}), "hang", NOW + 60)
    assert finding.ranks == (3,)
    assert finding.what == "no rank has finished a step for 60 s; rank 3 never arrived"
    assert "ranks 0-2 in training, rank 3 in saving" in finding.evidence


def test_a_hang_names_the_rank_that_never_came_to_the_collective() -> None:
    state = hung({"doing": "data"})
    ranks = {n: r if n == 3 else replace(r, doing="collective") for n, r in state.ranks.items()}
    (finding,) = found(replace(state, ranks=ranks), "hang", NOW + 60)
    assert finding.ranks == (3,)
    assert "ranks 0-2 in training (collective), rank 3 in training (data)" in finding.evidence


def test_a_hang_names_the_rank_that_fell_silent() -> None:
    state = hung({"dropped": True})
    (finding,) = found(state, "hang", NOW + 60)
    assert finding.ranks == (3,)
    (silent,) = found(state, "stale", NOW + 60)
    assert silent.severity == "error"
    assert silent.evidence == "rank 3 last spoke 61 s ago, in training"


def test_a_hang_names_the_rank_that_is_a_step_behind() -> None:
    behind = hung({})
    late = replace(behind.ranks[1], step=STEPS - 1)
    (finding,) = found(replace(behind, ranks={**behind.ranks, 1: late}), "hang", NOW + 60)
    assert finding.ranks == (1,)


def test_a_rank_that_failed_explains_why_the_others_wait() -> None:
    failed = fold(hung({}), event("failed", STEPS + 3.0, 2, STEPS, failure="user_code"))
    assert found(failed, "hang", NOW + 60) == []
    assert health(failed, PLAN, NOW + 60)[0].what == "rank 2 failed: user_code"


def test_when_most_are_silent_none_of_them_is_blamed() -> None:
    state = hung({})
    quiet = {n: replace(r, updated=BEGAN + STEPS) if n else r for n, r in state.ranks.items()}
    (finding,) = found(replace(state, ranks=quiet), "hang", NOW + 60)
    assert finding.ranks == ()


def test_when_all_wait_in_the_same_place_no_rank_is_blamed() -> None:
    (finding,) = found(hung({}), "hang", NOW + 60)
    assert finding.ranks == ()
    assert "collective" in finding.cause


def test_ranks_that_save_or_that_take_long_steps_do_not_hang() -> None:
    saving = fold(hung({}), event("phase", STEPS + 2.0, 0, STEPS, phase="saving"))
    assert found(saving, "hang", NOW + 60) == []
    long_steps = run_with(lambda e: {"seconds": 40.0} if e["kind"] == "step" else {})
    long_steps = replace(long_steps, updated=BEGAN + STEPS + 60)
    assert found(long_steps, "hang", NOW + 60) == []


def test_ranks_that_wait_for_one_that_still_loads_hang_before_the_first_step() -> None:
    state = fold_all(
        RunState(),
        [
            event("pulse", 300.0, r, None, phase="first batch", seconds=200.0)
            if r
            else event("pulse", 300.0, 0, None, phase="loading model", seconds=290.0)
            for r in range(4)
        ],
    )
    (finding,) = found(state, "hang", BEGAN + 300)
    assert finding.ranks == (0,)


def test_a_run_of_which_nothing_is_heard_is_stale_and_one_that_ended_is_not() -> None:
    (finding,) = found(run_with(), "stale", NOW + 60)
    assert finding.ranks == (0, 1, 2, 3)
    assert found(replace(run_with(), exit_code=0), "stale", NOW + 60) == []
    assert found(run_with(), "stale", NOW + 5) == []


def test_a_rank_that_the_watch_calls_silent_is_told() -> None:
    assert found(replace(run_with(), stale=(1, 99)), "stale")[0].ranks == (1,)


def test_hosts_whose_clocks_differ_are_told_apart_by_the_end_of_a_step() -> None:
    skewed = run_with(lambda e: {"t": e["t"] + 30} if e["rank"] in (2, 3) else {})
    (finding,) = found(skewed, "clock_skew", NOW + 30)
    assert finding.what == "the clock of node1 is off by +30 s"
    assert finding.ranks == (2, 3)
    assert found(run_with(lambda e: {"t": e["t"] + 0.3 * (e["rank"] or 0)}), "clock_skew") == []


def test_a_run_from_the_future_is_told_as_a_clock_that_is_ahead() -> None:
    (finding,) = found(run_with(), "clock_skew", NOW - 100)
    assert finding.severity == "info"


def test_a_starved_loader_is_found_on_the_ranks_that_starve() -> None:
    (finding,) = found(run_with(of_rank(1, "step", data_seconds=0.4)), "starved_loader")
    assert finding.ranks == (1,)
    assert finding.what == "40 % of a step goes into waiting for data"
    assert found(run_with(of_rank(1, "step", data_seconds=0.15)), "starved_loader") == []


def test_a_device_that_is_nearly_full_is_told_and_whose_memory_it_is() -> None:
    full = of_rank(3, "pulse", memory_used_bytes=78 * GIB)
    (finding,) = found(run_with(full), "near_oom")
    assert finding.ranks == (3,)
    assert "78.0 of 80.0 GiB" in finding.evidence
    assert "not the run's" in finding.cause
    assert found(run_with(of_rank(3, "pulse", memory_used_bytes=75 * GIB)), "near_oom") == []


def test_memory_that_creeps_is_told_with_when_it_is_full() -> None:
    def creeping(e: dict[str, Any]) -> dict[str, Any]:
        grown = {"memory_allocated_bytes": (17 + 0.1 * e["step"]) * GIB} if e["step"] else {}
        return grown if e["kind"] == "step" else {}

    (finding,) = found(run_with(creeping, steps=90), "memory_creep", BEGAN + 92)
    assert "17.10 → 23.10 GiB within 89 steps" in finding.evidence
    assert "full in about" in finding.evidence
    jagged = run_with(
        lambda e: (
            {"memory_allocated_bytes": (17 + e["step"] % 7) * GIB} if e["kind"] == "step" else {}
        ),
        steps=90,
    )
    assert found(jagged, "memory_creep", BEGAN + 92) == []


def test_a_loss_that_is_no_number_is_told_with_the_last_one_that_was() -> None:
    nan = later_than(STEPS, "train", lambda e: {"loss": "nan"})
    (finding,) = found(run_with(nan), "loss_nan")
    assert finding.severity == "error"
    assert f"at step {STEPS - 1} was the last number" in finding.evidence


def test_gradients_that_grew_before_the_loss_was_lost_are_named_as_its_cause() -> None:
    def change(e: dict[str, Any]) -> dict[str, Any]:
        if e["kind"] != "train" or e["step"] < STEPS - 1:
            return {}
        return {"grad_norm": 50.0} if e["step"] == STEPS - 1 else {"loss": "nan", "grad_norm": 90.0}

    assert "gradients that grew" in found(run_with(change), "loss_nan")[0].cause


def test_a_loss_that_jumps_is_a_spike_and_one_that_wobbles_is_not() -> None:
    jumped = later_than(STEPS, "train", lambda e: {"loss": 9.0})
    (finding,) = found(run_with(jumped), "loss_spike")
    assert f"9.0000 at step {STEPS}" in finding.what
    assert found(run_with(), "loss_spike") == []


def test_a_loss_that_no_longer_falls_is_a_plateau() -> None:
    flat = later_than(150, "train", lambda e: {"loss": 0.7 + 0.01 * (e["step"] % 3)})
    (finding,) = found(run_with(flat, steps=450), "loss_plateau", BEGAN + 452)
    assert finding.severity == "info"
    falling = later_than(0, "train", lambda e: {"loss": 3 - e["step"] / 200})
    assert found(run_with(falling, steps=450), "loss_plateau", BEGAN + 452) == []


def test_gradients_that_are_clipped_most_of_the_time_are_told() -> None:
    clipped = of_rank(0, "train", grad_norm=3.0)
    assert "100 % of the steps" in found(run_with(clipped), "clipped")[0].what
    assert found(run_with(clipped), "clipped", plan=Predicted()) == []
    assert found(run_with(), "clipped") == []


def test_a_drop_in_speed_is_told_with_both_speeds() -> None:
    slower = later_than(100, "step", lambda e: {"seconds": 2.0})
    (finding,) = found(run_with(slower, steps=150), "throughput_drop", BEGAN + 152)
    assert finding.what == "training is 50 % slower than it was"
    assert "2,000 tokens a second now, 4,000 before" in finding.evidence


def test_a_disk_without_room_for_the_next_checkpoint_is_told() -> None:
    saved = fold(run_with(), event("saved", 50, 0, 50, path="checkpoint-50", bytes=10 * GIB))
    (full,) = found(replace(saved, disk_free_bytes=9 * GIB), "disk_short")
    assert full.severity == "error"
    (tight,) = found(replace(saved, disk_free_bytes=15 * GIB), "disk_short")
    assert tight.severity == "warning"
    assert found(replace(saved, disk_free_bytes=25 * GIB), "disk_short") == []
    assert found(saved, "disk_short") == []


def test_a_prediction_that_is_off_by_more_than_a_tenth_is_told() -> None:
    over = replace(PLAN, memory_bytes=16 * GIB, tokens_per_second=9000.0)
    kinds = [(f.severity, f.what) for f in found(run_with(), "prediction_off", plan=over)]
    assert kinds == [
        ("warning", "memory is 22 % over the plan"),
        ("info", "training is 51 % slower than planned"),
    ]
    assert found(run_with(steps=5), "prediction_off", BEGAN + 7, over) == []


def test_an_error_that_the_driver_told_is_named_by_its_number() -> None:
    (finding,) = found(run_with(of_rank(2, "pulse", xid=79)), "xid")
    assert (finding.evidence, finding.ranks) == ("Xid 79", (2,))


def test_a_verdict_names_the_gravest_and_counts_the_others() -> None:
    state = run_with(later_than(STEPS, "train", lambda e: {"loss": "nan"}))
    state = replace(state, stale=(1,))
    assert verdict(health(state, PLAN, NOW)).startswith("FAIL the loss is nan, 1 more")


@pytest.mark.parametrize(
    "plan", [None, [], "x", {}, {"memory": 3, "decisions": [4, {"setting": "max_grad_norm"}]}]
)
def test_a_damaged_plan_predicts_nothing(plan: Any) -> None:
    assert predicted(plan) == Predicted()


def test_a_plan_predicts_what_it_says() -> None:
    plan = {
        "title": "LoRA",
        "steps": 225,
        "memory": {"device_bytes": 5, "device_budget_bytes": None},
        "tokens_per_second": 100.5,
        "decisions": [{"setting": "max_grad_norm", "value": 1.0}],
    }
    assert predicted(plan) == Predicted(
        title="LoRA", steps=225, memory_bytes=5, tokens_per_second=100.5, max_grad_norm=1.0
    )


def test_many_ranks_are_told_as_spans() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([0, 1, 2, 5]) == "ranks 0-2, 5"
    assert ranks_text(range(0, 40, 2)) == "ranks 0, 2, 4, 6, 8, 10, ..."
