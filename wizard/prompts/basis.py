"""Steps 1 to 3: which devices, which model, which data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from wizard import modelcard, overview, wording
from wizard.facts import Dataset, Device, Facts, KnownModel, Model
from wizard.language import foreign, joined, mark, said, said_value
from wizard.problem import Problem, ProblemError
from wizard.prompts.talk import Talk
from wizard.screens.verbs import Verbs
from wizard.steps import Data, Machine, Walk

LISTED = 9
"""Models and files that are offered by number."""
MODEL_HELP = (
    "A model is a folder, or a hub id such as Qwen/Qwen3-8B. Words look for one in what is on this "
    "machine and in the shipped table; nothing is fetched before the run starts."
)
DATA_HELP = (
    "A file of rows: JSON Lines, JSON, CSV, Parquet, Arrow or text; several with commas. Rows have "
    "messages, instruction and output, prompt and completion, or text. Your file is not changed."
)


def hardware(walk: Walk, verbs: Verbs, talk: Talk) -> Machine:
    """What this machine can train with, and which of its devices a run may use.

    Raises ProblemError when the machine cannot be looked at.
    """
    talk.say("Looking at the machine.")
    facts = walk.facts or verbs.probe(lambda known: None)
    if facts.machine:
        talk.say(f"Machine {foreign(facts.machine)}, not this one.")
    for line in _devices_told(facts.devices):
        talk.say(line)
    for line in overview.island_lines(facts):
        talk.say(f"Devices {line}.")
    for problem in facts.problems:
        talk.refuse(problem)
    if len(facts.accelerators) < 2:
        talk.ask("Enter goes on", help_text="There is nothing to choose on this machine.")
        return Machine(facts=facts)
    return Machine(facts=facts, devices=_devices(facts, talk))


def _devices_told(devices: Sequence[Device]) -> list[str]:
    """A line for devices of which the same is to be said."""
    alike: dict[tuple[str, str], list[int]] = {}
    for device in devices:
        free, total = device.memory_free_bytes, device.memory_total_bytes
        notes = "".join(f" Note: {note}." for note in overview.notes(device))
        said = f"{device.name}, {wording.gib(free)} free of {wording.gib(total)}.{notes}"
        alike.setdefault((device.kind, said), []).append(device.index)
    return [f"{kind} {overview.numbers(them)}: {said}" for (kind, said), them in alike.items()]


def _devices(facts: Facts, talk: Talk) -> tuple[int, ...] | None:
    """Indices as typed; None leaves it to the planner."""
    there = {device.index for device in facts.accelerators}
    told = "Devices are named by their index. Unless you say otherwise, the largest group of a kind"
    while True:
        text = talk.ask(
            "Which devices may a run use, such as 0,1", "all", help_text=f"{told} is used."
        )
        if text == "all":
            return None
        parts = [part.strip() for part in text.split(",")]
        if all(part.isascii() and part.isdecimal() and int(part) in there for part in parts):
            return tuple(dict.fromkeys(map(int, parts)))
        talk.say(f"There are the devices {overview.numbers(there)}, not {foreign(text)}.")


def model(walk: Walk, verbs: Verbs, talk: Talk) -> Model:
    """The model that is to learn."""
    known = verbs.known_models()
    offered = [one for one in known if one.on_disk][:LISTED]
    default = walk.answers.model or verbs.suggested_model
    while True:
        for number, one in enumerate(offered, start=1):
            talk.say(f"{number}. {_known(one)}")
        number_too = ", its number" if offered else ""
        typed = talk.ask(
            f"Which model: a folder, a hub id{number_too}, or words to look for one",
            default or ("1" if offered else ""),
            help_text=MODEL_HELP,
        )
        if not typed:
            talk.say("Nothing was named.")
            continue
        name = _numbered(typed, [one.name for one in offered])
        found = _read_model(name, verbs, talk)
        if found is None:
            from wizard.screens.model import matching

            offered = list(matching(known, name))[:LISTED]
            continue
        for label, value in modelcard.describe(found):
            talk.say(f"{said(label)}{mark(': ')}{said_value(value)}")
        wrong = modelcard.untrainable(found)
        if wrong is not None:
            talk.refuse(wrong)
        elif talk.choose(["take this model", "look for another one"]) == "1":
            return found


def _known(one: KnownModel) -> str:
    here = "on this machine" if one.on_disk else ""
    parts = [foreign(one.name), wording.parameters(one.parameters), here]
    return ", ".join(part for part in parts if part)


def _numbered(typed: str, names: list[str]) -> str:
    usable = typed.isascii() and typed.isdecimal() and 1 <= int(typed) <= len(names)
    return names[int(typed) - 1] if usable else typed


def _read_model(name: str, verbs: Verbs, talk: Talk) -> Model | None:
    """The model's facts; the hub is only asked when the user says so."""
    try:
        return verbs.read_model(name)
    except ProblemError as error:
        talk.refuse(error.problem)
    if "/" not in name or name.startswith((".", "/", "~")):
        return None
    if talk.choose(["name another model", f"ask the hub about {name}"]) == "1":
        return None
    talk.say("Asking the hub.")
    try:
        return verbs.read_hub_model(name)
    except ProblemError as error:
        talk.refuse(error.problem)
        return None


