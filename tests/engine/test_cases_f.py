"""Failures people really had with checkpoints, data and models: area F, by their ids.

id    caused where
F01   tests/engine/test_shard.py: DeepSpeed's shards of other ranks
F03   tests/engine/test_fetch.py: cut files, pointers, missing shards; tests/engine/test_hub.py
F04   tests/engine/test_save.py: a best checkpoint of a run that was moved
F06   here: less data than a batch or a block
F07   tests/engine/test_malformed.py: 200 files; here: the ones of the reports
F09   tests/engine/test_train.py: a pad token that ends turns; here: no pad token at all
F10   tests/engine/test_labels.py: a model without a template; here: the planner's choice
F12   tests/engine/test_adapter.py: no adapter; here: what there is instead
F13   tests/engine/test_adapter.py: an adapter of other sizes; here: of another name
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.adapter import check_folder, other_base
from engine.data import IGNORED
from engine.failure import RunError
from engine.prepare import prepare
from engine.record import write_json
from engine.rows import files
from engine.rows.values import DataError, RowError
from engine.schedule import total_steps
from engine.spec import Spec
from tests.fakes.tiny import make
from tests.planning import facts
from wizard.answers import Answers
from wizard.planner import plans

pytestmark = pytest.mark.engine


def spec(folder: Path, stage: str = "sft", batch: int = 1, **method: Any) -> Spec:
    return Spec.model_validate(
        {
            "model": {"model": str(folder / "model"), "dtype": "float32"},
            "data": {"data": str(folder / "rows.jsonl"), "max_length": 512},
            "method": {"method": "lora", "stage": stage, **method},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": batch, "gradient_accumulation_steps": batch},
        }
    )


def prepared(folder: Path, made: Spec) -> dict[str, Any]:
    make.tokenizer().save_pretrained(folder / "model")
    said = {"path": str(folder / "model"), "revision": None, "source": "local"}
    write_json(folder / "fetched.json", said)
    return prepare(made, folder)


def test_f06_less_text_than_a_block_is_one_block_and_not_none(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "short"}\n{"text": "shorter"}\n')
    report = prepared(tmp_path, spec(tmp_path, "pretrain"))
    assert report["examples"] == 1
    assert report["trained_tokens"] > 0


def test_f06_fewer_rows_than_a_batch_are_one_step_of_an_epoch(tmp_path: Path) -> None:
    make.data_file(tmp_path / "rows.jsonl", rows=3)
    made = spec(tmp_path, batch=128)
    report = prepared(tmp_path, made)
    assert total_steps(made, report["examples"]) == made.training.num_train_epochs


def test_f06_the_planner_takes_a_batch_that_gives_little_data_enough_steps() -> None:
    best = plans(facts(rows=40), Answers())[0]
    assert best.spec.training.effective_batch_size <= 8
    assert best.steps is not None
    assert best.steps >= 15


@pytest.mark.parametrize(
    ("content", "bad"),
    [
        ('[{"text": "a"}, {"text": 1}]', [(1, "text")]),
        ('{"text": "a", "id": 1}\n' * 5000 + '{"text": "b", "id": "x"}\n', []),
        ('{"text": "a"}\n[["user", "hi"]]\n', [(2, "")]),
        ("{'text': 'a'}\n" + '{"text": "b"}\n', [(1, "JSON")]),
        ('\ufeff{"text": "a"}\r\n\r\n{"text": "b"}\r\n', []),
    ],
)
def test_f07_the_whole_file_is_read_and_each_bad_row_has_its_line(
    tmp_path: Path, content: str, bad: list[tuple[int, str]]
) -> None:
    (tmp_path / "rows.jsonl").write_text(content, encoding="utf-8")
    made = spec(tmp_path, "pretrain")
    made = made.model_copy(
        update={"data": made.data.model_copy(update={"max_dropped_percent": 60})}
    )
    report = prepared(tmp_path, made)
    found = [(row["line"], row["reason"]) for row in report["dropped"]]
    assert [line for line, _ in found] == [line for line, _ in bad]
    assert all(word in reason for (_, reason), (_, word) in zip(found, bad, strict=True))


def test_f09_without_a_pad_token_every_end_mark_still_carries_a_loss(tmp_path: Path) -> None:
    """The collator pads by length: which token fills a row up decides nothing."""
    from engine import arrange
    from engine.prepare import load_tokenizer
    from engine.recipes import sft

    folder = make.model_folder(tmp_path / "model")
    settings = folder / "tokenizer_config.json"
    said = json.loads(settings.read_text())
    settings.write_text(json.dumps({k: v for k, v in said.items() if k != "pad_token"}))
    make.data_file(tmp_path / "rows.jsonl", rows=6)
    made = spec(tmp_path)
    said = {"path": str(folder), "revision": None, "source": "local"}
    write_json(tmp_path / "fetched.json", said)
    prepare(made, tmp_path)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.pad_token is None

    from engine import adapter, model

    trainer = sft.build(
        made,
        sft.arguments(made, tmp_path, smoke=False),
        model.load_base(made, folder, 0),
        tokenizer,
        arrange.load(tmp_path, made, smoke=False),
        None,
        adapter.new_config(made, None),
        [],
    )
    rows = [trainer.train_dataset[place] for place in range(6)]
    batch = trainer.data_collator(rows)
    for row, ids, labels in zip(rows, batch["input_ids"], batch["labels"], strict=True):
        size = len(row["input_ids"])
        assert labels[:size].tolist() == row["labels"]
        assert ids[:size].tolist() == row["input_ids"]
        assert make.IM_END in labels.tolist()
        assert (labels[size:] == IGNORED).all()


def test_f10_a_model_without_a_template_gets_one_with_its_reason() -> None:
    known = facts()
    assert known.model is not None
    base = replace(known, model=replace(known.model, has_chat_template=False))
    best = plans(base, Answers())[0]
    assert best.spec.model.template == "chatml"
    (why,) = [d.reason for d in best.decisions if d.setting == "template"]
    assert "the model has none" in why


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["global_step12000/x", "pytorch_model.bin", "rng_state_0.pth"], "DeepSpeed's shards"),
        (["pytorch_model_fsdp_0/__0_0.distcp"], "FSDP's shards"),
        (["__0_0.distcp", ".metadata"], "FSDP's shards"),
        (["config.json", "model-00001-of-00002.safetensors"], "a whole model: name it as `model`"),
        (["config.json", "pytorch_model.bin"], "pickle files, which are not read"),
        (["adapter_config.json", "adapter_model.bin"], "an adapter in a pickle file"),
        (["adapter_model.safetensors"], "without its adapter_config.json"),
        (["trainer_state.json"], "without any"),
        ([], "(adapter_config.json and adapter_model.safetensors)"),
    ],
)
def test_f12_a_folder_without_an_adapter_is_called_what_it_is(
    tmp_path: Path, names: list[str], said: str
) -> None:
    folder = tmp_path / "checkpoint-7"
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text('{"peft_type": "LORA"}')
    with pytest.raises(RunError, match="no adapter there") as caught:
        check_folder(spec(tmp_path, adapter=str(folder)))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("base", "warns"),
    [
        ("/home/other/models/model", False),
        ("org/Model", False),
        ("Qwen/Qwen3-8B", True),
        (None, False),
    ],
)
def test_f13_an_adapter_of_a_model_by_another_name_is_said(
    tmp_path: Path, base: str | None, warns: bool
) -> None:
    folder = tmp_path / "adapter"
    folder.mkdir()
    config = {"peft_type": "LORA", "base_model_name_or_path": base}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    said = other_base(spec(tmp_path, adapter=str(folder)))
    assert (said is not None) == warns
    assert said is None or f"was made for {base}, and this run trains" in said


def test_f07_a_row_that_no_reader_can_take_is_an_error_of_that_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n{"a": 2}\n')
    found = list(files.rows(path))
    assert [line for line, _ in found] == [1, 2, 3]
    assert isinstance(found[1][1], RowError)
    with pytest.raises(DataError):
        list(files.rows(tmp_path))
