"""`tunewright model`: what a model is, whether it fits here, and which there are."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wizard import api
from wizard.answers import Answers
from wizard.commands import output
from wizard.commands.choosing import add_machine
from wizard.commands.terminal import print_json, say
from wizard.facts import KnownModel, Model
from wizard.language import foreign, joined, mark, said, said_value
from wizard.modelcard import describe, nominal_answers, nominal_rows
from wizard.problem import ProblemError
from wizard.wording import gib, parameters

if TYPE_CHECKING:
    from wizard.plan import Plan

HELP = "show a model and whether it fits here, or search those that are known"
DESCRIPTION = "Folders, caches and the shipped table; the hub is asked with --hub only."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="shape, size, licence, and how it fits")
    show.add_argument("name", metavar="MODEL", help="a folder or a hub id")
    show.add_argument("--hub", action="store_true", help="ask the hub; nobody is asked otherwise")
    add_machine(show)
    output.add_format(show)
    search = actions.add_parser("search", help="models whose name holds these words")
    search.add_argument("words", nargs="*", metavar="WORD", help="as in: qwen3 8b")
    output.add_format(search)


def run(args: argparse.Namespace) -> int:
    """Dispatch on the action."""
    return _show(args) if args.action == "show" else _search(args)


def _show(args: argparse.Namespace) -> int:
    from wizard.probe.model import read_model
    from wizard.probe.models import kind_of

    if args.hub:
        from wizard.probe.hub import read_hub_model

        model = read_hub_model(args.name, os.environ)
    else:
        model = read_model(api.absolute(Answers(model=args.name)).model or args.name)
    kind = kind_of(model.name)
    plan = _best_plan(model, args.machine)
    if args.json:
        fit = None if plan is None else _fit_json(plan)
        print_json({"schema": 1, "model": dataclasses.asdict(model), "kind": kind, "fit": fit})
        return 0
    for label, value in describe(model, kind):
        say(f"{said(label)}{mark(': ')}{foreign(value) if label == 'name' else said_value(value)}")
    if plan is not None:
        where = foreign(args.machine) if args.machine else "this machine"
        say(f"on {where}, with rows of 2,048 tokens: {plan.title}: {_fit_word(plan)}")
    return 0


def _search(args: argparse.Namespace) -> int:
    from wizard.probe.models import known_models, search

    found = search(known_models(os.environ, Path.cwd()), " ".join(args.words))
    if args.json:
        rows = [dataclasses.asdict(one) for one in found]
        print_json({"schema": 1, "models": rows})
        return 0
    if not found:
        words = foreign(" ".join(args.words))
        say(f"no known model matches {words}; a hub id can be given all the same")
        return 1
    for one in found:
        say(_line(one))
    return 0


def _line(one: KnownModel) -> str:
    licence = foreign(one.licence) if one.licence else "licence unknown"
    told = [parameters(one.parameters), licence, one.kind or ""]
    told += ["gated" if one.gated else "", "on this machine" if one.on_disk else ""]
    return foreign(one.name + mark(": ") + joined(said_value(part) for part in told if part))


def _best_plan(model: Model, machine: str | None) -> Plan | None:
    """The best plan for rows of a usual length; None for a model that cannot be planned."""

    facts = api.facts_for(None, None, machine=machine)
    usual = dataclasses.replace(facts, model=model, dataset=nominal_rows())
    try:
        return api.make_plans(usual, nominal_answers(Answers(), model))[0]
    except ProblemError:
        return None


def _fit_json(plan: Plan) -> dict[str, Any]:
    return {
        "plan": plan.title,
        "fits": plan.fits,
        "device_bytes": plan.memory.device_bytes,
        "device_budget_bytes": plan.memory.device_budget_bytes,
    }


def _fit_word(plan: Plan) -> str:
    said = "fits" if plan.fits else "does not fit"
    return f"{said}, {gib(plan.memory.device_bytes)} of {gib(plan.memory.device_budget_bytes)}"
