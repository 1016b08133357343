"""Findings about ranks beside each other: who is slow, silent, missing, or off the clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import median

from wizard.dashboard.finding import Finding, ranks_text
from wizard.dashboard.values import ENDINGS, RankState, RunState

SLOW_SHARE = 1.10
"""Own work of a straggler beside the median of the others."""
SLOW_LINES = 10
SLOW_SAMPLES = 3
"""Lines and, where the own work is measured in some steps alone, such steps that tell it."""
SILENT_SECONDS = 15.0
"""Ranks pulse every 5 s."""
HANG_SECONDS, HANG_STEPS = 30.0, 5.0
FIRST_BATCH_SECONDS = 120.0
BUSY, IDLE_POWER = 90.0, 0.35
"""Utilisation in percent, and share of the power cap, of a device that spins in a collective."""
SKEW_SECONDS = 2.0
AHEAD_SECONDS = 5.0
LINE_SECONDS = 0.5
"""Steps faster than this share a line: the newest one may not be told yet."""
GIB = 1024**3


def own_step_seconds(rank: RankState) -> float | None:
    """Median of a rank's own work in a step; None while too few lines, or samples, tell it."""
    own = [line.own_seconds / line.steps for line in rank.recent if line.own_seconds is not None]
    if len(own) >= SLOW_LINES:
        return median(own)
    return median(rank.sampled) if len(rank.sampled) >= SLOW_SAMPLES else None


def waited_seconds(rank: RankState) -> float | None:
    """Median of what a rank waited for the others in a step, over the lines that tell its work."""
    waits = [
        line.wait_seconds / line.steps for line in rank.recent if line.wait_seconds is not None
    ]
    return median(waits) if waits else rank.wait_seconds


def slowness(state: RunState) -> dict[int, float]:
    """Rank → its own work as a multiple of the median of all; without those not known.

    All end a step together, so who is slow waits least: one that waits longer than the others is
    not slow, whatever else went into its time.
    """
    own = {n: s for n, rank in state.ranks.items() if (s := own_step_seconds(rank)) is not None}
    if len(own) < 2:
        return {}
    usual = median(own.values()) if len(own) > 2 else min(own.values())
    shares = {n: seconds / usual for n, seconds in own.items()} if usual > 0 else {}
    waits = {n: s for n in own if (s := waited_seconds(state.ranks[n])) is not None}
    return {n: 1.0 if share > 1 and _waits_more(n, waits) else share for n, share in shares.items()}


def _waits_more(number: int, waits: Mapping[int, float]) -> bool:
    """Than half of the other ranks."""
    others = [seconds for n, seconds in waits.items() if n != number]
    return number in waits and bool(others) and waits[number] > median(others)


def stragglers(state: RunState) -> Iterator[Finding]:
    """Ranks whose own work takes longer than that of the others, which wait for them."""
    shares = slowness(state)
    slow = sorted((n for n in shares if shares[n] > SLOW_SHARE), key=lambda n: -shares[n])
    for number in slow[:4]:
        rank = state.ranks[number]
        others = [r for n, r in state.ranks.items() if n not in slow]
        own = own_step_seconds(rank)
        yield Finding(
            kind="straggler",
            severity="warning",
            what=f"rank {number} is {100 * (shares[number] - 1):.0f} % slower than the others",
            evidence=f"own work {own:.3f} s a step, the others {(own or 0) / shares[number]:.3f} s",
            cause=_why_slow(rank, others),
            ranks=(number,),
        )


def _usual(others: list[RankState], field: Callable[[RankState], float | None]) -> float | None:
    known = [value for rank in others if (value := field(rank)) is not None]
    return median(known) if known else None


def _why_slow(rank: RankState, others: list[RankState]) -> str:
    """The first thing that differs from the other ranks, in words."""
    for look in (_clock, _link, _data, _neighbour):
        if cause := look(rank, others):
            return cause
    return ""


def _clock(rank: RankState, others: list[RankState]) -> str:
    usual = _usual(others, lambda r: r.sm_clock_mhz)
    if rank.sm_clock_mhz is None or usual is None or rank.sm_clock_mhz > 0.95 * usual:
        return ""
    text = f"its clock: {rank.sm_clock_mhz:.0f} MHz, the others {usual:.0f} MHz"
    cap, power = rank.power_cap_w, rank.power_w
    usual_cap, heat = _usual(others, lambda r: r.power_cap_w), rank.temperature_c
    if cap is not None and usual_cap is not None and cap < 0.95 * usual_cap:
        return f"{text}; its power cap is {cap:.0f} W, theirs {usual_cap:.0f} W"
    usual_heat = _usual(others, lambda r: r.temperature_c)
    if heat is not None and usual_heat is not None and heat >= max(80, usual_heat + 5):
        return f"{text}; it is hot: {heat:.0f} °C, the others {usual_heat:.0f} °C"
    if cap and power is not None and power > 0.97 * cap:
        return f"{text}; it is at its power cap of {cap:.0f} W"
    return text


