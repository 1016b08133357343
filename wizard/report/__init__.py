"""A run as one page of HTML that needs nothing beside it: outcome, curves, plan, environment."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from engine.events import EXIT_MEANING
from wizard import __version__, wording
from wizard.dashboard.compared import compared
from wizard.dashboard.fields import number
from wizard.dashboard.finding import Finding
from wizard.dashboard.state import RankState, RunState
from wizard.dashboard.view import View
from wizard.dashboard.words import failure_words, said_finding
from wizard.language import said, said_title, said_value, used
from wizard.report.plots import plot

MOST_RANKS = 64
STYLE = """
:root { color-scheme: light dark; --line: #2b6cb0; --dot: #c05621; --soft: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--soft);
  vertical-align: top; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; } .wide { overflow-x: auto; }
figure { margin: 0; } .plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem,
  1fr)); gap: 1rem; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; } svg text { font-size: 11px; fill: currentColor; }
svg .grid { stroke: var(--soft); } svg polyline { fill: none; stroke: var(--line); stroke-width: 2;
  stroke-linejoin: round; } svg circle { fill: var(--dot); }
.error { color: #c53030; } .warning { color: #b7791f; } pre { white-space: pre-wrap; }
"""
RANK_TITLES = ("rank", "device", "step", "own s", "wait s", "tokens/s", "peak", "slowness", "state")
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(view: View, plan: object, result: object, versions: Mapping[str, str | None]) -> str:
    """The page of a run; `plan` and `result` are what plan.json and result.json hold.

    Every text in it was written by others, so every text is escaped. It is made to be handed on:
    of hosts it gives the number, of files and folders among the settings the name alone.
    """
    state = view.state
    name = _text(state.name)
    parts = [
        f"<h1>{name}</h1><p>{_text(said(view.plan.title))}</p>",
        _outcome(state),
        _against(view, result),
        _plots(state),
        _findings(view.findings),
        _ranks(view),
        _decisions(plan),
        _parts(plan),
        _environment(state, plan, versions),
        f"<p>{_text(said(f'Written by tunewright {__version__}'))}</p>",
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="{used().replace("_", "-")}"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{name}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _text(value: object) -> str:
    return html.escape(wording.one_line(value))


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], numeric: bool = True, labels: bool = True
) -> str:
    """Cells are plain text; all but the first column are numbers, unless said otherwise.

    The first column has labels, else names of settings, whose values stay as they are too.
    """
    kind = ' class="n"' if numeric else ""
    head = [said_title(title) for title in head]
    rows = [(said(first), *map(said_value, others)) for first, *others in rows] if labels else rows
    lines = [
        "<tr>"
        + "".join(f"<{tag}{kind if i else ''}>{_text(c)}</{tag}>" for i, c in enumerate(cells))
        + "</tr>"
        for tag, cells in [("th", head), *(("td", row) for row in rows)]
        if cells
    ]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _section(title: str, content: str) -> str:
    return f"<h2>{_text(said(title))}</h2>{content}" if content else ""


def _outcome(state: RunState) -> str:
    code = state.exit_code
    if state.lost:
        word = "lost: nobody recorded how it ended"
    elif code is None:
        word = f"still running: {state.phase or 'starting'}"
    else:
        word = f"{EXIT_MEANING.get(code, 'an unexpected error')} (exit code {code})"
    seconds = state.running_seconds()
    rows = [
        ("outcome", word),
        ("steps", f"{wording.count(state.step)} of {wording.count(state.total_steps)}"),
        ("time", wording.duration(seconds) if seconds is not None else ""),
        ("attempts", str(state.attempt + 1)),
        ("tokens seen", "" if state.tokens_seen is None else wording.count(state.tokens_seen)),
    ]
    if state.losses:
        losses = f"{wording.loss(state.first_loss)} → {wording.loss(state.last_loss)}"
        rows.append(("loss", losses))
    if state.failure is not None:
        rows.append(("failure", failure_words(state.failure)))
    return _table((), [row for row in rows if row[1]], numeric=False)


def _against(view: View, result: object) -> str:
    """Predicted beside measured; the finished run's own figures where it wrote them."""
    rows = [
        (one.name, one.told(one.predicted), one.told(one.measured), one.off)
        for one in compared(view.state, view.plan, result)
    ]
    head = ("", "predicted", "measured", "error")
    note = said(
        "error: how far measured is above (+) or below (-) predicted, in percent of predicted. "
        "With padding, the rows of a batch count as long as its longest, as in the prediction."
    )
    return _section("Predicted and measured", f"{_table(head, rows)}<p>{_text(note)}</p>")


def _plots(state: RunState) -> str:
    rows = state.history
    evals = [
        (float(e.step), e.metrics["eval_loss"])
        for e in state.evals
        if e.step is not None and "eval_loss" in e.metrics
    ]
    curves = (
        plot("loss" + (" (dots: evaluation)" if evals else ""), _curve(rows, "loss"), evals),
        plot("learning rate", _curve(rows, "learning_rate")),
        plot("gradient norm", _curve(rows, "grad_norm")),
        plot("tokens a second", _curve(rows, "tokens_per_second")),
        plot("memory, GiB", _curve(rows, "memory_bytes", wording.GIB)),
    )
    drawn = "".join(curves)
    return _section("Over the steps", f'<div class="plots">{drawn}</div>' if drawn else "")


def _curve(rows: Sequence[Any], name: str, unit: float = 1) -> list[tuple[float, float]]:
    return [(r.step, getattr(r, name) / unit) for r in rows if getattr(r, name) is not None]


def _findings(findings: Sequence[Finding]) -> str:
    lines = [
        f'<tr><td class="{finding.severity}">{_text(said(finding.severity))}</td>'
        f"<td>{_text(said_finding(finding))}</td></tr>"
        for finding in findings
    ]
    text = (
        f"<table>{''.join(lines)}</table>"
        if lines
        else f"<p>{_text(said('Nothing was found wrong.'))}</p>"
    )
    return _section("Health", text)


def _ranks(view: View) -> str:
    state = view.state
    order = sorted(state.ranks, key=lambda n: (-view.shares.get(n, 0.0), n))
    rows = [_rank(state.ranks[n], view.shares.get(n)) for n in order[:MOST_RANKS]]
    if not rows:
        return ""
    left = len(order) - len(rows)
    told = said(f"{left:,} further ranks are not listed: these are the slowest.")
    more = f"<p>{_text(told)}</p>" if left else ""
    return _section("Ranks", _table(RANK_TITLES, rows) + more)


def _rank(rank: RankState, share: float | None) -> tuple[str, ...]:
    return (
        str(rank.rank),
        rank.device or "",
        wording.cell(rank.step),
        wording.cell(rank.own_seconds, 3),
        wording.cell(rank.wait_seconds, 3),
        wording.cell(rank.tokens_per_second),
        "" if rank.peak_bytes is None else wording.gib(rank.peak_bytes),
        "" if share is None else f"{100 * (share - 1):+.0f} %",
        f"failed: {rank.failure.failure}" if rank.failure else rank.phase or "",
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: object) -> list[Mapping[str, Any]]:
    return [_mapping(part) for part in value] if isinstance(value, list) else []


def _decisions(plan: object) -> str:
    rows = [
        (str(d.get("setting", "")), _value(d.get("value")), said(str(d.get("reason", ""))))
        for d in _listed(_mapping(plan).get("decisions"))
    ]
    return _section(
        "Plan",
        _table(("setting", "value", "reason"), rows, numeric=False, labels=False) if rows else "",
    )


def _value(value: object) -> str:
    """A setting's value; of a file or folder its name alone."""
    name = PurePath(value).name if isinstance(value, str) and value.startswith(("/", "~")) else ""
    return name or wording.setting(value)


def _parts(plan: object) -> str:
    memory = _mapping(_mapping(plan).get("memory"))
    rows = [
        (str(p.get("name", "")), wording.gib(number(p, "bytes")), str(p.get("formula", "")))
        for p in _listed(memory.get("parts"))
    ]
    table = _table(("part", "predicted", "how"), rows, numeric=False) if rows else ""
    return _section("Memory of a rank", table)


def _environment(state: RunState, plan: object, versions: Mapping[str, str | None]) -> str:
    facts = _mapping(_mapping(plan).get("facts"))
    host, software = _mapping(facts.get("host")), _mapping(facts.get("software"))
    devices = sorted({rank.device for rank in state.ranks.values() if rank.device})
    hosts = {rank.host for rank in state.ranks.values() if rank.host}
    told = [
        ("devices", ", ".join(devices)),
        ("ranks", str(len(state.ranks) or "")),
        ("hosts", str(len(hosts) or "")),
        ("processor", host.get("cpu_name")),
        ("system", host.get("system")),
        *((name, software.get(name)) for name in ("python", "driver", "cuda")),
        *versions.items(),
    ]
    rows = [(name, str(value)) for name, value in told if value]
    return _section("Environment", _table((), rows, numeric=False) if rows else "")
