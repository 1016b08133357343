"""The wizard as questions: the same walk, the same files, an answer a line."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.screens import machines, values
from tests.screens.stage import RUN, FollowedRun, World
from tests.tiers import spread
from wizard.answers import Answers
from wizard.commands.planned import detail
from wizard.language import said
from wizard.planner import plans as real_plans
from wizard.problem import ProblemError
from wizard.prompts.starting import Ending
from wizard.prompts.talk import Talk
from wizard.prompts.walking import ask_all


class Script:
    """Answers one after the other, then the end of the input; all that was said."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.left = list(answers)
        self.said: list[str] = []

    def read(self, prompt: str) -> str:
        self.said.append(prompt)
        if not self.left:
            raise EOFError
        return self.left.pop(0)

    @property
    def text(self) -> str:
        return "\n".join(self.said)


def walk(answers: Sequence[str], world: World, **verbs: Any) -> tuple[Ending | None, Script]:
    script = Script(answers)
    talk = Talk(read=script.read, say=lambda text: script.said.append(said(text)))
    return ask_all(world.verbs(**{"plans": real_plans, **verbs}), talk, detail), script


def world(**changes: Any) -> World:
    run = FollowedRun(values.state_after(values.events()))
    given = {"run": run, "known": values.KNOWN, "nearby": ("train.jsonl",)}
    return World(**{**given, **changes})


def test_enter_alone_leads_to_a_started_run() -> None:
    lived = world()
    ending, script = walk([""] * 9, lived)
    assert ending == Ending(run=RUN, then="watch")
    assert lived.launched == [(RUN, False)]
    assert script.left == []
    assert "Step 4 of 8. Plan" in script.text
    assert lived.kept is None


def test_a_model_and_data_of_the_command_line_stand_there_and_no_start_is_asked() -> None:
    script, lived = Script([""] * 3), world()
    lived.kept = Answers(model="an older one")
    talk = Talk(read=script.read, say=lambda text: script.said.append(said(text)))
    given = Answers(model="Qwen/Qwen3-8B", data="chats.jsonl")
    ask_all(lived.verbs(plans=real_plans), talk, detail, given)
    assert "an older one" not in script.text
    assert "[Qwen/Qwen3-8B]" in script.text


@pytest.mark.parametrize("name", spread(machines.RECORDED, every=4))
def test_every_machine_is_told_and_planned_for(name: str) -> None:
    facts = machines.facts(name)
    fixed = ["device_kind=cpu"] if facts.devices[0].kind in ("xpu", "mps") else []
    _, script = walk([*[""] * 5, *fixed], world(), probe=lambda say: facts)
    assert all(device.name in script.text for device in facts.devices)
    assert "plans fit; the goal is quality" in script.text


def test_the_same_answers_give_the_same_files_as_the_pages_and_the_command() -> None:
    told: list[tuple[Any, Answers]] = []

    def preview(chosen: Any, facts: Any, name: str) -> dict[str, str]:
        told.append((chosen, chosen.answers))
        return dict(values.FILES)

    walk([*[""] * 6, "max_length=1024", "", "", ""], world(), preview=preview)
    ((chosen, answers),) = told
    facts = replace(values.MACHINE, model=values.MODEL, dataset=values.DATASET)
    asked = Answers(
        model=answers.model, data=answers.data, settings={"max_length": 1024}, run_name=RUN.name
    )
    facts = replace(
        facts,
        model=replace(values.MODEL, name=str(answers.model)),
        dataset=replace(values.DATASET, path=str(answers.data)),
    )
    assert chosen.plan == real_plans(facts, asked)[0]
    assert answers == asked


def test_b_goes_back_and_q_keeps_what_was_answered() -> None:
    lived = world()
    ending, script = walk(["", "", "1", "b", "q"], lived)
    assert ending is None
    assert script.text.count("Step 2 of 8") == 2
    assert lived.kept is not None
    assert lived.kept.model is not None


def test_a_question_is_explained_and_what_is_no_answer_is_said() -> None:
    _, script = walk(["", "?", "", "7", "1", "?"], world())
    assert "A model is a folder, or a hub id" in script.text
    assert "There is no '7' here." in script.text
    assert "A file of rows" in script.text


def test_words_look_for_a_model_and_a_number_takes_it() -> None:
    _, script = walk(["", "nowhere", "qwen3", "1"], world(), read_model=_refuses("qwen3"))
    assert "no such model" in script.text
    assert "1. " in script.text


