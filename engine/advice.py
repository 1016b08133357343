"""Advice: what to know of the rows to evaluate on, and of labels, before anything is learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.methods import all_labelled
from engine.spec import Spec

MOST_OVER = 4 / 3
"""How much more good answers may weigh than bad ones: KTO, arXiv:2402.01306, equation 8."""


def advice(report: Mapping[str, Any], spec: Spec) -> list[str]:
    """One sentence for each thing that is not as it should be."""
    said = [_cut(report, spec), _learnt_too(report), _unbalanced(report, spec)]
    return [text for text in said if text]


def _cut(report: Mapping[str, Any], spec: Spec) -> str:
    held = report["eval"]
    if held is None or not held["cut_rows"]:
        return ""
    return (
        f"eval_data: {held['cut_rows']:,} of {held['kept']:,} rows are longer than "
        f"max_length={spec.data.max_length} and cut at the end"
    )


def _learnt_too(report: Mapping[str, Any]) -> str:
    too = report["eval_learnt_too"]
    if not too:
        return ""
    are = "is" if too == 1 else "are"
    return (
        f"{too:,} of the {report['eval']['kept']:,} rows of eval_data {are} in the training data "
        "too: the evaluation looks better than the model is"
    )


def _unbalanced(report: Mapping[str, Any], spec: Spec) -> str:
    """Good answers should weigh as much as bad ones over all, or up to a third more."""
    if report["stage"] != "kto":
        return ""
    good = report["good_examples"]
    bad = report["examples"] - good
    if not good or not bad:
        return all_labelled("good" if good else "bad")
    desirable = spec.method.desirable_weight or 1.0
    undesirable = spec.method.undesirable_weight or 1.0
    over = good * desirable / (bad * undesirable)
    if 1 <= over <= MOST_OVER:
        return ""
    name, weight = ("desirable_weight", bad * undesirable / good)
    if over > MOST_OVER:
        name, weight = ("undesirable_weight", good * desirable / bad)
    return (
        f"{good:,} good and {bad:,} bad answers: for both kinds to weigh the same over all, set "
        f"{name}={weight:.3g}"
    )
