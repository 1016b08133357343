"""RunState: what a run's events add up to."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.events import EXIT_CANNOT_WRITE, EXIT_STOPPED, decode_all
from wizard.dashboard.state import KEPT_PHASES, KEPT_ROWS, RunState, fold, fold_all, with_status
from wizard.dashboard.values import Failure

BEGAN = 1_800_000_000.0


def event(kind: str, t: float, rank: int | None = 0, **fields: Any) -> dict[str, Any]:
    """`t` is in seconds after BEGAN."""
    return {
        "t": BEGAN + t,
        "kind": kind,
        "rank": rank,
        "attempt": 0,
        "rung": 0,
        "step": None,
        **fields,
    }


def folded(*events: dict[str, Any]) -> RunState:
    state = RunState(name="run")
    for one in events:
        state = fold(state, one)
    return state


def step(t: float, rank: int, number: int, **fields: Any) -> dict[str, Any]:
    known = {"steps": 1, "seconds": 2.0, "tokens": 100}
    return event("step", t, rank, step=number, **{**known, **fields})


def test_nothing_is_known_of_a_run_that_said_nothing() -> None:
    state = RunState()
    assert state.phase is None
    assert state.step is None
    assert state.tokens_per_second is None
    assert state.eta_seconds() is None
    assert not state.ended


def test_a_line_of_several_steps_counts_each_of_them() -> None:
    state = folded(step(1, 0, 4, steps=4, seconds=2.0, own_seconds=1.0, tokens=800))
    assert state.step == 4
    assert state.ranks[0].step_seconds == 0.5
    assert state.ranks[0].own_seconds == 0.25
    assert state.ranks[0].tokens_per_second == 400


def test_tokens_per_second_adds_up_the_ranks() -> None:
    assert folded(step(1, 0, 1), step(1, 1, 1)).tokens_per_second == 100


def test_time_left_follows_the_median_of_recent_steps_and_not_the_slow_first_one() -> None:
    first = step(1, 0, 1, seconds=60.0)
    others = [step(n, 0, n, seconds=2.0) for n in range(2, 6)]
    total = event("phase", 0, phase="training", total_steps=15)
    assert folded(total, first, *others).eta_seconds() == 20.0


def test_the_order_in_which_ranks_are_read_does_not_matter() -> None:
    streams = [
        [event("hello", 0.0, r, world_size=2, pid=100 + r)]
        + [step(n + r / 10, r, n) for n in range(1, 10)]
        for r in range(2)
    ]
    one_by_one = folded(*streams[0], *streams[1])
    mixed = folded(*sorted(streams[0] + streams[1], key=lambda e: e["t"]))
    assert one_by_one.ranks == mixed.ranks
    assert one_by_one.step == mixed.step == 9
    assert one_by_one.updated == mixed.updated


def test_a_restart_begins_with_unknown_ranks_and_keeps_the_cause_as_a_warning() -> None:
    before = folded(
        step(1, 0, 7),
        event("failed", 2, 1, failure="killed", message="gone"),
        event("hello", 3, 0, attempt=1, world_size=2),
    )
    assert before.attempt == 1
    assert list(before.ranks) == [0]
    assert before.step is None
    assert before.failure is None
    assert "killed" in before.warnings[-1].text


def test_a_run_that_is_started_again_has_not_ended() -> None:
    stopped = folded(event("done", 5, None, exit_code=EXIT_STOPPED))
    assert stopped.ended
    again = fold(stopped, event("phase", 9, None, attempt=1, phase="starting"))
    assert not again.ended
    assert again.phase == "starting"
    assert again.resumed
    restarted = fold(again, event("phase", 12, None, attempt=2, phase="starting"))
    assert not restarted.resumed, "run.sh goes on by itself"


def test_a_late_line_of_an_earlier_attempt_changes_no_rank() -> None:
    state = folded(step(5, 0, 3, attempt=1), step(1, 1, 9))
    assert list(state.ranks) == [0]
    assert state.step == 3


def test_the_first_own_failure_explains_more_than_the_ranks_it_took_down() -> None:
    state = folded(
        event("failed", 10, 0, failure="comm_failed", message="closed by peer"),
        event("failed", 11, 1, failure="gpu_oom", message="out of memory"),
        event("failed", 12, 2, failure="unknown", message="later"),
    )
    assert state.failure is not None
    assert (state.failure.failure, state.failure.rank) == ("gpu_oom", 1)
    assert state.ranks[0].failure is not None


def test_a_rank_that_the_watch_found_killed_explains_the_broken_connection_of_another() -> None:
    state = folded(
        event("failed", 10, 2, failure="killed", message="ended by torchrun"),
        event("failed", 11, 0, failure="comm_failed", message="closed by peer"),
        event("failed", 12, None, failure="killed", message="rank 1 was ended by SIGKILL"),
    )
    assert state.failure is not None
    assert state.failure.message == "rank 1 was ended by SIGKILL"


def test_a_resumed_run_replaces_the_losses_after_its_checkpoint() -> None:
    first = [event("train", n, step=n, loss=9.0) for n in range(1, 6)]
    again = event("train", 9, step=3, loss=1.0, attempt=1)
    assert folded(*first, again).losses == ((1, 9.0), (2, 9.0), (3, 1.0))


def test_a_long_curve_is_thinned_and_keeps_its_ends() -> None:
    count = 5 * KEPT_ROWS + 3
    state = folded(*(event("train", n, step=n, loss=float(n)) for n in range(1, count + 1)))
    assert len(state.losses) <= KEPT_ROWS
    assert state.losses[0] == (1, 1.0)
    assert state.losses[-1] == (count, float(count))
    gaps = [b[0] - a[0] for a, b in zip(state.losses[:-1], state.losses[1:-1], strict=False)]
    assert max(gaps) <= 2 * min(gaps)


def test_a_loss_that_is_not_finite_is_shown_and_not_drawn() -> None:
    state = folded(event("train", 1, step=1, loss="nan"))
    assert state.loss is not None
    assert math.isnan(state.loss)
    assert state.losses == ()


def test_time_per_stage_is_exact_however_often_phases_change() -> None:
    phases = ["training", "saving"] * KEPT_PHASES
    events = [event("phase", float(n * 10), phase=phase) for n, phase in enumerate(phases)]
    state = folded(*events)
    assert len(state.phases) == KEPT_PHASES
    assert state.stage_seconds(BEGAN + len(phases) * 10.0) == {
        "training": KEPT_PHASES * 10.0,
        "saving": KEPT_PHASES * 10.0,
    }


def test_a_phase_that_is_read_late_takes_its_place_in_time() -> None:
    state = folded(
        event("phase", 30, phase="loading model"), event("phase", 20, None, phase="starting")
    )
    assert state.phase == "loading model"
    assert state.stage_seconds(BEGAN + 35.0) == {"starting": 10.0, "loading model": 5.0}


def test_time_after_the_end_belongs_to_no_stage() -> None:
    state = folded(
        event("phase", 0, phase="training"),
        event("phase", 10, None, phase="done"),
        event("done", 10, None, exit_code=0),
    )
    assert state.exit_code == 0
    assert state.stage_seconds(BEGAN + 500.0) == {"training": 10.0}


def test_a_sensor_that_falls_silent_is_unknown_again() -> None:
    hot = event("pulse", 1, phase="training", seconds=3.0, temperature_c=70, power_w=300)
    silent = event("pulse", 6, phase="training", seconds=8.0, temperature_c=None, power_w=300)
    rank = folded(hot, silent).ranks[0]
    assert rank.temperature_c is None
    assert rank.power_w == 300
    assert rank.phase_seconds == 8.0


def test_the_end_that_only_the_state_file_tells_is_taken_from_there() -> None:
    status = {"exit_code": EXIT_STOPPED, "phase": "stopped", "stale": [1]}
    state = with_status(folded(step(1, 0, 1)), status)
    assert state.ended
    assert (state.exit_code, state.phase, state.stale) == (EXIT_STOPPED, "stopped", (1,))


def test_the_watch_s_verdict_stands_over_the_word_of_a_rank_that_only_followed() -> None:
    followed = event("failed", 2, rank=1, failure="comm_failed", message="connection closed")
    status = {
        "exit_code": EXIT_CANNOT_WRITE,
        "failure": "disk_full",
        "message": "no space",
        "failed_rank": 0,
    }
    state = with_status(folded(step(1, 0, 1), followed), status)
    assert state.failure == Failure(failure="disk_full", message="no space", rank=0)
    same = with_status(state, {**status, "message": "shorter"})
    assert same.failure == state.failure  # with the rank's own message, and traceback if any


def test_a_kind_that_a_later_version_invents_changes_nothing() -> None:
    before = folded(step(1, 0, 1))
    assert fold(before, event("telepathy", 2, text="hello")) == before


garbage = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "nan", "inf", "-1", "x"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.sampled_from(["a", "b"]), st.integers(), max_size=2),
)
KEYS = ("rank", "attempt", "step", "rung", "steps", "seconds", "tokens", "loss", "phase", "pid")
MORE = ("world_size", "total_steps", "exit_code", "failure", "metrics", "stale", "text", "path")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(
        ["hello", "phase", "step", "train", "pulse", "eval", "saved", "failed", "done"]
    ),
    st.dictionaries(st.sampled_from(KEYS + MORE), garbage, max_size=8),
)
def test_garbage_in_any_field_is_survived(kind: str, fields: dict[str, Any]) -> None:
    state = folded({"t": BEGAN, "kind": kind, **fields}, step(2, 0, 1))
    assert state.updated is not None
    state.eta_seconds()
    with_status(state, fields)


@pytest.mark.parametrize("t", [10**400, 9e17, 0, -1, True, "now", None, math.nan])
def test_a_time_that_no_clock_says_makes_no_event(t: Any) -> None:
    before = folded(step(1, 0, 1))
    assert fold(before, {**step(2, 0, 2), "t": t}) == before


@pytest.mark.parametrize("code", [True, -1, 256, 99999999999, 10**400, "0", 1.0])
def test_a_number_that_no_process_ends_with_is_no_end(code: Any) -> None:
    state = with_status(folded(event("done", 1, None, exit_code=code)), {"exit_code": code})
    assert not state.ended


@pytest.mark.parametrize("lines", [200, 4000])
def test_folding_stays_small_however_long_the_run(lines: int) -> None:
    chosen = random.Random(0)
    events = [step(n, chosen.randrange(4), n) for n in range(lines)]
    state = folded(*events, *(event("warn", n, text="w") for n in range(lines)))
    assert all(len(rank.recent) <= 20 for rank in state.ranks.values())
    assert len(state.warnings) <= 200


RECORDED = Path(__file__).parent / "fakes" / "runs" / "restarted" / "events"
LINES = [
    line + b"\n" for path in sorted(RECORDED.glob("*")) for line in path.read_bytes().split(b"\n")
]
DAMAGE = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"{", b"\x00" * 9, b"[1]\n", b'{"t":1795976999,"kind":"step","rank":-1}\n']),
)


def parts_equal_the_whole(events: list[dict[str, Any]], cuts: list[int]) -> bool:
    ends = sorted({min(cut, len(events)) for cut in cuts} | {0, len(events)})
    state = RunState()
    for start, end in itertools.pairwise(ends):
        state = fold_all(state, events[start:end])
    return repr(state) == repr(fold_all(RunState(), events))  # a loss that is nan equals nothing


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_damage_to_the_streams_folds_and_in_pieces_as_at_once(data: st.DataObject) -> None:
    """Truncated, interleaved, duplicated, torn by garbage."""
    number = st.integers(0, len(LINES) - 1)
    lines = [LINES[i] for i in data.draw(st.lists(number, max_size=60))]
    for at in data.draw(st.lists(st.integers(0, 60), max_size=4)):
        lines.insert(at, data.draw(DAMAGE))
    raw = b"".join(lines)
    raw = raw[: data.draw(st.integers(0, len(raw)))] + b"\n"
    events = list(decode_all(raw))
    assert parts_equal_the_whole(events, data.draw(st.lists(st.integers(0, 60), max_size=4)))


def test_a_long_run_folded_in_pieces_equals_itself_folded_at_once() -> None:
    chosen = random.Random(1)
    events = [
        one
        for n in range(1, 3000)
        for one in (
            step(n, n % 3, n, seconds=chosen.random(), process_memory_bytes=n),
            event("train", n, step=n if n < 2000 else n - 500, loss=chosen.random(), grad_norm=1.0),
        )
    ]
    assert parts_equal_the_whole(events, [1, 7, 450, 451, 2049, 3333, 5000])


def test_the_time_a_lost_run_lay_there_is_no_time_it_ran() -> None:
    def phase(t: float, name: str, attempt: int) -> dict[str, Any]:
        said = {"kind": "phase", "rank": 0, "rung": 0, "step": None, "phase": name}
        return {**said, "t": 1_800_000_000.0 + t, "attempt": attempt}

    told = [phase(0, "starting", 0), phase(10, "training", 0), phase(20, "saving", 0)]
    again = [phase(5000, "starting", 1), phase(5010, "training", 1), phase(5030, "done", 1)]
    assert fold_all(RunState(), [*told, *again]).running_seconds() == 50