def _link(rank: RankState, others: list[RankState]) -> str:
    width = rank.pcie_link_width
    usual = _usual(others, lambda r: r.pcie_link_width)
    if width is None or usual is None or width >= usual:
        return ""
    return f"its PCIe link: x{width:.0f}, the others x{usual:.0f}"


def _data(rank: RankState, others: list[RankState]) -> str:
    usual, usual_own = _usual(others, _data_seconds), _usual(others, own_step_seconds)
    data, own = _data_seconds(rank), own_step_seconds(rank)
    if usual is None or usual_own is None or data is None or own is None:
        return ""
    more = data - usual
    if more <= 0 or more < 0.5 * (own - usual_own):
        return ""
    return f"its data: {data:.3f} s a step, the others {usual:.3f} s"


def _data_seconds(rank: RankState) -> float | None:
    """Median over the last lines: a single one may be odd."""
    data = [line.data_seconds / line.steps for line in rank.recent if line.data_seconds is not None]
    return median(data) if data else None


def _neighbour(rank: RankState, others: list[RankState]) -> str:
    foreign, usual = _foreign_bytes(rank), _usual(others, _foreign_bytes)
    if foreign is None or usual is None or foreign < usual + GIB:
        return ""
    return f"another process on its device: {foreign / GIB:.1f} GiB there are not the run's"


def _foreign_bytes(rank: RankState) -> float | None:
    if rank.memory_used_bytes is None or rank.memory_reserved_bytes is None:
        return None
    return rank.memory_used_bytes - rank.memory_reserved_bytes


def hang(state: RunState) -> Iterator[Finding]:
    """Ranks that live but have finished no step for long: who is where, and who did not come."""
    living = {n: r for n, r in state.ranks.items() if r.phase not in ENDINGS}
    if len(living) < 2 or state.updated is None or state.phase in ("saving", "evaluating"):
        return
    if state.failure is not None or any(rank.failure for rank in state.ranks.values()):
        return  # that says more than that the others wait
    reached = [rank.step_t for rank in living.values() if rank.step_t is not None]
    waited, limit = _waited_seconds(state, living, reached)
    if waited <= limit:
        return
    missing = _missing(state, living)
    at = max((rank.step or 0 for rank in living.values()), default=0)
    yield Finding(
        kind="hang",
        severity="error",
        what=f"no rank has finished a step for {waited:.0f} s"
        + (f"; {ranks_text(missing)} never arrived" if missing else ""),
        evidence=f"last step {at}; {_by_phase(living)}{_spinning(living)}",
        cause="" if missing else "all are in the same phase: a collective that does not end",
        ranks=missing,
    )


def _waited_seconds(
    state: RunState, living: Mapping[int, RankState], reached: list[float]
) -> tuple[float, float]:
    """(seconds without a new step, seconds from which that is a hang), each by its own clock."""
    if reached:
        limit = max(HANG_SECONDS, HANG_STEPS * (state.step_seconds or 0.0))
        return max(map(_stepless_seconds, living.values())), limit
    waiting = [r.phase_seconds or 0.0 for r in living.values() if r.phase == "first batch"]
    return max(waiting, default=0.0), FIRST_BATCH_SECONDS


def _stepless_seconds(rank: RankState) -> float:
    """How long a rank has trained since its last step, when it last spoke."""
    if rank.phase != "training" or rank.step_t is None or rank.updated is None:
        return 0.0
    seconds = rank.updated - rank.step_t
    return seconds if rank.phase_seconds is None else min(seconds, rank.phase_seconds)


def _missing(state: RunState, living: Mapping[int, RankState]) -> tuple[int, ...]:
    """Who keeps the others waiting: the silent, those elsewhere, those at an earlier step."""
    assert state.updated is not None
    silent = _silent_beside(state, living)
    if silent and 2 * len(silent) < len(living) + 1:
        return silent
    [(most, _)] = Counter(_place(rank) for rank in living.values()).most_common(1)
    other = tuple(n for n, rank in sorted(living.items()) if _place(rank) != most)
    if other and 2 * len(other) < len(living) + 1:
        return other
    if (state.step_seconds or 0.0) < LINE_SECONDS:
        return ()
    last = max((rank.step or 0 for rank in living.values()), default=0)
    return tuple(n for n, rank in sorted(living.items()) if (rank.step or 0) < last)


def _spinning(living: Mapping[int, RankState]) -> str:
    """Devices that wait for each other look busy, and take the power of idle ones."""
    known = [
        (rank.power_w, rank.power_cap_w)
        for rank in living.values()
        if rank.power_w is not None and rank.power_cap_w and (rank.utilization_percent or 0) >= BUSY
    ]
    if not known or any(power > IDLE_POWER * cap for power, cap in known):
        return ""
    power, cap = max(known)
    return f"; busy devices take {power:.0f} of {cap:.0f} W: they wait and do not compute"


