"""What is measured now beside what the plan said, and all that is known of one rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from textual.content import Content

from wizard import wording
from wizard.dashboard.health import Finding, verdict
from wizard.dashboard.predicted import Predicted
from wizard.dashboard.rank_columns import on_device
from wizard.dashboard.state import RankState, RunState
from wizard.dashboard.words import failure_words
from wizard.language import said, said_value

WIDE = 46
"""Cells from which the plan has a column of its own."""
TOLD = 3
"""Findings told in full."""
STYLES = {"FAIL": "bold $text-error", "(!)": "bold $text-warning"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """One line: a measured value, the plan's, and what that means."""

    name: str
    now: str = ""
    plan: str = ""
    note: str = ""
    short: str = ""
    """Stands for the note where that would be cut."""


def compared(state: RunState, plan: Predicted, now: float) -> list[Compared]:
    """Every line there is something to say about."""
    found = [
        _loss(state),
        _speed(state, plan),
        _step(state, plan),
        *_memory(state, plan),
        _norm(state, plan),
        Compared(name="lr", now=_said("{:.3g}".format, state.learning_rate)),
        _checkpoint(state, now),
        _evaluation(state),
        Compared(name="disk", now=_said(wording.gib, state.disk_free_bytes), note="free"),
        Compared(name="steps", plan="" if state.total_steps else _said(wording.count, plan.steps)),
    ]
    return [line for line in found if line.now or line.plan]


def _said(word: Callable[[float], str], value: float | None) -> str:
    return "" if value is None else word(value)


def _loss(state: RunState) -> Compared:
    """The loss, and how fast it falls."""
    fall = _fall(state)
    return Compared(
        name="loss",
        now=_said(wording.loss, state.loss),
        note="" if fall is None else f"{fall:+.2f} /100 st.",
        short="" if fall is None else f"{fall:+.3g}/100",
    )


def _fall(state: RunState) -> float | None:
    """Change in 100 steps, by the medians of the first and last of the newest rows."""
    rows = [row for row in state.recent if row.loss is not None]
    if len(rows) < 20:
        return None
    part = len(rows) // 4
    early, late = rows[:part], rows[-part:]
    steps = median(row.step for row in late) - median(row.step for row in early)
    change = median(r.loss or 0.0 for r in late) - median(r.loss or 0.0 for r in early)
    return 100 * change / steps if steps > 0 else None


def _speed(state: RunState, plan: Predicted) -> Compared:
    share, padded = "", state.padded_per_second
    if padded and plan.tokens_per_second:
        share = wording.percent(padded, plan.tokens_per_second)
    return Compared(
        name="tokens/s",
        now=_said("{:,.0f}".format, state.tokens_per_second),
        plan=_said("{:,.0f}".format, plan.tokens_per_second),
        note=f"{share} with padding" if share else "",
        short=share,
    )


def _step(state: RunState, plan: Predicted) -> Compared:
    waits = [rank.wait_seconds for rank in state.ranks.values() if rank.wait_seconds is not None]
    data = [rank.data_seconds for rank in state.ranks.values() if rank.data_seconds is not None]
    reading = f"data {max(data):.2f}" if data else ""
    waiting = f"wait {median(waits):.2f}" if len(waits) > 1 else ""
    return Compared(
        name="step",
        now=_said(wording.duration, state.step_seconds),
        plan=_said(wording.duration, plan.step_seconds),
        note=" ".join(filter(None, map(said, (reading, waiting)))),
        short=reading or waiting,
    )


def _memory(state: RunState, plan: Predicted) -> list[Compared]:
    peaks = [rank.peak_bytes for rank in state.ranks.values() if rank.peak_bytes is not None]
    peak = max(peaks, default=None)
    budget = "" if plan.budget_bytes is None else wording.gib(plan.budget_bytes)
    share = ""
    if peak is not None and plan.budget_bytes:
        share = wording.percent(peak, plan.budget_bytes)
    name = "peak memory" if on_device(state) or peak is None else "peak process"
    return [
        Compared(
            name=name,
            now=_said(wording.gib, peak),
            plan=_said(wording.gib, plan.memory_bytes),
            note=f"{share} of {budget}" if share else f"may use {budget}" if budget else "",
            short=share or f"of {budget}" if budget else "",
        )
    ]


def _norm(state: RunState, plan: Predicted) -> Compared:
    norms = [row.grad_norm for row in state.recent if row.grad_norm is not None]
    limit = plan.max_grad_norm
    share = ""
    if limit and norms:
        share = f"{100 * sum(norm > limit for norm in norms) / len(norms):.0f} %"
    return Compared(
        name="grad norm",
        now=_said("{:.3g}".format, state.grad_norm),
        plan="" if limit is None else f"clipped at {limit:g}",
        note=f"clipped in {share}" if share else "",
        short=f"clipped {share}" if share else "",
    )


