"""Arguments of the commands that plan, and the answers they make."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Sequence
from typing import get_args

from engine.theirs import why
from wizard import api
from wizard.answers import Answers, Goal, Policy
from wizard.commands import output
from wizard.problem import Problem, ProblemError


def add_arguments(parser: argparse.ArgumentParser, *, dry_run: bool = True) -> None:
    """Options that say what to train, on what, and how."""
    parser.add_argument("--model", metavar="M", help="a model folder, or a hub id")
    add_hub(parser)
    parser.add_argument(
        "--data",
        metavar="D",
        action="append",
        help="JSON Lines, JSON, CSV, Parquet, Arrow or a folder that `datasets` saved; repeatable: "
        "D#500 takes 500 of its rows, D*2 shows each twice; hf:org/name[:split] is fetched from "
        "Hugging Face, ms:org/name from ModelScope",
    )
    parser.add_argument("--preset", metavar="NAME", help="a shipped or saved preset, or its file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="pairs",
        help="fix one setting (repeatable): method=qlora, learning_rate=1e-4, num_train_epochs=2, "
        "max_length=4096, effective_batch_size=32; `tunewright plan --all` lists all, with values",
    )
    parser.add_argument("--system", metavar="TEXT", help="system text for rows that have none")
    parser.add_argument("--template", metavar="NAME", help="a shipped chat template: chatml")
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="let Python files run that come with the model and that it is loaded by: read them "
        "first; `tunewright model show` names them",
    )
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
    output.add_runs(parser, alias=dry_run)
    add_machine(parser)
    add_history(parser)
    add_policy(parser)
    if dry_run:
        parser.add_argument(
            "--dry-run", action="store_true", help="print the script that would run, and stop"
        )


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Options that say how many machines there are, and what is between them."""
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="machines like this one")
    parser.add_argument(
        "--network", metavar="100Gbps", help="what the network of each machine carries"
    )


def add_hub(parser: argparse.ArgumentParser) -> None:
    """The option without which no hub is asked."""
    parser.add_argument(
        "--hub",
        action="store_true",
        help="ask a hub what a model is that is not known here, and for data named org/name, "
        "which is fetched now",
    )


def add_history(parser: argparse.ArgumentParser) -> None:
    """The option that predicts without what was measured before."""
    parser.add_argument(
        "--no-history",
        action="store_true",
        help="do not correct predictions by finished runs here, nor remember them",
    )


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Options that say what a run does about failures by itself."""
    policy = parser.add_argument_group("when something fails")
    policy.add_argument(
        "--on-oom",
        choices=("next", "stop"),
        help="out of device memory: go on with the next fallback (next), or stop",
    )
    policy.add_argument(
        "--on-hang",
        choices=("restart", "stop"),
        help="ranks that hang: on from the last checkpoint (restart)",
    )
    policy.add_argument(
        "--hang-seconds",
        type=_count,
        metavar="N",
        help="silence, or time without a step, that counts as hung; 0 never does (600)",
    )
    policy.add_argument(
        "--max-restarts", type=_count, metavar="N", help="how often to go on by itself (1)"
    )
    policy.add_argument(
        "--exact",
        action="store_true",
        default=None,
        help="never a fallback that starts the optimizer's state anew",
    )


def add_order(parser: argparse.ArgumentParser) -> None:
    """Options that say when a run begins and what follows it."""
    parser.add_argument("--after", metavar="RUN", help="wait until this run has ended")
    parser.add_argument(
        "--then",
        metavar="COMMAND",
        help="run this when the run is over, however it ended, unless it was only stopped: "
        "'sudo shutdown -h now'",
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise argparse.ArgumentTypeError(f"a whole number is wanted, not {text!r}")
    return int(text)


POLICY = ("on_oom", "on_hang", "hang_seconds", "max_restarts", "exact")


def policy_from(args: argparse.Namespace) -> Policy:
    """What was said about failures, over the defaults."""
    return Policy(**{key: v for key in POLICY if (v := getattr(args, key)) is not None})


def policy_options(args: argparse.Namespace) -> list[str]:
    """What was said about failures, as options of `run.sh`."""
    options = []
    for key in POLICY:
        value = getattr(args, key)
        if value is not None:
            options += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return options


def order_options(args: argparse.Namespace) -> list[str]:
    """--after and --then as options of `run.sh`; the last takes all that follows it.

    Raises ProblemError for a run that is not there, or a command with an open quote.
    """
    from wizard.runner.folder import find_run

    options = []
    if args.after is not None:
        options += ["--after", str(find_run(api.runs_root(args.output), args.after))]
    if args.then is not None:
        try:
            words = shlex.split(args.then)
        except ValueError as error:
            raise ProblemError(
                Problem(
                    what=f"no command line: {why(error)}",
                    where=f"--then {args.then!r}",
                    exit_code=2,
                )
            ) from None
        if not words:
            raise ProblemError(Problem(what="--then is empty", fix="give a command", exit_code=2))
        options += ["--then", *words]
    return options


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
            said = api.parse_settings([f"{option}={getattr(args, option)}"])[option]
            settings[option] = _one_of(option, said, settings.get(option))
    if args.trust_remote_code:
        settings["trust_remote_code"] = True
    answers = Answers(
        model=_one_of("model", args.model, settings.pop("model", None)),
        data=_one_of("data", _joined(args.data), settings.pop("data", None)),
        output=args.output,
        run_name=args.name,
        devices=indices(args.devices),
        price_per_hour=_price(args.price),
        settings=settings,
        policy=policy_from(args),
        history=not args.no_history,
    )
    if args.preset:
        from wizard.presets import load

        answers = api.with_preset(answers, load(args.preset))
    if args.goal:
        import dataclasses

        answers = dataclasses.replace(answers, goal=args.goal)
    _needs(answers)
    return api.absolute(answers, hub=args.hub)


def _joined(names: Sequence[str] | None) -> str | None:
    from engine.rows.sources import joined

    return None if names is None else joined(names)


def _not_empty(args: argparse.Namespace) -> None:
    for option in ("name", "output", "preset", "machine"):
        text = getattr(args, option)
        option = "runs" if option == "output" else option
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


def indices(text: str | None) -> tuple[int, ...] | None:
    """The value of --devices.

    Raises ProblemError.
    """
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
