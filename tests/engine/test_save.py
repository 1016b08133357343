"""A checkpoint is whole or not used, and the model says where it comes from."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save_file

from engine.events import decode_all
from engine.failure import RunError, Termination
from engine.fetch import Fetched
from engine.record import write_json
from engine.report import Report
from engine.spec import Spec
from tests.runner import making

pytestmark = pytest.mark.engine


def checkpoint(run: Path, step: int) -> Path:
    folder = run / f"checkpoints/checkpoint-{step}"
    (folder / "global_step1").mkdir(parents=True)
    files = [folder / "optimizer.pt", folder / "global_step1/shard.pt"]
    for file in files:
        torch.save({"step": step}, file)
    save_file({"weight": torch.ones(4)}, folder / "model.safetensors")
    (folder / "trainer_state.json").write_text("{}")
    files += [folder / "model.safetensors", folder / "trainer_state.json"]
    sizes = {str(file.relative_to(folder)): file.stat().st_size for file in files}
    write_json(folder / "complete.json", {"step": step, "tokens_seen": 5, "files": sizes})
    return folder


def test_resuming_passes_over_what_a_crash_left(tmp_path: Path) -> None:
    from engine.save import newest_complete

    whole = checkpoint(tmp_path, 9)
    (checkpoint(tmp_path, 10) / "optimizer.pt").write_bytes(b"123")
    (checkpoint(tmp_path, 100) / "complete.json").unlink()
    report = Report(tmp_path, rank=0, attempt=0, rung=0)

    assert newest_complete(tmp_path, report) == whole
    said = decode_all((tmp_path / "events/rank-00000.jsonl").read_bytes())
    assert [event["text"].split()[0] for event in said] == ["checkpoint-100", "checkpoint-10"]


@pytest.mark.parametrize(
    "file", ["optimizer.pt", "global_step1/shard.pt", "model.safetensors", "trainer_state.json"]
)
def test_a_damaged_checkpoint_of_the_right_size_is_named_and_the_one_before_it_taken(
    tmp_path: Path, file: str
) -> None:
    from engine.save import newest_complete

    whole = checkpoint(tmp_path, 9)
    damaged = checkpoint(tmp_path, 10) / file
    damaged.write_bytes(bytes(damaged.stat().st_size))
    report = Report(tmp_path, rank=0, attempt=0, rung=0)

    assert newest_complete(tmp_path, report) == whole
    (said,) = decode_all((tmp_path / "events/rank-00000.jsonl").read_bytes())
    assert said["text"] == (
        f"checkpoint-10 is damaged, so it is not used: {file} is not what was written"
    )


def test_a_folder_others_can_write_is_not_resumed_from(tmp_path: Path) -> None:
    from engine.save import newest_complete

    checkpoint(tmp_path, 9)
    tmp_path.chmod(0o777)

    with pytest.raises(RunError, match="other users can write here"):
        newest_complete(tmp_path, Report(tmp_path, rank=0, attempt=0, rung=0))


@pytest.mark.parametrize(
    "place", ["checkpoints", "checkpoints/checkpoint-9", "checkpoints/checkpoint-9/optimizer.pt"]
)
def test_nothing_on_the_way_to_a_pickle_may_be_writable_by_others(
    tmp_path: Path, place: str
) -> None:
    from engine.save import newest_complete

    report = Report(tmp_path, rank=0, attempt=0, rung=0)
    whole = checkpoint(tmp_path, 9)
    assert newest_complete(tmp_path, report) == whole
    (tmp_path / place).chmod(0o777)

    with pytest.raises(RunError, match=f"{place}: other users can write here"):
        newest_complete(tmp_path, report)


@pytest.mark.parametrize("place", ["checkpoints", "checkpoints/checkpoint-9/optimizer.pt"])
def test_a_checkpoint_that_leads_elsewhere_is_not_loaded(tmp_path: Path, place: str) -> None:
    from engine.save import newest_complete

    checkpoint(tmp_path, 9)
    other = (tmp_path / place).rename(tmp_path / "other")
    (tmp_path / place).symlink_to(other)

    with pytest.raises(RunError, match=f"{place}: a symbolic link"):
        newest_complete(tmp_path, Report(tmp_path, rank=0, attempt=0, rung=0))


def test_a_further_machine_goes_on_from_the_first_ones_checkpoints_and_from_no_others(
    tmp_path: Path,
) -> None:
    from engine.save import newest_complete

    first, second = tmp_path / "node-0", tmp_path / "node-1"
    for folder in (first, second):
        folder.mkdir()
    checkpoint(first, 9)
    (second / "checkpoints").symlink_to("../node-0/checkpoints")
    report = Report(second, rank=1, attempt=0, rung=0)
    assert newest_complete(second, report) == second / "checkpoints" / "checkpoint-9"
    first.chmod(0o777)
    with pytest.raises(RunError, match="node-0: other users can write here"):
        newest_complete(second, report)
    first.rename(tmp_path / "elsewhere")
    first.symlink_to("elsewhere")
    with pytest.raises(RunError, match="checkpoints: a symbolic link"):
        newest_complete(second, report)


def test_the_link_to_the_first_machine_is_followed_in_further_machines_folders_alone(
    tmp_path: Path,
) -> None:
    from engine.save import newest_complete

    checkpoint(tmp_path / "node-0", 9)
    for name in ("mine", "node-0x", "node-01"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "checkpoints").symlink_to("../node-0/checkpoints")
        with pytest.raises(RunError, match="checkpoints: a symbolic link"):
            newest_complete(folder, Report(folder, rank=1, attempt=0, rung=0))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_link_that_another_user_made_is_not_followed(tmp_path: Path) -> None:
    from engine.save import newest_complete

    checkpoint(tmp_path / "node-0", 9)
    second = tmp_path / "node-1"
    second.mkdir()
    (second / "checkpoints").symlink_to("../node-0/checkpoints")
    os.lchown(second / "checkpoints", 12345, 12345)
    with pytest.raises(RunError, match="checkpoints: a symbolic link"):
        newest_complete(second, Report(second, rank=1, attempt=0, rung=0))


def test_the_rows_that_fill_up_an_epoch_are_counted_as_the_library_repeats_them() -> None:
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    from engine.schedule import steps_per_epoch, uneven_epoch

    batch = {"effective_batch_size": 8, "per_device_train_batch_size": 2}
    spec = making.spec(training=batch)

    for rows in range(17, 60):
        shards = [BatchSamplerShard(BatchSampler(range(rows), 2, False), 2, n) for n in range(2)]
        batches = [list(shard) for shard in shards]
        seen = sum(len(batch) for rank in batches for batch in rank)
        assert len(batches[0]) == len(batches[1]), "uneven ranks would wait for each other"
        assert steps_per_epoch(spec, rows) == -(-len(batches[0]) // 2)
        said = uneven_epoch(spec, rows)
        assert (said is None) == (seen == rows)
        if said is not None:
            assert f" filled up with {seen - rows} of them from its start" in said
            assert (f"holds {seen % 8}, where the other steps hold 8" in said) == (seen % 8 > 0)


def test_only_complete_checkpoints_count_as_kept(tmp_path: Path) -> None:
    from engine.save import _remove_old

    for step in (2, 10, 30):
        checkpoint(tmp_path, step)
    (checkpoint(tmp_path, 40) / "complete.json").unlink()

    _remove_old(tmp_path / "checkpoints", keep=2, best=None)

    left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert left == {"checkpoint-10", "checkpoint-30", "checkpoint-40"}


def test_the_best_checkpoint_is_kept_beside_the_newest(tmp_path: Path) -> None:
    from engine.save import _remove_old

    for step in (2, 10, 30, 40):
        checkpoint(tmp_path, step)

    _remove_old(tmp_path / "checkpoints", keep=1, best=10)

    left = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    assert left == {"checkpoint-10", "checkpoint-40"}


def begun(run: Path, best: int) -> tuple[Any, list[str]]:
    """The state a resumed run begins with, and what it warns of."""
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from engine.save import Checkpoints

    report = Report(run, rank=0, attempt=0, rung=0)
    callback = Checkpoints(
        run,
        report,
        cast("Any", None),
        keep=1,
        scales_loss=False,
        optimizer={},
        termination=Termination(),
    )
    state = TrainerState(
        best_global_step=best,
        best_metric=0.5,
        best_model_checkpoint=f"/elsewhere/checkpoints/checkpoint-{best}",
    )
    args = TrainingArguments(output_dir=str(run / "checkpoints"), use_cpu=True)
    callback.on_train_begin(args, state, TrainerControl())
    said = decode_all((run / "events/rank-00000.jsonl").read_bytes())
    return state, [event["text"] for event in said]


def test_f04_the_best_checkpoint_is_found_again_in_a_run_that_was_moved(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    kept = checkpoint(tmp_path, 10)
    state, said = begun(tmp_path, best=10)

    assert state.best_model_checkpoint == str(kept)
    assert said == []


def test_a_best_checkpoint_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10).chmod(0o777)
    with pytest.raises(RunError, match="checkpoint-10: other users can write here"):
        begun(tmp_path, best=10)


def test_a_best_checkpoint_that_is_gone_is_looked_for_anew(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    state, said = begun(tmp_path, best=8)

    assert (state.best_model_checkpoint, state.best_metric, state.best_global_step) == (None,) * 3
    assert said == ["the best checkpoint, checkpoint-8, is gone: the best is looked for anew"]


def test_the_card_names_base_revision_and_licence(tmp_path: Path) -> None:
    from engine.outcome import model_card

    (tmp_path / "README.md").write_text("---\ntags: [x]\nlicense: mit\n---\nlicense: fake\n")
    spec = Spec.model_validate(
        {
            "model": {"model": "some/base"},
            "data": {"data": "d"},
            "method": {"method": "lora"},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 1},
        }
    )

    card = model_card(spec, Fetched(path=tmp_path, revision="abc123", source="huggingface"))

    assert 'base_model: "some/base"\nlicense: "mit"' in card
    assert "Base revision: abc123" in card


def test_the_result_holds_the_plans_prediction_beside_every_ranks_peak(tmp_path: Path) -> None:
    from engine.outcome import result

    rank = {
        "memory_peak_bytes": 7,
        "process_memory_peak_bytes": 9,
        "tokens": 100,
        "training_seconds": 4.0,
        "step_seconds": 2.0,
        "steps": 2,
        "losses": [3.0, 1.0],
    }
    assert result(tmp_path, [rank], 5.0, None)["predicted"] is None
    (tmp_path / "plan.json").write_text(json.dumps({"memory": {"device_bytes": 11}}))

    said = result(tmp_path, [rank, {**rank, "memory_peak_bytes": 8}], 5.0, {"step": 2})

    assert said["predicted"] == {"device_bytes": 11}
    assert said["best"] == {"step": 2}
    assert said["measured"]["memory_peak_bytes"] == [7, 8]
    assert said["measured"]["tokens_per_second"] == 50.0
    assert said["measured"]["train_loss_last"] == 1.0