def test_the_hub_is_asked_only_when_the_user_says_so() -> None:
    asked: list[str] = []

    def hub(name: str) -> Any:
        asked.append(name)
        return replace(values.MODEL, name=name, source="the hub")

    answers = ["", "some/model", "1", "some/model", "2", "1"]
    _, script = walk(answers, world(), read_model=_refuses("some/model"), read_hub_model=hub)
    assert asked == ["some/model"]
    assert script.text.index("ask the hub about some/model") < script.text.index("Asking the hub")


def _refuses(*names: str) -> Callable[[str], Any]:
    from wizard.problem import Problem

    def read(name: str) -> Any:
        if name in names or name == "nowhere":
            raise ProblemError(Problem(what="no such model", where=name))
        return replace(values.MODEL, name=name)

    return read


def test_many_bad_rows_are_left_out_only_when_told_to() -> None:
    bad = replace(values.DATASET, rows=50, dropped_rows=50)
    lived = world(dataset=bad)
    ending, script = walk(["", "", "1", "", "", "q"], lived)
    assert ending is None
    assert "go on without the 50 rows that cannot be used" in script.text
    assert "Step 4" not in script.text
    lived = world(dataset=bad)
    walk(["", "", "1", "", "1", "q"], lived)
    assert lived.kept is not None
    assert lived.kept.settings["max_dropped_percent"] == 50.0


def test_what_the_model_sees_has_its_learnt_part_between_marks() -> None:
    here = world(model=replace(values.MODEL, path="/models/one"))
    _, script = walk(["", "", "1", "", "w", "q"], here)
    assert "is learnt, the rest is context" in script.text
    assert any(line.startswith("#") and line.endswith("#") for line in script.said)


def test_a_plan_is_explained_and_another_goal_ranks_anew() -> None:
    _, script = walk([*[""] * 5, "w", "g", "3", "q"], world())
    assert "Predicted memory of one rank" in script.text
    assert "the goal is least-memory" in script.text


def test_a_plan_that_does_not_fit_is_refused() -> None:
    at = next(n for n, one in enumerate(values.PLANS, start=1) if not one.fits)
    answers = [*[""] * 5, str(at), "q"]
    _, script = walk(answers, world(), plans=lambda facts, answers: values.PLANS)
    assert "does not fit: +" in script.text
    assert "Step 5" not in script.text


def test_a_setting_is_fixed_by_any_of_its_names_and_nonsense_is_refused() -> None:
    answers = [*[""] * 6, "cutoff_len=512", "learning_rate=fast", "max_length", "no_such=1", "q"]
    _, script = walk(answers, world())
    assert "max_length = 512" in script.text
    assert "learning_rate = 'fast'" in script.text
    assert "no_such" in script.text


def test_a_run_for_another_machine_is_only_written() -> None:
    facts = replace(values.MACHINE, machine="8xH100-SXM")
    lived = world()
    ending, script = walk([""] * 9, lived, probe=lambda say: facts)
    assert ending == Ending(run=RUN, then="written")
    assert lived.launched == []
    assert "start it" not in script.text


def test_a_smoke_test_is_told_and_the_run_started_after_it() -> None:
    lived = world(run=FollowedRun(values.finished(values.state_after(values.events()))))
    ending, script = walk([*[""] * 8, "3", "2"], lived)
    assert ending == Ending(run=RUN, then="running")
    assert lived.launched == [(RUN, True), (RUN, False)]
    assert "The smoke test passed" in script.text
    assert len(lived.written) == 1


def test_foreign_text_is_one_line_and_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    from wizard.commands.terminal import say

    talk = Talk(read=lambda prompt: "", say=say)
    talk.say("a\x1b[31mred\nline")
    assert capsys.readouterr().out == "a␛[31mred␊line\n"


@pytest.mark.engine
@pytest.mark.xdist_group("loop")
def test_accessible_asks_in_a_real_terminal_without_one_escape() -> None:
    """A terminal that says ACCESSIBLE gets plain lines, and `q` leaves with 0."""
    parent, child = pty.openpty()
    environment = {**os.environ, "ACCESSIBLE": "1", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "wizard"]
    with subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment
    ) as running:
        os.close(child)
        seen = b""
        while b"Enter goes on" not in seen and b"Which devices" not in seen:
            seen += os.read(parent, 4096)
        os.write(parent, b"q\n")
        assert running.wait(timeout=60) == 0
    assert b"\x1b" not in seen
    assert b"Step 1 of 8" in seen
    os.close(parent)
