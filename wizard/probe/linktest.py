"""Links tested by moving data: rates, wrong data and hangs, as links and problems."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from engine.theirs import quoted
from wizard.facts import Device, Link
from wizard.islands import best_links
from wizard.probe.running import Ran, Run, run
from wizard.problem import Problem

Pair: TypeAlias = tuple[int, int]

EXCHANGE_SECONDS = 30.0
TOTAL_SECONDS = 180.0
AFTERWARDS_SECONDS = 20.0
"""What the child needs to end its ranks."""
CPU_RANKS = 2
EXCHANGES = ("copy", "all-reduce")
STEPS = {"starting": "start of the ranks", "stopping": "end of the ranks"}
TOO_SLOW = 0.2
"""Part of what a link can do, below which something is wrong with it (ray-project/ray#39471)."""


class Tested(NamedTuple):
    """Links as measured, and what is wrong with them."""

    links: tuple[Link, ...]
    problems: tuple[Problem, ...]


@dataclass(slots=True)
class Said:
    """The child's lines, understood."""

    copies: dict[Pair, Mapping[str, Any]] = field(default_factory=dict)
    peers: dict[Pair, bool] = field(default_factory=dict)
    all_reduce: Mapping[str, Any] | None = None
    hang: Mapping[str, Any] | None = None
    failed: Mapping[str, Any] | None = None
    late: bool = False
    code: int | None = None
    text: str = ""

    @property
    def whole(self) -> bool:
        """Everything was exchanged, and came over as it was sent."""
        parts = [*self.copies.values(), self.all_reduce or {}]
        return self.code == 0 and all(part.get("intact") is True for part in parts)

    @property
    def broken(self) -> bool:
        """Data did not come over, or not as it was sent: more than a start that failed."""
        moved = [*self.copies.values(), *([self.all_reduce] if self.all_reduce else [])]
        wrong = any(line.get("intact") is not True for line in moved)
        steps = [(line or {}).get("during") for line in (self.hang, self.failed)]
        return wrong or any(step in EXCHANGES for step in steps)


def test_links(  # no test of pytest
    devices: Sequence[Device],
    known: Iterable[Link] = (),  # noqa: PT028
    *,
    run: Run = run,  # noqa: PT028
) -> Tested:
    """Send data between all devices, at most `TOTAL_SECONDS` long; two CPU ranks without any.

    The known links come back with what was measured in place of what they should do. When it
    hangs, or data comes over wrong, it is tried again without peer access: if that works, the
    links have none.
    """
    places = [place for place, device in enumerate(devices) if device.kind != "cpu"]
    tested = [devices[place] for place in places]
    known = tuple(known)
    if problem := _untestable(tested):
        return Tested(known, (problem,))
    said = _exchange(tested, run)
    problems = _problems(said, places, devices)
    links = _links(said, places, best_links(known))
    if tested and said.broken:
        without = _exchange(tested, run, peer_access=False)
        problems = [_with_remedy(problem, works=without.whole) for problem in problems]
        if without.whole:
            links = [_around(link) for link in _links(without, places, best_links(known))]
    if not problems:
        problems = [*_slow(links, best_links(known)), *_rates(said)]
    return Tested(_merged(known, links), tuple(problems))


def _around(link: Link) -> Link:
    """A link of a machine on which data came over only without peer access."""
    why = "measured without peer access: with it, data does not come over"
    return replace(link, peer_access=False, why=why)


def _merged(known: Iterable[Link], measured: Sequence[Link]) -> tuple[Link, ...]:
    found = {**best_links(known), **best_links(measured)}
    return tuple(found[pair] for pair in sorted(found))


def _untestable(devices: Sequence[Device]) -> Problem | None:
    if len(devices) == 1:
        what, fix = "there is one device: no link to test", ""
    elif any(device.mig_parent_uuid for device in devices):
        what = "slices of a card exchange nothing with each other"
        fix = "a run takes one slice, or whole cards"
    elif len({device.kind for device in devices}) > 1 or any(d.kind == "mps" for d in devices):
        what, fix = "these devices cannot exchange data", "choose devices of one vendor"
    else:
        return None
    return Problem(what=what, where="test of the links", fix=fix, severity="info")


def _exchange(devices: Sequence[Device], run: Run, *, peer_access: bool = True) -> Said:
    command = [sys.executable, "-m", "engine.linktest"]
    command += ["--ranks", str(len(devices) or CPU_RANKS)]
    command += ["--device-kind", devices[0].kind if devices else "cpu"]
    command += ["--exchange-seconds", str(EXCHANGE_SECONDS), "--total-seconds", str(TOTAL_SECONDS)]
    if devices:
        command += ["--devices", ",".join(_name(device) for device in devices)]
    if not peer_access:
        command += ["--without-peer-access"]
    return understand(run(command, TOTAL_SECONDS + AFTERWARDS_SECONDS))


def _name(device: Device) -> str:
    """What the device is called in the variable that makes it visible."""
    return device.uuid if device.kind == "cuda" and device.uuid else str(device.index)


def understand(ran: Ran) -> Said:
    """The child's lines; those that are no lines of it are skipped."""
    last = ran.err.strip().rpartition("\n")[2]
    said = Said(text=quoted(last) if last else "")
    for line in _lines(ran.out):
        kind, pair = line.get("kind"), _pair(line.get("pair"))
        if kind == "copy" and pair:
            said.copies[pair] = line
        elif kind == "peer" and pair:
            said.peers[pair] = line.get("allowed") is True
        elif kind == "all_reduce":
            said.all_reduce = line
        elif kind == "hang":
            said.hang = said.hang or line
        elif kind == "failed":
            said.failed = said.failed or line
        elif kind == "end":
            said.code, said.text = line.get("code"), str(line.get("text") or said.text)
        said.late |= kind == "late"
    said.late |= ran.timed_out
    return said


def _lines(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _pair(value: object) -> Pair | None:
    whole = isinstance(value, list) and len(value) == 2 and all(isinstance(v, int) for v in value)
    return (value[0], value[1]) if whole else None  # type: ignore[index]


def _links(said: Said, places: Sequence[int], known: Mapping[Pair, Link]) -> list[Link]:
    return [
        _link(said, ranks, (places[ranks[0]], places[ranks[1]]), known)
        for ranks in sorted(said.copies)
        if max(ranks) < len(places)
    ]


def _link(said: Said, ranks: Pair, ends: Pair, known: Mapping[Pair, Link]) -> Link:
    line = said.copies[ranks]
    before = known.get((min(ends), max(ends)), Link(devices=ends, kind="unknown"))
    both = [said.peers.get(pair) for pair in (ranks, ranks[::-1])]
    intact = line.get("intact") is True
    allowed = before.peer_access if None in both else all(both)
    states = "the runtime allows peer access" if allowed else "the runtime has no peer access"
    return replace(
        before,
        gbs=round(float(line["gbs"]), 2),
        peer_access=allowed and intact,
        why="measured"
        + f"; {states}" * (None not in both)
        + "; data came over wrong" * (not intact),
        source="measured",
    )


def _problems(said: Said, places: Sequence[int], devices: Sequence[Device]) -> list[Problem]:
    wrong = [pair for pair, line in said.copies.items() if line.get("intact") is not True]
    problems = [
        _problem(
            "the second received other data than the first sent", _where(pair, places, devices)
        )
        for pair in wrong
    ]
    if said.all_reduce is not None and said.all_reduce.get("intact") is not True:
        problems.append(_problem("a sum over all ranks came out wrong", "all-reduce"))
    if said.hang is not None:
        problems.append(_hang(said.hang, places, devices))
    elif said.late:
        problems.append(_problem(f"the test did not end within {TOTAL_SECONDS:.0f} s", "links"))
    elif said.failed is not None:
        where = _where(_pair(said.failed.get("pair")), places, devices)
        what = f"{_step(said.failed)} failed: {said.failed.get('text')}"
        problems.append(_problem(what, where))
    elif said.code != 0:
        what = f"the test ended with code {said.code}" + f": {said.text}" * bool(said.text)
        problems.append(_problem(what, "links"))
    return problems


def _hang(line: Mapping[str, Any], places: Sequence[int], devices: Sequence[Device]) -> Problem:
    seconds = float(line.get("seconds") or EXCHANGE_SECONDS)
    what = f"{_step(line)} hangs: no answer within {seconds:.0f} s"
    return _problem(what, _where(_pair(line.get("pair")), places, devices))


def _step(line: Mapping[str, Any]) -> str:
    during = str(line.get("during"))
    return f"the {STEPS.get(during, during)}"


def _where(pair: Pair | None, places: Sequence[int], devices: Sequence[Device]) -> str:
    if pair is None or max(pair) >= len(places):
        return "all ranks" if pair is None else f"ranks {pair[0]} and {pair[1]}"
    one, other = (devices[places[end]] for end in pair)
    return f"devices {one.index} and {other.index}"


def _problem(what: str, where: str) -> Problem:
    fix = "see NCCL_DEBUG=INFO for more" if where != "links" else ""
    return Problem(what=what, where=where, fix=fix, exit_code=6)


def _with_remedy(problem: Problem, *, works: bool) -> Problem:
    if works:
        fix = (
            "export NCCL_P2P_DISABLE=1: without peer access it works; for the full rate turn off "
            "ACS and the IOMMU in the firmware"
        )
        return replace(problem, fix=fix)
    return replace(problem, what=f"{problem.what}; also without peer access")


def _slow(links: Sequence[Link], known: Mapping[Pair, Link]) -> list[Problem]:
    """Links that carry far less than they can: broken peer access may be slow instead of hung."""
    found: dict[str, list[str]] = defaultdict(list)
    for link in links:
        before = known.get(link.devices)
        if before and before.gbs and link.gbs is not None and link.gbs < before.gbs * TOO_SLOW:
            found[f"{before.gbs:g}"].append(f"{link.devices[0]}–{link.devices[1]}: {link.gbs:g}")
    return [
        Problem(
            what=f"far less than the {can} GB/s that they can do: {', '.join(rates)} GB/s",
            where="links",
            fix="NCCL_P2P_DISABLE=1 may be faster; look for a slot of few lanes in nvidia-smi -q",
            severity="warning",
            exit_code=6,
        )
        for can, rates in found.items()
    ]


def _rates(said: Said) -> list[Problem]:
    if said.all_reduce is None:
        return []
    rate, ranks = float(said.all_reduce["gbs"]), said.all_reduce["ranks"]
    what = f"{rate:.3g} GB/s for each of {ranks} ranks"
    return [Problem(what=what, where="all-reduce", severity="info")]
