"""Steps 4 and 5: which way to train, and which settings to fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wizard import wording
from wizard.answers import Answers
from wizard.language import foreign
from wizard.problem import Problem, ProblemError
from wizard.prompts.talk import Talk
from wizard.screens.planned import GOALS, refusal
from wizard.screens.verbs import Verbs
from wizard.steps import Chosen, Walk, again

if TYPE_CHECKING:
    from wizard.plan import Plan

PLAN_HELP = (
    "Every way to train here, the recommended one first; memory is predicted, per rank. A plan "
    "that does not fit cannot be taken."
)
TUNE_HELP = (
    "A setting is fixed with name=value, under its name at Hugging Face, ms-swift, LLaMA-Factory "
    "or axolotl; name= gives it back to the planner; a name alone tells about it."
)


def plan(walk: Walk, verbs: Verbs, talk: Talk, detail: Callable[[Plan], Sequence[str]]) -> Chosen:
    """The way to train; `detail` gives the lines that explain one."""
    assert walk.facts is not None, "plans are made after the machine was probed"
    answers = walk.answers
    while True:
        try:
            found = verbs.plans(walk.facts, answers)
        except ProblemError as error:
            talk.refuse(error.problem)
            answers = _fixed(answers, talk)
            continue
        fitting = sum(one.fits for one in found)
        talk.say(f"{fitting} of {len(found)} plans fit; the goal is {answers.goal}.")
        keys = {"w": "for details of the first, w2 of the second", "g": "for another goal"}
        keys |= {f"w{number}": "" for number in range(1, len(found) + 1)}
        why = f"Why 1: {'; '.join(found[0].why)}." if found[0].why else ""
        choice = talk.choose(list(map(sentence, found)), keys, after=why, help_text=PLAN_HELP)
        if choice == "g":
            answers = replace(answers, goal=GOALS[int(talk.choose(GOALS)) - 1])
        elif choice.startswith("w"):
            for line in detail(found[int(choice[1:] or "1") - 1]):
                talk.say(line)
        elif found[int(choice) - 1].fits:
            return Chosen(answers=answers, plan=found[int(choice) - 1], others=found)
        else:
            talk.refuse(refusal(found[int(choice) - 1]))


def _fixed(answers: Answers, talk: Talk) -> Answers:
    """The answers with a setting that the user fixes, where none of them can be planned."""
    while True:
        name, given, text = talk.ask(
            "Fix a setting, name=value, or b to go back", help_text=TUNE_HELP
        ).partition("=")
        try:
            if given:
                return _set(answers, name.strip(), text.strip())
        except ProblemError as error:
            talk.refuse(error.problem)


def sentence(one: Plan) -> str:
    """A plan as sentences that can be read aloud."""
    from wizard.widgets.memory import fit_word, margin
    from wizard.widgets.plans import eta_seconds

    memory = one.memory
    need = wording.gib_of(memory.device_bytes, memory.device_budget_bytes)
    parts = [f"{one.title}. Fits: {fit_word(one)}. Memory {need} per rank."]
    if not one.fits:
        ways = f" Would fit: {'; or '.join(one.would_fit)}." if one.would_fit else ""
        lacks = refusal(one).what if memory.fits else margin(one)
        return f"{parts[0]} {lacks}.{ways}"
    if one.tokens_per_second is not None:
        parts.append(f"{wording.count(one.tokens_per_second)} tokens per second.")
    if (left := eta_seconds(one)) is not None:
        parts.append(f"About {wording.duration(left)}.")
    return " ".join(parts)


def tune(walk: Walk, verbs: Verbs, talk: Talk) -> Chosen:
    """The plan with the settings that the user fixes."""
    assert walk.facts is not None, "a plan is tuned after the machine was probed"
    assert walk.plan is not None, "a plan is picked before it is tuned"
    now = Chosen(answers=walk.answers, plan=walk.plan, others=walk.others)
    while True:
        _tell_settings(now.plan, talk)
        typed = talk.ask("Fix a setting, name=value; Enter goes on", help_text=TUNE_HELP)
        if not typed:
            break
        name, given, text = (part.strip() for part in typed.partition("="))
        if not given:
            _tell_about(name, now.plan, talk)
            continue
        try:
            now = _with(now, name, text, walk, verbs)
        except ProblemError as error:
            talk.refuse(error.problem)
            continue
        talk.say(f"{sentence(now.plan)} Before: {sentence(walk.plan)}")
    name = talk.ask("Name of the run", verbs.name_for(now.plan, now.answers))
    return replace(now, answers=replace(now.answers, run_name=name))


def _tell_settings(one: Plan, talk: Talk) -> None:
    """The settings that matter, one on a line."""
    training, method = one.spec.training, one.spec.method
    rank = [("lora_rank", method.lora_rank)] if method.method != "full" else []
    shown = [
        ("effective_batch_size", training.effective_batch_size),
        ("max_length", one.spec.data.max_length),
        ("num_train_epochs", training.num_train_epochs),
        ("learning_rate", training.learning_rate),
        *rank,
        ("save_steps", training.save_steps),
        ("seed", training.seed),
    ]
    for name, value in shown:
        talk.say(f"{name} = {wording.setting(value)}: {one.reasons.get(name, 'as usual')}")


def _tell_about(name: str, one: Plan, talk: Talk) -> None:
    from engine.settings import setting_name
    from engine.spec import SpecError
    from wizard.settings import setting
    from wizard.widgets.about import about

    try:
        known = setting(setting_name(name))
    except SpecError as error:
        talk.refuse(Problem(what=str(error)))
        return
    decided = {decision.setting: decision for decision in one.decisions}
    for line in about(known, decided.get(known.name)).plain.split("\n"):
        talk.say(foreign(line))


def _with(now: Chosen, name: str, text: str, walk: Walk, verbs: Verbs) -> Chosen:
    """The same way to train with a setting fixed, or given back where the text is empty.

    Raises ProblemError for a value that is none, or with which the plan does not exist or fit.
    """
    assert walk.facts is not None
    assert walk.plan is not None
    answers = _set(now.answers, name, text)
    found = verbs.plans(walk.facts, answers)
    changed = again(walk.plan, found)
    if changed is None:
        what = f"with {name}={text} this way to train is not possible"
        raise ProblemError(Problem(what=what, fix="fix another value, or b for another plan"))
    if not changed.fits:
        raise ProblemError(refusal(changed))
    return Chosen(answers=answers, plan=changed, others=found)


def _set(answers: Answers, name: str, text: str) -> Answers:
    """The answers with a setting fixed, or given back where the text is empty.

    Raises ProblemError for a setting or a value that is none.
    """
    from engine.settings import parse_setting, setting_name
    from engine.spec import SpecError

    settings = dict(answers.settings)
    try:
        if text:
            known, value = parse_setting(name, text)
            settings[known] = value
        else:
            settings.pop(setting_name(name), None)
    except SpecError as error:
        raise ProblemError(Problem(what=str(error))) from None
    return replace(answers, settings=settings)
