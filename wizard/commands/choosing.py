"""Arguments of the commands that plan, and the answers they make."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import get_args

from wizard import api
from wizard.answers import Answers, Goal
from wizard.problem import Problem, ProblemError


def add_arguments(parser: argparse.ArgumentParser, *, dry_run: bool = True) -> None:
    """Options that say what to train, on what, and how."""
    parser.add_argument("--model", metavar="M", help="a model folder, or a hub id")
    parser.add_argument(
        "--data",
        metavar="D",
        action="append",
        help="JSON Lines, JSON, CSV, Parquet, Arrow or a folder that `datasets` saved; repeatable: "
        "D#500 takes 500 of its rows, D*2 shows each twice",
    )
    parser.add_argument("--preset", metavar="NAME", help="a shipped or saved preset, or its file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="pairs",
        help="fix one setting (repeatable): method=qlora, learning_rate=1e-4, num_train_epochs=2, "
        "max_length=4096, effective_batch_size=32; `tunewright plan` lists them all, with values",
    )
    parser.add_argument("--system", metavar="TEXT", help="system text for rows that have none")
    parser.add_argument("--template", metavar="NAME", help="a shipped chat template: chatml")
    parser.add_argument(
        "--goal", choices=get_args(Goal), default=None, help="what a better plan is (quality)"
    )
    parser.add_argument(
        "--price",
        metavar="2.49/h",
        help="what one device costs in an hour: plans then say what a run costs, in that currency",
    )
    parser.add_argument("--devices", metavar="0,1", help="indices of the devices to use")
    parser.add_argument("--name", metavar="NAME", help="name of the run")
    parser.add_argument("--output", metavar="DIR", help="folder that holds the run's folder")
    add_machine(parser)
    if dry_run:
        parser.add_argument(
            "--dry-run", action="store_true", help="print the script that would run, and stop"
        )


def add_machine(parser: argparse.ArgumentParser) -> None:
    """The option that plans for a machine that is not this one."""
    parser.add_argument(
        "--machine",
        metavar="M",
        help="not this machine but a saved file, a shipped one such as 8xH100-SXM, "
        "or count and name: '4x NVIDIA L40S'",
    )


def answers_from(args: argparse.Namespace) -> Answers:
    """The answers given on the command line, with the preset's below them.

    Raises ProblemError naming the option that cannot be used.
    """
    _not_empty(args)
    if args.name is not None:
        from wizard.runner.folder import check_name

        check_name(args.name)
    settings = api.parse_settings(args.pairs)
    for option in ("system", "template"):
        if getattr(args, option) is not None:
            settings.update(api.parse_settings([f"{option}={getattr(args, option)}"]))
    answers = Answers(
        model=_one_of("model", args.model, settings.pop("model", None)),
        data=_one_of("data", _joined(args.data), settings.pop("data", None)),
        output=args.output,
        run_name=args.name,
        devices=_indices(args.devices),
        price_per_hour=_price(args.price),
        settings=settings,
    )
    if args.preset:
        from wizard.presets import load

        answers = api.with_preset(answers, load(args.preset))
    if args.goal:
        import dataclasses

        answers = dataclasses.replace(answers, goal=args.goal)
    _needs(answers)
    return api.absolute(answers)


def _joined(names: Sequence[str] | None) -> str | None:
    from engine.rows.sources import joined

    return None if names is None else joined(names)


def _not_empty(args: argparse.Namespace) -> None:
    for option in ("name", "output", "preset", "machine"):
        text = getattr(args, option)
        if text is not None and not text.strip():
            fix = f"give one, or leave out --{option}"
            raise ProblemError(Problem(what=f"--{option} is empty", fix=fix, exit_code=2))


def _one_of(name: str, option: str | None, setting: str | None) -> str | None:
    """What the option or the setting of the same name says, when they do not contradict."""
    if option is not None and setting is not None and option != setting:
        raise ProblemError(
            Problem(
                what=f"--{name} {option} and --set {name}={setting} contradict each other",
                fix="give one of them",
                exit_code=2,
            )
        )
    return option if option is not None else setting


def _needs(answers: Answers) -> None:
    missing = [
        option
        for option, value in (("--model", answers.model), ("--data", answers.data))
        if value is None
    ]
    if missing:
        raise ProblemError(Problem(what=f"{' and '.join(missing)} must be given", exit_code=2))


def _price(text: str | None) -> float | None:
    """A price per device and hour, as `2.49` or `2.49/h`."""
    if text is None:
        return None
    try:
        price = float(text.strip().removesuffix("/h").strip())
    except ValueError:
        price = math.nan
    if not 0 <= price < math.inf:
        what = f"--price takes a price for an hour of one device, such as 2.49/h, not {text!r}"
        raise ProblemError(Problem(what=what, fix="write it without a currency", exit_code=2))
    return price


def _indices(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    usable = all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts)
    if not usable or len(set(map(int, parts))) < len(parts):
        raise ProblemError(
            Problem(
                what=f"--devices takes indices such as 0,1, each once, not {text!r}",
                fix="`tunewright probe` lists them",
                exit_code=2,
            )
        )
    return tuple(map(int, parts))