def _place(rank: RankState) -> str:
    """Phase, and within a step what it does there: `training (collective)`."""
    doing = f" ({rank.doing})" if rank.doing and rank.phase == "training" else ""
    return f"{rank.phase or 'an unknown phase'}{doing}"


def _by_phase(living: Mapping[int, RankState]) -> str:
    """Which ranks are in which phase, most of them first."""
    phases: dict[str, list[int]] = {}
    for number, rank in living.items():
        phases.setdefault(_place(rank), []).append(number)
    ordered = sorted(phases.items(), key=lambda item: (-len(item[1]), item[0]))
    return ", ".join(f"{ranks_text(ranks)} in {phase}" for phase, ranks in ordered)


def _silent_beside(state: RunState, living: Mapping[int, RankState]) -> tuple[int, ...]:
    """Ranks that have not spoken for long while others have, each by its own host's clock."""
    offsets = _clock_offsets(state)
    spoken = {
        number: rank.updated - offsets.get(rank.host or "", 0.0)
        for number, rank in living.items()
        if rank.updated is not None
    }
    latest = max(spoken.values(), default=0.0)
    return tuple(n for n, t in sorted(spoken.items()) if latest - t > SILENT_SECONDS)


def silent_ranks(state: RunState, now: float) -> Iterator[Finding]:
    """Ranks whose stream has nothing new, though they pulse every few seconds."""
    living = {n: r for n, r in state.ranks.items() if r.phase not in ENDINGS}
    if not living or state.updated is None:
        return
    silent = tuple(sorted({*_silent_beside(state, living), *(set(state.stale) & set(living))}))
    age = now - state.updated
    if not silent and age > SILENT_SECONDS:
        silent = tuple(sorted(living))
    if not silent:
        return
    last = {n: living[n].updated or 0.0 for n in silent}
    oldest = min(last, key=lambda n: last[n])
    seconds = max(now - last[oldest], 0.0)
    yield Finding(
        kind="stale",
        severity="warning" if len(silent) == len(living) else "error",
        what=f"nothing new from {ranks_text(silent)}",
        evidence=f"rank {oldest} last spoke {seconds:.0f} s ago, in {living[oldest].phase or '?'}",
        cause="" if len(silent) < len(living) else "the machine, its disk or its network is away",
        ranks=silent,
    )


def clock_skew(state: RunState, now: float) -> Iterator[Finding]:
    """Hosts whose clocks differ: all ranks finish a step at the same time."""
    ahead = (state.updated or now) - now
    if ahead > AHEAD_SECONDS:
        yield Finding(
            kind="clock_skew",
            severity="info",
            what="the run's clock is ahead of this machine's",
            evidence=f"its newest line is {ahead:.0f} s in the future",
            cause="a clock that is not synchronised; ages shown here are wrong by that",
        )
    yield from _skewed_hosts(state)


def _skewed_hosts(state: RunState) -> Iterator[Finding]:
    for host, off in sorted(_clock_offsets(state).items()):
        yield Finding(
            kind="clock_skew",
            severity="warning",
            what=f"the clock of {host} is off by {off:+.0f} s",
            evidence=f"it wrote the end of the same step {abs(off):.1f} s apart "
            "from the other hosts, though all end together",
            fix="synchronise the hosts' clocks (chrony, systemd-timesyncd)",
            ranks=tuple(n for n, rank in sorted(state.ranks.items()) if rank.host == host),
        )


def _clock_offsets(state: RunState) -> dict[str, float]:
    """Host → seconds its clock is ahead, for those that are off: all ranks end a step together."""
    known = [r for r in state.ranks.values() if r.host and r.step is not None and r.step_t]
    if not known:
        return {}
    [(common, _)] = Counter(rank.step for rank in known).most_common(1)
    ends: dict[str, list[float]] = {}
    for rank in known:
        if rank.step == common:
            ends.setdefault(rank.host or "", []).append(rank.step_t or 0.0)
    if len(ends) < 2:
        return {}
    medians = {host: median(times) for host, times in ends.items()}
    usual = median(medians.values()) if len(medians) > 2 else medians[min(medians)]
    return {h: at - usual for h, at in medians.items() if abs(at - usual) > SKEW_SECONDS}


def device_errors(state: RunState) -> Iterator[Finding]:
    """Devices of which the driver told an error."""
    for number, rank in sorted(state.ranks.items()):
        if rank.xid:
            yield Finding(
                kind="xid",
                severity="error",
                what=f"the driver told of an error on the device of rank {number}",
                evidence=f"Xid {rank.xid:.0f}",
                fix="`tunewright doctor` says what that number means",
                ranks=(number,),
            )