def data(walk: Walk, verbs: Verbs, talk: Talk) -> Data:
    """The rows that are learnt, and what was chosen about them."""
    near = verbs.data_nearby()[:LISTED]
    settings = dict(walk.answers.fixed)
    chosen: dict[str, Any] = {}
    while True:
        for number, name in enumerate(near, start=1):
            talk.say(f"{number}. {foreign(name)}")
        default = walk.answers.data or ("1" if near else "")
        path = _numbered(talk.ask("Which data file", default, help_text=DATA_HELP), list(near))
        if not path:
            talk.say("No file was named.")
            continue
        talk.say(f"Reading {foreign(path)}.")
        try:
            found = verbs.read_dataset(path, settings)
        except ProblemError as error:
            talk.refuse(error.problem)
            continue
        _tell_data(found, walk, talk)
        if _taken(found, settings, chosen, walk, verbs, talk):
            return Data(dataset=found, settings=chosen)


def _tell_data(found: Dataset, walk: Walk, talk: Talk) -> None:
    from wizard.screens.telling import estimated, summary

    model_of_it = walk.facts.model if walk.facts else None
    parts = [part for part in said(summary(found, model_of_it)).split("   ") if part]
    told = joined([*parts, said(estimated(found))])
    talk.say(foreign(told + mark(".")))
    for problem in found.problems:
        talk.refuse(problem)


def _taken(
    found: Dataset,
    settings: dict[str, Any],
    chosen: dict[str, Any],
    walk: Walk,
    verbs: Verbs,
    talk: Talk,
) -> bool:
    """Whether this data is used; more bad rows than by chance are only left out when told to."""
    from wizard.planner.refusals import too_many_dropped
    from wizard.screens.telling import DROPPED

    if not found.rows:
        talk.refuse(Problem(what="no row can be used", where=found.path))
        return False
    too_many = too_many_dropped(found, settings) is not None
    take = "use this data"
    if too_many:
        take = f"go on without the {wording.counted(found.dropped_rows, 'row')} that cannot be used"
    there = walk.facts.model if walk.facts else None
    keys = {"w": "for what the model sees"} if there is not None and there.path else {}
    options = [take, "name another file"]
    default = "2" if too_many else "1"
    while (choice := talk.choose(options, keys, default=default)) == "w":
        assert there is not None
        assert there.path is not None
        _tell_rows(found, there.path, settings, verbs, talk)
    if choice == "1" and too_many:
        chosen[DROPPED] = float(math.ceil(found.dropped_percent))
    return choice == "1"


def _tell_rows(
    found: Dataset, folder: str, settings: dict[str, Any], verbs: Verbs, talk: Talk
) -> None:
    """The first row with what is learnt of it between marks, and the lengths of all rows."""
    from wizard.widgets import sample

    talk.say("Reading the rows as the model will see them.")
    child = verbs.preview_data(found.path, folder, settings)
    told = False
    try:
        for line in child.lines():
            if line.get("kind") == "sample" and not told:
                told = True
                talk.say(f"The first row; {sample.LEGEND}.")
                for text in sample.shown(line, "rendered").plain.split("\n"):
                    talk.say(foreign(text))
            elif line.get("kind") == "warning":
                talk.say(f"(warning) {line['text']}")
            elif line.get("kind") == "report":
                for text in sample.spread(line).split("\n"):
                    talk.say(text)
    except ProblemError as error:
        talk.refuse(error.problem)
    finally:
        child.close()
