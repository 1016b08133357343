"""Languages: the catalogues are whole, texts are found in them, and names are left alone."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import polib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text_rules import NOUNS
from tests.texts import TEMPLATE, template
from wizard import language, wording
from wizard.cli import main
from wizard.language import CATALOGUES, FRAGMENT, PLACE, Catalogue, languages
from wizard.problem import Problem, ProblemError

OTHERS = languages()[1:]
NAMED = re.compile(r"\{[a-z_]+\}")
BETWEEN = "between texts"
CHINESE = re.compile("[\u4e00-\u9fff]")


@pytest.fixture
def chinese() -> Iterator[None]:
    language.use("zh_CN")
    yield
    language.use(language.ENGLISH)


def entries(name: str) -> list[polib.POEntry]:
    return list(polib.pofile(str(CATALOGUES / f"{name}.po")))


def catalogue(name: str) -> Catalogue:
    return Catalogue(entries(name))


def keys(file: polib.POFile) -> set[tuple[str, str, str | None]]:
    return {(entry.msgid, entry.msgid_plural, entry.msgctxt) for entry in file}


@pytest.mark.wide
def test_the_template_holds_every_text_of_the_source() -> None:
    """`python -m tests.texts` writes it anew."""
    assert keys(polib.pofile(str(TEMPLATE))) == keys(template())


@pytest.mark.parametrize("name", OTHERS)
def test_a_catalogue_translates_every_text(name: str) -> None:
    found = polib.pofile(str(CATALOGUES / f"{name}.po"))
    assert keys(found) == keys(polib.pofile(str(TEMPLATE)))
    for entry in found:
        said = entry.msgstr or entry.msgstr_plural.get(0, "")
        assert said, f"no translation of {entry.msgid!r}"
        assert not entry.fuzzy, entry.msgid
        assert {*PLACE.findall(said)} <= {*PLACE.findall(entry.msgid)}, entry.msgid
        assert {*NAMED.findall(said)} <= {*NAMED.findall(entry.msgid)}, entry.msgid
        assert all(c.isprintable() or c == "\n" for c in said), entry.msgid
        percents = re.findall(r"%(?:\(\w+\))?[sr]", entry.msgid)
        assert sorted(re.findall(r"%(?:\(\w+\))?[sr]", said)) == sorted(percents), entry.msgid


WHOLE_TEXTS = [
    entry
    for entry in entries("zh_CN")
    if PLACE.search(entry.msgid) and len(PLACE.sub("", entry.msgid)) > 24
]
VALUES = ["17", "3.5 GiB", "Qwen/Qwen3-8B", "/data/rows.jsonl", "learning_rate"]
BESIDE = re.compile(r"\{\d\} \{\d\}")
"""Two places with nothing but a space between: no value with a space in it stands there."""
CHINESE_TEXTS = catalogue("zh_CN")


@pytest.mark.wide
@pytest.mark.parametrize("first", range(len(VALUES)))
def test_every_text_keeps_the_values_that_stand_in_it(first: int) -> None:
    turned = [*VALUES[first:], *VALUES[:first]] * 2
    for entry in WHOLE_TEXTS:
        values = [v.replace(" ", "") for v in turned] if BESIDE.search(entry.msgid) else turned
        english = PLACE.sub(lambda place: values[int(place[1])], entry.msgid)  # noqa: B023
        translated = entry.msgstr or entry.msgstr_plural[0]
        said = CHINESE_TEXTS.said(english)
        for number in PLACE.findall(translated):
            assert values[int(number)] in said, english
        assert translated == entry.msgid or CHINESE.search(said), english


@given(st.text(max_size=60))
@settings(max_examples=100, deadline=None)
def test_a_text_of_somebody_else_passes_as_it_is(text: str) -> None:
    name = "_".join(text.split())  # else it may hold a text of ours: "/data must be given"
    assert CHINESE_TEXTS.said(f"/data/{name}") == f"/data/{name}"
    assert CHINESE_TEXTS.value(name).isprintable() == name.isprintable()


OWN_TEXTS = sorted(CHINESE_TEXTS.whole)


@pytest.mark.parametrize("name", [language.ENGLISH, "zh_CN"])
def test_what_others_wrote_is_never_translated(name: str) -> None:
    @given(st.one_of(st.sampled_from(OWN_TEXTS), st.text(max_size=40)))
    @settings(max_examples=100, deadline=None)
    def is_told_as_it_is(text: str) -> None:
        theirs = text.replace(language.BEGIN, "").replace(language.END, "")
        told = language.said(f"no known model matches {language.foreign(text)}; row 3")
        assert theirs in told
        assert language.said_value(language.foreign(text)) == theirs
        assert not {language.BEGIN, language.END} & set(told)

    language.use(name)
    try:
        is_told_as_it_is()
    finally:
        language.use(language.ENGLISH)


def test_the_words_of_a_model_are_shown_as_it_said_them(
    capsys: pytest.CaptureFixture[str], chinese: None
) -> None:
    """An answer of a model may be a text of ours, and is no translation of it."""
    from wizard import demo
    from wizard.demo.report import Outcome, lines

    answers = {"no dataset": "yes", "Where the run goes": "unknown; training: 3 rows"}
    outcome = Outcome(before=answers, after=answers, losses=(), seconds={}, result={})
    for line in lines(outcome):
        demo._print(line)
    told = capsys.readouterr().out
    for question, answer in answers.items():
        assert f"  {question}\n" in told
        assert told.count(f"  {answer}\n") == 2


SAID: Mapping[str, str] = {
    "fits, 11.2 GiB free": "放得下，剩余 11.2 GiB",
    "1 row": "1 条样本",
    "1,024 devices": "1,024 个设备",
    "Plans (3 of 9 fit)   goal: [quality]  fastest": (
        "方案（9 个中 3 个放得下）   目标：[质量优先]  最快"
    ),
    "LoRA r16 bf16, ZeRO-3, optimizer on the host on 4 devices": (
        "LoRA r16 bf16，ZeRO-3，优化器在主机，4 个设备"
    ),
    "row 3: 12 tokens, cut from 44, 5 learnt (42 %)": (
        "第 3 行：12 个 token，由 44 截断而来，其中 5 个参与学习（42 %）"
    ),
    "(!) no news for 12 s; last: training": "(!) 已 12 s 没有消息；最后：训练中",
    "18 ok, 0 to note, 1 warning, 0 failed": "18 正常，0 项提示，1 个警告，0 项失败",
    "LoRA r8 fp32, DDP on 2 CPU ranks": "LoRA r8 fp32，DDP，2 个 CPU rank",
    "--model and --data must be given": "必须给出 --model 和 --data",
    "compare, pack": "compare, pack",
    "From your last run. Enter reads the file; Enter again goes on to the plans.": (
        "来自上一次任务。Enter 读取文件；再按 Enter 前往方案。"
    ),
    "learning_rate = 'x': input should be a valid number, unable to parse string as a number": (
        "learning_rate = 'x'：应为数字"
    ),
    "changes with 50,000 rows or more: 64": "变化条件：50,000 条或更多样本：64",
}


@pytest.mark.parametrize("english", SAID)
def test_texts_that_are_joined_are_said_piece_by_piece(english: str) -> None:
    assert CHINESE_TEXTS.said(english) == SAID[english]


@pytest.mark.parametrize(
    "name",
    [
        "Data",
        "Model",
        "free",
        "none",
        "Checks",
        "quality/assurance",
        "a picture of b",
        "plan",
        "resume",
    ],
)
def test_a_name_that_is_also_a_text_stays_a_name(name: str, chinese: None) -> None:
    from wizard.widgets.table import Column, lines, pairs

    assert name in pairs([("folder", name)]).plain
    columns = (Column(title="name", names=True), Column(title="fits"))
    assert lines(columns, [(name, "yes")], 60)[1].split("  ")[0] == name
    assert name in language.said(f"no run named {name!r}")
    assert language.said_problem(Problem(what="no such file", where=name)).startswith(name)


@pytest.mark.parametrize(
    ("arguments", "environment", "expected"),
    [
        ([], {}, "en"),
        ([], {"LANG": "C.UTF-8"}, "en"),
        ([], {"LANG": "zh_CN.UTF-8"}, "zh_CN"),
        ([], {"LANG": "zh_SG.UTF-8"}, "zh_CN"),
        ([], {"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, "en"),
        ([], {"LANG": "de_DE.UTF-8"}, "en"),
        ([], {"LANG": "en_US.UTF-8", "LANGUAGE": "fr:zh_CN:en"}, "zh_CN"),
        ([], {"LANG": "zh_CN.UTF-8", "TUNEWRIGHT_LANG": "en"}, "en"),
        (["--lang", "zh"], {"TUNEWRIGHT_LANG": "en"}, "zh_CN"),
        (["plan", "--lang=zh-Hans"], {}, "zh_CN"),
        (["run", "--lang", "zh", "--", "--lang", "en"], {}, "zh_CN"),
    ],
)
def test_the_nearest_word_about_the_language_decides(
    arguments: list[str], environment: dict[str, str], expected: str
) -> None:
    assert language.wanted(arguments, environment) == expected


@pytest.mark.parametrize(
    ("arguments", "environment"), [(["--lang", "xx"], {}), ([], {"TUNEWRIGHT_LANG": "xx"})]
)
def test_a_language_that_is_not_there_is_refused(
    arguments: list[str], environment: dict[str, str]
) -> None:
    with pytest.raises(ProblemError, match="no language `xx`") as refused:
        language.wanted(arguments, environment)
    assert refused.value.problem.exit_code == 2


def test_adding_a_language_is_one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copy(CATALOGUES / "zh_CN.po", tmp_path / "eo.po")
    monkeypatch.setattr(language, "CATALOGUES", tmp_path)
    assert languages() == ("en", "eo")
    assert language.wanted(["--lang", "eo"], {}) == "eo"


def test_english_reads_no_catalogue() -> None:
    code = (
        "import sys; from wizard.cli import main; main(['presets', 'list']);"
        "assert 'polib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        main(arguments)
    except SystemExit:
        pass
    finally:
        language.use(language.ENGLISH)
    captured = capsys.readouterr()
    return captured.out + captured.err


PLAN = ("plan", "--machine", "L40S", "--model", "Qwen/Qwen3-0.6B", "--data")


@pytest.fixture
def rows(tmp_path: Path) -> str:
    file = tmp_path / "Data.jsonl"
    turns = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    file.write_text((json.dumps({"messages": turns}) + "\n") * 30, encoding="utf-8")
    return str(file)


def test_programs_and_files_read_the_same_in_every_language(
    capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    for option in ("--json", "--dry-run"):
        english = told(capsys, *PLAN, rows, option, "--name", "r")
        assert told(capsys, "--lang", "zh", *PLAN, rows, option, "--name", "r") == english


@pytest.mark.wide
def test_commands_speak_chinese_and_leave_names_alone(
    capsys: pytest.CaptureFixture[str], rows: str
) -> None:
    plan = told(capsys, *PLAN, rows, "--lang", "zh", "--all")
    assert "单个 rank 的预测内存" in plan
    assert "learning_rate = " in plan
    assert rows in plan
    assert max(map(wording.cells, plan.splitlines()[1:])) <= max(80, len(rows) + 40)
    expected = {
        ("data", "check", rows): "条样本",
        ("probe", "--machine", "8xH100-SXM"): "互联组",
        ("model", "show", "Qwen/Qwen3-8B", "--machine", "L40S"): "许可证",
        ("runs",): "中没有任务",
        ("runs", "rename", "a", "b"): "没有叫 'a' 的任务",
        ("--help",): "显示这台机器能怎样训练",
        ("plan", "--help"): "退出码：0 正常，1 失败，2 用法错误，4 数据有问题",
        ("settings", "list", "lora_rank"): "lora_rank（整数，1 到 1,048,576）：适配器的秩",
        ("model", "search", "Qwen3-0.6B"): "Qwen/Qwen3-0.6B：596.0 M，",
        ("frobnicate",): "pack，chat，presets，settings",
        ("plan", "--nonsense"): "没有选项 --nonsense",
        ("settings", "show", "lora_rank"): "适配器的秩",
        ("doctor",): "项失败",
    }
    for arguments, word in expected.items():
        assert word in told(capsys, "--lang", "zh", *arguments), arguments


@given(st.text(alphabet="ab ,。（中文字）", max_size=80), st.integers(4, 40))
def test_wrapped_text_keeps_to_its_width_and_loses_nothing(text: str, width: int) -> None:
    lines = wording.wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    words = re.findall("[ab]+", text)
    longest = max(map(len, words), default=0) + 8
    assert all(wording.cells(line) <= max(width, longest) for line in lines) or "。" in text


@given(st.text(max_size=40), st.integers(2, 30))
def test_cut_text_takes_no_more_cells_than_there_are(text: str, width: int) -> None:
    assert wording.cells(wording.cut(text, width)) <= width
    assert wording.cells(wording.shorten(text, width)) <= width


def test_fragments_are_words_that_nobody_is_called() -> None:
    words = {entry.msgid for entry in entries("zh_CN") if entry.msgctxt == FRAGMENT}
    assert not words & {"Data", "Model", "Plan", "run", "data", "model", "plan"}


def test_words_of_the_field_are_explained_in_every_language(chinese: None) -> None:
    from wizard.glossary import GLOSSARY, glossary

    told = glossary(GLOSSARY).split("\n")[1:]
    assert len(told) == len(GLOSSARY)
    for word, line in zip(GLOSSARY, told, strict=True):
        assert line.startswith(f"{word}：")
        assert CHINESE.search(line)


@pytest.mark.wide
def test_whatever_is_counted_is_a_noun_of_the_catalogues() -> None:
    calls = [
        call
        for path in CATALOGUES.parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("counted", "wording.counted")
    ]
    nouns = [call.args[1] for call in calls if len(call.args) == 2]
    assert len(nouns) > 20
    named = {noun.value for noun in nouns if isinstance(noun, ast.Constant)}
    assert named <= {*NOUNS}
    variable = {ast.unparse(noun) for noun in nouns if not isinstance(noun, ast.Constant)}
    assert variable <= {"unit", "unit_of(stage)"}, "it says `block`, `pack`, `row` or a device's"
    for noun in NOUNS:
        assert CHINESE.search(CHINESE_TEXTS.said(f"3 {noun}s").replace("rank", "个")), noun


COMMAND_OF_README = re.compile(r"^(?:tunewright|\./install\.sh)[^#\n]*", re.MULTILINE)


def test_the_chinese_readme_gives_commands_of_the_english_one() -> None:
    root = CATALOGUES.parents[1]
    theirs, ours = (
        [one.strip() for one in COMMAND_OF_README.findall((root / name).read_text("utf-8"))]
        for name in ("README.md", "README.zh_CN.md")
    )
    assert len(ours) > 10
    assert {*ours} <= {*theirs}
