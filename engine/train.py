"""Train: the entry under torchrun; reads a spec, trains, and says how it ended."""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import lean, own_code
from engine.builds import keep_builds_here
from engine.events import EXIT_COMM, EXIT_OK, EXIT_STOPPED
from engine.failure import (
    Failure,
    RunError,
    Termination,
    classify,
    is_urgent,
    write_exit_file,
)
from engine.fetch import Fetched, read_fetched, read_spec
from engine.ladder import optimizer_form, resumes_exactly
from engine.plugins import NOTHING, Plugged, most_likely
from engine.record import write_json
from engine.report import Report, process_memory_peak_bytes
from engine.rules import not_alike
from engine.spec import Spec

RANK = int(os.environ.get("RANK", "0"))
LOCAL_RANK = int(os.environ.get("LOCAL_RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))
LOCAL_RANKS = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def main() -> int:
    """Train the spec of a run; the exit code, which the rank's exit file says too."""
    options = parse()
    run: Path = options.run.absolute()
    termination = Termination()
    termination.heed(run)
    report = Report(run, rank=RANK, attempt=options.attempt, rung=options.rung)
    report.start()
    started, failure, code = time.monotonic(), None, EXIT_OK
    try:
        code = train(options.spec, run, options, report, termination)
    except BaseException as error:
        termination.over()
        failure = classify(error)
        code = failure.code
        if code == EXIT_COMM and is_urgent(run):  # it, or a rank it waited for, was told to end
            failure, code = None, EXIT_STOPPED
    else:
        termination.over()
    end(run, options, report, failure, code, time.monotonic() - started)
    return code


def parse() -> argparse.Namespace:
    """What run.sh says beside the spec."""
    parser = argparse.ArgumentParser(prog="engine.train", description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--run", type=Path, default=Path(), help="the run folder")
    parser.add_argument("--attempt", type=int, default=0, help="starts of this run before this one")
    parser.add_argument("--rung", type=int, default=0, help="step of the fallback ladder")
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    parser.add_argument("--exact", action="store_true", help="only with the optimizer's state")
    parser.add_argument("--smoke", action="store_true", help="two steps on the longest rows")
    return parser.parse_args()


def train(
    path: Path, run: Path, options: argparse.Namespace, report: Report, termination: Termination
) -> int:
    """One attempt at a run, top to bottom; EXIT_OK or EXIT_STOPPED.

    Raises whatever goes wrong; `engine.failure.classify` gives it a class.
    """
    began = time.monotonic()
    spec = read_spec(path)
    fetched = read_fetched(run)
    stay_offline()
    lean.only_what_trains(spec, fetched.path)
    say(report, keep_builds_here())
    from engine.prepare import read_report

    prepared = read_report(run)
    with lean.loading():
        device = own_device(spec)
    report.hello(
        world_size=WORLD_SIZE,
        local_rank=LOCAL_RANK,
        device=device,
        data_hash=prepared["data_hash"],
    )

    with lean.loading():
        lean.load_transformers()
        from engine import adapter, arrange, outcome, plugins, save, schedule, shard, trackers
        from engine.measure import StepMeter
        from engine.recipes import recipe
        from engine.split import own_devices

        recipe(spec)  # loads TRL

    spec = shard.with_own_disk_folder(spec, run)

    resumes = options.resume and not options.smoke
    checkpoint = save.newest_complete(run, report) if resumes else None
    refuse_old_checkpoints(run, options)
    if nothing_left(spec, run, checkpoint, prepared["examples"]):
        say(report, f"{run}: its last step is trained, and model/ has it: nothing was changed")
        return EXIT_OK
    if not options.smoke:
        say(report, schedule.uneven_epoch(spec, prepared["examples"]))
    start_ranks(spec, run, checkpoint)
    settings = recipe(spec).arguments(spec, run, smoke=options.smoke)
    code = {**plugins.digests(spec, run), **(fetched.code or {})}
    compare_data(save.gather({"data_hash": prepared["data_hash"], "code": code}))

    meter = StepMeter(
        report,
        settings.device,
        spec.parallel,
        own=own_devices(spec, LOCAL_RANK, LOCAL_RANKS),
        tokens_before=save.tokens_seen(checkpoint),
    )
    checkpoints = save.Checkpoints(
        run,
        report,
        meter,
        keep=spec.training.save_total_limit,
        scales_loss=spec.model.dtype == "float16",
        optimizer=optimizer_form(spec),
        termination=termination,
    )
    rows = arrange.load(run, spec, smoke=options.smoke)
    held_out = None if options.smoke else arrange.load_held_out(run, spec)
    plugged = plugins.plugged(spec, run, recipe(spec).Trainer)
    callbacks = [*plugged.callbacks, meter, checkpoints]
    if RANK == 0 and not options.smoke:
        callbacks += trackers.tracker(spec, run, report)
    trainer = load(spec, settings, fetched, rows, held_out, callbacks, report, plugged)
    show_placement(trainer, spec, run)
    if RANK == 0:
        adapter.keep_start(spec, trainer.model, run)
    schedule.end_at_last_step(trainer)
    meter.attach(trainer)
    with go_on(trainer, checkpoint, spec, report, exact=options.exact):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    meter.flush()

    if not options.smoke and not checkpoints.stopped:
        report.phase("saving")
        save.save_model(trainer, spec, fetched, run, report)
    measured = save.gather(meter.measured())
    if LOCAL_RANK == 0:
        shard.remove_disk_folder(spec)
    name = "smoke.json" if options.smoke else "result.json"
    is_news = meter.step_seconds or not (run / name).exists()
    if RANK == 0 and not checkpoints.stopped and is_news:
        result = outcome.result(run, measured, time.monotonic() - began, outcome.best_of(trainer))
        write_json(run / name, result)
    report.totals = {
        "steps": len(meter.step_seconds),
        "memory_peak_bytes": measured[RANK]["memory_peak_bytes"],
        "train_loss": meter.losses[-1] if meter.losses else None,
    }
    return EXIT_STOPPED if checkpoints.stopped else EXIT_OK


def start_ranks(spec: Spec, run: Path, checkpoint: Path | None) -> None:
    """Make the ranks talk, once the checkpoint fits them, and show what shards was told.

    Raises RunError (bad_spec).
    """
    from engine import shard

    shard.refuse_other_ranks(spec, checkpoint)
    shard.start_ranks(spec)
    if RANK == 0 and spec.parallel.strategy in shard.CONFIG_FILES:
        write_json(run / shard.CONFIG_FILES[spec.parallel.strategy], shard.library_config(spec))


def show_placement(trainer: Any, spec: Spec, run: Path) -> None:
    """Which of rank 0's devices holds which layers, where they are spread."""
    if RANK == 0 and spec.parallel.strategy == "layer_split":
        write_json(run / "device_map.json", trainer.model.hf_device_map)


def go_on(
    trainer: Any, checkpoint: Path | None, spec: Spec, report: Report, *, exact: bool
) -> AbstractContextManager[None]:
    """What a resume from this checkpoint needs: nothing, or an optimizer that starts anew.

    Raises RunError (bad_spec) where `exact` forbids that, or the checkpoint has no whole weights.
    """
    from engine import resume

    before, now = resume.form_of(checkpoint), optimizer_form(spec)
    if checkpoint is None or before is None or resumes_exactly(before, now):
        return nullcontext()
    if exact:
        resume.refuse_inexact(checkpoint, before, now)
    say(report, resume.restart_optimizer(trainer, checkpoint, spec, before))
    return resume.without_deepspeed_state()


def load(
    spec: Spec,
    settings: Any,
    fetched: Fetched,
    rows: Any,
    held_out: Any,
    callbacks: list[Any],
    report: Report,
    plugged: Plugged = NOTHING,
) -> Any:
    """The trainer with the model in it.

    Raises RunError (bad_spec) for a model whose rows cannot be joined, where the spec joins them.
    """
    from transformers import set_seed

    from engine import adapter, batches, head, model, shard
    from engine.data import chat_template
    from engine.methods import REFERENCE_PASS, needs_reference
    from engine.prepare import load_tokenizer
    from engine.recipes import recipe

    report.phase("loading model")
    set_seed(spec.training.seed)
    if spec.model.trust_remote_code:
        own_code.check_unchanged(fetched.path, fetched.code)
    tokenizer = load_tokenizer(fetched.path, trusted=spec.model.trust_remote_code)
    if spec.method.stage != "pretrain":
        tokenizer.chat_template = chat_template(spec.model.template, tokenizer)
    base = model.load_base(spec, fetched.path, LOCAL_RANK, LOCAL_RANKS)
    refused = not_alike(spec, base.config.model_type)
    if refused is not None:
        raise RunError("bad_spec", refused)
    report.phase("wrapping", detail=REFERENCE_PASS if needs_reference(spec.method) else None)
    adapter.fit_vocabulary(spec, base, tokenizer)
    base, config = adapter.wrapped(spec, base, fetched.revision)
    head.fit(spec.parallel.device_kind)
    build = recipe(spec).build
    if spec.model.trust_remote_code and plugged.loss is None:
        plugged = replace(plugged, loss=head.own_loss)
    trainer = build(spec, settings, base, tokenizer, rows, held_out, config, callbacks, plugged)
    trainer.preprocess_logits_for_metrics = most_likely
    if spec.training.group_by_length:
        together = spec.training.per_device_train_batch_size * spec.parallel.ranks
        batches.group_by_length(trainer, rows, together, spec.training.seed)
    adapter.keep_precise(spec, trainer.model)
    if spec.method.method != "full":
        adapter.leave_casts_to_autocast(spec, trainer.model)
    shard.share_gradients(trainer)
    return trainer


def nothing_left(spec: Spec, run: Path, checkpoint: Path | None, rows: int) -> bool:
    """Whether the run has reached its last step and the model of that step is written."""
    from engine import save, schedule

    if checkpoint is None or save.step_of(checkpoint) < schedule.total_steps(spec, rows):
        return False
    return save.is_in_model(run, checkpoint)


def say(report: Report, text: str | None) -> None:
    """Tell once, from rank 0, what the user should know, if there is anything."""
    if RANK == 0 and text is not None:
        report.warn(text)
        print(text, file=sys.stderr)  # noqa: T201


def stay_offline() -> None:
    """Everything is fetched already: the libraries have nothing to ask of, or tell, a network."""
    for name in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY", "TRANSFORMERS_NO_ADVISORY_WARNINGS"):
        os.environ[name] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def own_device(spec: Spec) -> str:
    """The device of this rank, made current.

    Raises RunError (no_devices) when it is not there, (bad_spec) when torchrun and spec differ.
    """
    if spec.parallel.ranks != WORLD_SIZE:
        raise RunError(
            "bad_spec",
            f"num_devices makes {spec.parallel.ranks} ranks, but torchrun started {WORLD_SIZE}",
        )
    import torch

    kind = spec.parallel.device_kind
    if kind == "cpu":
        return "cpu"
    if kind == "npu":
        import torch_npu  # type: ignore[import-not-found]  # noqa: F401
    runtime: Any = getattr(torch, kind)
    count = runtime.device_count()
    last = LOCAL_RANK + LOCAL_RANKS * (spec.parallel.devices_per_rank - 1)
    if count <= last:
        raise RunError("no_devices", f"rank {RANK} needs {kind}:{last}, but {count} are there")
    runtime.set_device(LOCAL_RANK)
    return f"{kind}:{LOCAL_RANK}"


def refuse_old_checkpoints(run: Path, options: argparse.Namespace) -> None:
    """Never mix the checkpoints of two runs: a later resume would take the wrong one.

    Raises RunError (bad_spec).
    """
    old = next((run / "checkpoints").glob("checkpoint-*"), None)
    if old is not None and not options.resume and not options.smoke:
        raise RunError(
            "bad_spec",
            f"{run}: has {old.name} already; go on with --resume, or move checkpoints/ away",
        )


def compare_data(ranks: list[dict[str, Any]]) -> None:
    """Refuse to train ranks on different data, or with different code of the user.

    Raises RunError (bad_data, bad_spec).
    """
    if len({rank["data_hash"] for rank in ranks}) > 1:
        raise RunError("bad_data", "the ranks have prepared different data; prepare it again")
    if any(rank["code"] != ranks[0]["code"] for rank in ranks):
        raise RunError(
            "bad_spec", "the ranks have different code: copy plugins/ and the model to each machine"
        )


def end(
    run: Path,
    options: argparse.Namespace,
    report: Report,
    failure: Failure | None,
    code: int,
    seconds: float,
) -> None:
    """Say how it ended, in events and in the exit file, before any other rank can be lost for it.

    torchrun ends all ranks as soon as one ends with a code that is not 0, so ranks that agree to
    stop leave together.
    """
    last = report.phase_name
    if failure is not None:
        report.write(
            "failed",
            failure=failure.failure,
            message=failure.message,
            traceback=failure.traceback,
        )
        print(failure.message, failure.traceback, sep="\n", file=sys.stderr)  # noqa: T201
    ending = "stopped" if code == EXIT_STOPPED else "done"
    report.phase("failed" if failure else ending)
    report.write(
        "done",
        exit_code=code,
        seconds=round(seconds, 3),
        process_memory_peak_bytes=process_memory_peak_bytes(),
        **report.totals,
    )
    report.end()
    write_exit_file(
        run,
        attempt=options.attempt,
        rank=RANK,
        failure=failure,
        code=code,
        last=last,
        step=report.step or 0,
    )
    if "engine.trackers" in sys.modules:  # else nothing was told, or nothing was even loaded
        sys.modules["engine.trackers"].finish(well=code in (EXIT_OK, EXIT_STOPPED))
    if failure is None and not is_urgent(run):  # then the other ranks may be gone
        from engine.save import barrier

        with suppress(Exception):
            barrier()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of a broken collective would keep an ordinary exit waiting.
    os._exit(status)
