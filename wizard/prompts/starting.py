"""Steps 6 to 8: the checks and the script, and how the run is started."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wizard.facts import Facts
from wizard.language import foreign
from wizard.problem import Problem
from wizard.prompts.talk import Talk
from wizard.screens.verbs import Verbs
from wizard.steps import Chosen, Walk

POLL_SECONDS = 0.5
REVIEW_HELP = (
    "The script is the run: its folder is written as shown, and run.sh is started in a session of "
    "its own, so that leaving never touches it. The smoke test tries a few steps with the longest "
    "rows and says how much memory they took."
)
START, LEAVE_IT, SMOKE, WRITE = (
    "start it and tell how it goes",
    "start it and leave it running",
    "smoke test: try a few steps with the longest rows first",
    "write its folder and start nothing",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """What the questions came to."""

    run: Path
    then: Literal["watch", "running", "written"]


def review(walk: Walk, verbs: Verbs, talk: Talk) -> Ending:
    """The run folder, written and started as the user says.

    Raises ProblemError when it cannot be written or started.
    """
    facts, plan = walk.facts, walk.plan
    assert facts is not None, "a run is reviewed after the machine was probed"
    assert plan is not None, "a run is reviewed after it was planned"
    name = walk.answers.run_name or verbs.name_for(plan, walk.answers)
    chosen = Chosen(answers=walk.answers, plan=plan, others=walk.others)
    files = verbs.preview(chosen, facts, name)
    _tell_checks(chosen, facts, talk)
    options = [WRITE] if facts.machine else [START, LEAVE_IT, SMOKE, WRITE]
    folder: Path | None = None
    while True:
        choice = talk.choose(options, {"w": "for the script"}, help_text=REVIEW_HELP)
        if choice == "w":
            for line in files["run.sh"].splitlines():
                talk.say(foreign(line))
            continue
        folder = folder or verbs.write(files, name)
        wanted = options[int(choice) - 1]
        if wanted == WRITE:
            return Ending(run=folder, then="written")
        verbs.launch(folder, wanted == SMOKE)
        if wanted != SMOKE:
            return Ending(run=folder, then="watch" if wanted == START else "running")
        _tell_smoke(folder, verbs, talk)


def _tell_checks(chosen: Chosen, facts: Facts, talk: Talk) -> None:
    from wizard.screens.preflight import checks

    for line in checks(chosen.plan, facts).plain.split("\n"):
        talk.say(line)


def _tell_smoke(folder: Path, verbs: Verbs, talk: Talk) -> None:
    """Wait for a smoke test, and say how it went."""
    from wizard.dashboard.words import failure_words, tested

    talk.say("The smoke test runs.")
    follower = verbs.follow(folder)
    while not (state := follower.poll()).ended:
        time.sleep(POLL_SECONDS)
    if state.exit_code == 0:
        talk.say(f"The smoke test passed: {tested(verbs.smoke_result(folder))}.")
        return
    what = f"the smoke test ended with {state.exit_code}"
    if state.failure is not None:
        what += f", {failure_words(state.failure)}"
    talk.refuse(Problem(what=what, fix=f"a smaller max_length or batch; logs in {folder}/logs"))


def result(folder: Path, verbs: Verbs, talk: Talk) -> None:
    """What was measured beside what was predicted, and where the model is."""
    from wizard.screens.finish import measured_table

    state = verbs.follow(folder).poll()
    for line in measured_table(state, verbs.run_details(folder)).plain.split("\n"):
        talk.say(" ".join(line.split()))
    if (folder / "model").is_dir():
        talk.say(f"The model is in {foreign(folder / 'model')}.")
