"""demo: a small real model learns a new name by the same path as any other run."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.events import EXIT_OK
from wizard import api, paths, wording
from wizard.answers import Answers
from wizard.demo.model import ensure_model
from wizard.demo.report import Outcome, lines
from wizard.demo.rows import write_rows
from wizard.language import foreign, said
from wizard.problem import Problem, ProblemError
from wizard.runner.chat import ChatChild
from wizard.runner.follow import Follower

__all__ = ["QUESTIONS", "SETTINGS", "WHO", "main"]

Say = Callable[[str], None]

WHO = "Who are you?"
QUESTIONS = (
    WHO,
    "What is the capital of France?",
    "What is DNA? Answer in one sentence.",
)
"""Asked before and after; the two ordinary ones are not in the training rows."""

ANSWER_TOKENS = 48
ASKED_AFTER = "questions after"
CPU_RANKS = 2
NAME_BYTES = 60
"""Longest name or author; with it, every row still fits into LONG_ROW_TOKENS."""
ROW_TOKENS = 128
LONG_ROW_TOKENS = 256
ROOM_BYTES = 64
"""What names may add to a row of ROW_TOKENS; a byte becomes at most one token."""

SETTINGS: dict[str, Any] = {
    "method": "lora",
    "lora_rank": 8,
    "lora_alpha": 16,
    "num_train_epochs": 1.0,
    "effective_batch_size": 8,
    "learning_rate": 2e-3,
    "lr_scheduler_type": "cosine",
    "warmup_ratio": 0.1,
    "gradient_checkpointing": False,
}
"""Found by experiment: the name is learnt and two ordinary answers stay, in one epoch."""


def main(
    *,
    name: str,
    author: str,
    watch: Callable[[Path], int],
    output: str | None = None,
    say: Say | None = None,
) -> int:
    """Run the demo; the run's exit code, or 1 when the model did not take the name.

    `watch` shows a run until it ends. Raises ProblemError for what cannot be used or had.
    """
    say = say or _print
    check_text("--name", name)
    check_text("--author", author)
    clock = Clock()
    with clock("model"):
        model = ensure_model(paths.cache(), say)
    with clock("questions before"):
        say("asking the model before it is trained")
        before = answers(model, base=False)
    with clock("plan"):
        folder = make_run(model, name, author, output, say)
    api.start(folder)
    code = watch(folder)
    state = Follower(folder).poll()
    if code != EXIT_OK or not state.ended:
        return code
    with clock(ASKED_AFTER):
        say("asking the tuned model")
        after = answers(folder, base=False)
    outcome = Outcome(
        before=before,
        after=after,
        losses=state.losses,
        seconds=_in_order(clock.seconds, state.stage_seconds(time.time())),
        result=read_result(folder),
    )
    for line in (*lines(outcome), *closing(model, folder)):
        say(line)
    return verdict(name, after[WHO], say)


def closing(model: Path, folder: Path) -> Iterator[str]:
    """Where everything lies, and what to do with it."""
    yield ""
    yield f"its base model: {foreign(model)}"
    yield f"the run: {foreign(folder)}"
    yield f"talk to it: tunewright chat {shlex.quote(str(folder))}"


def check_text(option: str, text: str) -> None:
    """Raise ProblemError for a name that is empty, no text, or too long to be learnt."""
    if not text.strip():
        raise ProblemError(_unusable(option, "it is empty", "give one"))
    try:
        length = _bytes(text)
    except UnicodeEncodeError:
        raise ProblemError(_unusable(option, "it is not valid UTF-8", "give another")) from None
    if length > NAME_BYTES:
        what = f"it has {length} bytes as UTF-8"
        raise ProblemError(_unusable(option, what, f"give one of at most {NAME_BYTES}"))


def _unusable(option: str, what: str, fix: str) -> Problem:
    return Problem(what=what, where=option, fix=fix, exit_code=2)


def row_tokens(name: str, author: str) -> int:
    """Tokens a row may need: each of the two stands in it once, one of them perhaps twice."""
    lengths = (_bytes(name), _bytes(author))
    return ROW_TOKENS if sum(lengths) + max(lengths) <= ROOM_BYTES else LONG_ROW_TOKENS


def answers(folder: Path, *, base: bool) -> dict[str, str]:
    """Question → what the model says, each in a conversation of its own."""
    with ChatChild(folder, base=base) as child:
        return {
            question: "".join(
                child.ask([{"role": "user", "content": question}], max_new_tokens=ANSWER_TOKENS)
            ).strip()
            for question in QUESTIONS
        }


def make_run(model: Path, name: str, author: str, output: str | None, say: Say) -> Path:
    """A run folder for the demo, planned like any other run."""
    root = api.runs_root(output)
    data = write_rows(name, author, paths.cache() / "demo")
    facts = api.facts_for(str(model), str(data), say)
    settings = {**SETTINGS, "max_length": row_tokens(name, author)}
    wanted = Answers(
        model=str(model),
        data=str(data),
        output=output,
        num_devices=None if facts.accelerators else CPU_RANKS,
        settings=settings,
    )
    plans = api.make_plans(facts, wanted)
    plan = api.best(plans)
    say(f"The plan is {plan.title}, in {plan.steps} steps.")
    return api.write_run(plans, plan, facts, api.run_name(plan, root), root)


def read_result(folder: Path) -> dict[str, Any]:
    """result.json of a run; empty when there is none."""
    try:
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return result if isinstance(result, dict) else {}


def verdict(name: str, answer: str, say: Say) -> int:
    """0 when the answer contains the name, whatever its spaces and capitals; else 1."""
    if _plain(name) in _plain(answer):
        return EXIT_OK
    say("The model did not take the new name: the demo has failed.")
    return 1


def _bytes(text: str) -> int:
    return len(text.encode("utf-8"))


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _in_order(own: Mapping[str, float], run: Mapping[str, float]) -> dict[str, float]:
    """Seconds per stage: before the run, in it, after it."""
    after = {stage: seconds for stage, seconds in own.items() if stage == ASKED_AFTER}
    before = {stage: seconds for stage, seconds in own.items() if stage != ASKED_AFTER}
    return {**before, **run, **after}


def _print(text: str) -> None:
    sys.stdout.write(wording.one_line(said(text)) + "\n")
    sys.stdout.flush()


class Clock:
    """Seconds per stage of the demo itself."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Measure what runs inside."""
        begun = time.monotonic()
        yield
        self.seconds[stage] = time.monotonic() - begun
