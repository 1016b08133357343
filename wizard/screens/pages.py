"""Step → its page, filled with what is known; a page's module is loaded when it is reached."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wizard import wording
from wizard.problem import ProblemError
from wizard.screens.exporting import ExportVerbs
from wizard.screens.verbs import DataPreview, Verbs
from wizard.steps import Chosen, Step, Walk

if TYPE_CHECKING:
    from wizard.answers import Answers
    from wizard.dashboard.screen import Dashboard
    from wizard.dashboard.values import RunState
    from wizard.facts import Dataset, Model
    from wizard.plan import Plan
    from wizard.widgets.page import Page


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """How the dashboard behaves in this app."""

    clock: Callable[[], float]
    leave_when_done: bool
    in_wizard: bool


def page_for(step: Step, walk: Walk, verbs: Verbs, look: Look) -> Page[Any]:
    """The page of a step."""
    match step:
        case Step.HARDWARE | Step.MODEL | Step.DATA:
            return _page_about_facts(step, walk, verbs)
        case Step.PLAN | Step.TUNE | Step.REVIEW:
            return _page_about_plans(step, walk, verbs)
        case Step.RUN:
            return _dashboard(walk, verbs, look)
        case Step.FINISH:
            from wizard.screens.finish import FinishPage

            assert walk.run is not None, "a run is finished after it was started"
            return FinishPage(walk.run, verbs.follow, verbs.run_details, verbs.chat, verbs.resume)


def _page_about_facts(step: Step, walk: Walk, verbs: Verbs) -> Page[Any]:
    facts, answers = walk.facts, walk.answers
    match step:
        case Step.HARDWARE:
            from wizard.screens.hardware import HardwarePage

            return HardwarePage(
                verbs.probe,
                facts,
                devices=answers.devices,
                machines=verbs.machines,
            )
        case Step.MODEL:
            return _model_page(walk, verbs)
    return _data_page(walk, verbs)


def _model_page(walk: Walk, verbs: Verbs) -> Page[Any]:
    from wizard.modelcard import least_answers, nominal_rows
    from wizard.screens.model import ModelPage, ModelVerbs
    from wizard.widgets.memory import best_fit

    facts, answers = walk.facts, walk.answers

    def fit(model: Model) -> str:
        """Whether this machine has room for it in any way, for a row of a usual length at once."""
        assert facts is not None, "a model is chosen after the machine was probed"
        usual = replace(facts, model=model, dataset=nominal_rows())
        return best_fit(verbs.plans(usual, least_answers(answers, model)))

    return ModelPage(
        ModelVerbs(
            read=verbs.read_model,
            read_hub=verbs.read_hub_model,
            known=verbs.known_models,
            sibling=verbs.sibling,
            fit=fit,
            offline=verbs.offline,
        ),
        name=answers.model,
        model=facts.model if facts else None,
        suggested=verbs.suggested_model,
        disk_free_bytes=facts.host.disk_free_bytes if facts else None,
    )


def _data_page(walk: Walk, verbs: Verbs) -> Page[Any]:
    from wizard.screens.data import DataPage
    from wizard.screens.telling import DataVerbs

    facts, answers = walk.facts, walk.answers
    model = facts.model if facts else None

    def memory(
        dataset: Dataset, settings: Mapping[str, Any], lengths: Sequence[int]
    ) -> Mapping[int, str]:
        """Predicted memory of the best plan at each length; without those that allow none."""
        assert facts is not None, "data is read after the machine was probed"
        read = replace(facts, dataset=dataset)
        found = {}
        for length in lengths:
            fixed = {**answers.settings, **settings, "max_length": length}
            wanted = replace(answers, data=dataset.path, settings=fixed)
            with contextlib.suppress(ProblemError):
                found[length] = wording.gib(verbs.plans(read, wanted)[0].memory.device_bytes)
        return found

    def preview(data: str, settings: Mapping[str, Any]) -> DataPreview:
        assert model is not None
        assert model.path is not None
        return verbs.preview_data(data, model.path, settings)

    return DataPage(
        DataVerbs(
            read=verbs.read_dataset,
            first_row=verbs.first_row,
            preview=preview if model is not None and model.path else None,
            memory=memory,
            edit=verbs.edit,
            nearby=verbs.data_nearby(),
        ),
        path=answers.data,
        dataset=facts.dataset if facts else None,
        model=model,
        settings=answers.fixed,
        of_preset=frozenset(answers.preset_settings.keys() - answers.settings.keys()),
    )


def _page_about_plans(step: Step, walk: Walk, verbs: Verbs) -> Page[Any]:
    facts = walk.facts
    assert facts is not None, "plans are made after the machine was probed"

    if step is Step.PLAN:
        from wizard.screens.plan import PlanPage

        return PlanPage(
            verbs.plans,
            facts,
            walk.answers,
            verbs.machines,
            exports=ExportVerbs(make=verbs.make_export, write=verbs.write_export),
            name_for=verbs.name_for,
            before=walk.plan,
            stale=Step.PLAN in walk.stale,
            smallest_full=verbs.smallest_full,
        )

    def make_plans(answers: Answers) -> tuple[Plan, ...]:
        return verbs.plans(facts, answers)

    plan = walk.plan
    assert plan is not None, "a plan is picked before it is tuned"
    name = verbs.name_for(plan, walk.answers)
    chosen = Chosen(answers=walk.answers, plan=plan, others=walk.others)
    if step is Step.TUNE:
        from wizard.screens.tune import TunePage

        return TunePage(make_plans, chosen, name, facts)
    from wizard.screens.review import ReviewPage, ReviewVerbs

    def ended(run: Path) -> RunState | None:
        state = verbs.follow(run).poll()
        return state if state.ended else None

    return ReviewPage(
        chosen=chosen,
        name=name,
        facts=facts,
        verbs=ReviewVerbs(
            preview=verbs.preview,
            write=verbs.write,
            launch=verbs.launch,
            ended=ended,
            smoke_result=verbs.smoke_result,
            last_files=verbs.last_files,
            edit=verbs.edit,
            files_of=verbs.files_of,
            exports=ExportVerbs(make=verbs.make_export, write=verbs.write_export),
        ),
    )


def _dashboard(walk: Walk, verbs: Verbs, look: Look) -> Dashboard:
    from wizard.dashboard.screen import Dashboard
    from wizard.dashboard.source import Source

    assert walk.run is not None, "a run is watched after it was started"
    source = Source(
        follow=verbs.follow,
        stop=verbs.stop,
        resume=verbs.resume,
        run_details=verbs.run_details,
        read_log=verbs.read_log,
        clock=look.clock,
        replay=verbs.replay,
        keep_picture=verbs.keep_picture,
    )
    return Dashboard(
        walk.run, source, in_wizard=look.in_wizard, leave_when_done=look.leave_when_done
    )