def _checkpoint(state: RunState, now: float) -> Compared:
    if not state.saved:
        return Compared(name="checkpoint")
    last = state.saved[-1]
    size = "" if last.bytes is None else f", {wording.gib(last.bytes)}"
    step = "the result" if last.step is None else f"at {last.step:,}"
    gone = wording.duration(now - last.t)
    return Compared(name="checkpoint", now=step, note=f"{gone} ago{size}", short=f"{gone} ago")


def _evaluation(state: RunState) -> Compared:
    losses = [e.metrics["eval_loss"] for e in state.evals if "eval_loss" in e.metrics]
    if not losses:
        return Compared(name="eval loss")
    step = state.evals[-1].step
    at = "" if step is None else f"at step {step:,}"
    best = f"best {min(losses):.4f}" if losses[-1] > min(losses) else "the best so far"
    return Compared(name="eval loss", now=f"{losses[-1]:.4f}", note=f"{at} {best}".strip())


def against_plan(
    state: RunState, plan: Predicted, findings: tuple[Finding, ...], now: float, width: int
) -> Content:
    """The box: with a column for the plan where there is room, else the plan's values below."""
    rows = [_in_language(row) for row in compared(state, plan, now)]
    wide = width >= WIDE
    names = max((wording.cells(row.name) for row in rows), default=6)
    amounts = max((wording.cells(row.now) for row in rows), default=0)
    plans = max((wording.cells(row.plan) for row in rows), default=0) if wide else 0
    parts = _health(findings, width)
    if plans:
        head = f"{'':<{names}}  {wording.padded(said('now'), amounts)}  {said('plan')}"
        parts.append(Content.styled(head, "$foreground-muted"))
    for row in rows:
        line: list[tuple[str, str] | str] = [
            (f"{wording.padded(row.name, names)}  ", "$foreground-muted")
        ]
        line.append(wording.padded(row.now, amounts))
        if plans:
            line.append(f"  {wording.padded(row.plan, plans)}")
        if row.plan and not wide:
            line.append((f"  {said('plan')} {row.plan}", "$foreground-muted"))
        elif row.note:
            room = width - names - amounts - 4 - (plans + 2 if plans else 0)
            note = row.note if wording.cells(row.note) <= room else row.short or row.note
            line.append((f"  {note}", "$foreground-muted"))
        parts.append(Content.assemble(*line))
    parts += [Content(line) for line in _told(findings, width)]
    return Content("\n").join(parts)


def _health(findings: tuple[Finding, ...], width: int) -> list[Content]:
    """The verdict, on two lines where it needs them; the fault finder has all of it."""
    word = said(wording.one_line(verdict(findings)))
    style = STYLES.get(word.split()[0], "$text-success")
    name = f"{said('health')}  "
    indent = " " * wording.cells(name)
    first, *more = wording.wrapped(word, max(width, 20), indent)
    lines = [Content.assemble((name, "$foreground-muted"), (first.removeprefix(indent), style))]
    return [*lines, *(Content.styled(line, style) for line in more[:1])]


def _in_language(row: Compared) -> Compared:
    return Compared(
        name=said(row.name),
        now=said_value(row.now),
        plan=said_value(row.plan),
        note=said_value(row.note),
        short=said_value(row.short),
    )


def _told(findings: tuple[Finding, ...], width: int) -> list[str]:
    """What was found in full words, below the numbers, where there is room."""
    lines: list[str] = []
    for finding in findings[:TOLD]:
        cause = f"; {said('likely')} {said(finding.cause)}" if finding.cause else ""
        text = wording.one_line(f"{said(finding.what)}: {said(finding.evidence)}{cause}")
        lines += ["", *wording.wrapped(text, max(width, 20), "- ", "")]
    return lines


def rank_detail(rank: RankState) -> list[str]:
    """Everything known of one rank; what is not known is left out."""
    groups = (
        (("failed", rank.failure and failure_words(rank.failure)),),
        (
            ("a step: own work", _seconds(rank.own_seconds)),
            ("waiting", _seconds(rank.wait_seconds)),
            ("data", _seconds(rank.data_seconds)),
        ),
        (
            ("peak", _known(wording.gib, rank.peak_bytes)),
            ("device used", _known(wording.gib, rank.memory_used_bytes)),
            ("of", _known(wording.gib, rank.memory_total_bytes)),
            ("clock", _known("{:.0f} MHz".format, rank.sm_clock_mhz)),
            ("PCIe x", _known("{:.0f}".format, rank.pcie_link_width)),
            ("driver error (Xid)", _known("{:.0f}".format, rank.xid)),
            ("exit code", rank.exit_code),
            ("pid", rank.pid),
            ("host", rank.host),
        ),
        (("device", rank.device), ("uuid", rank.uuid)),
        (("last word", None if rank.updated is None else wording.time_of_day(rank.updated)),),
    )
    lines = (
        "   ".join(f"{said(name)} {v}" for name, v in group if v is not None) for group in groups
    )
    return [line for line in lines if line]


def _known(word: Callable[[float], str], value: float | None) -> str | None:
    return None if value is None else word(value)


def _seconds(value: float | None) -> str | None:
    return _known("{:.3f} s".format, value)
