"""Presets: what they may carry, where they live, and that nothing is dropped on the way."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.spec import SETTINGS
from wizard import __version__, paths, presets
from wizard.answers import Preset
from wizard.cli import main
from wizard.problem import ProblemError

HEAD = 'schema = 1\ntitle = "T"\n'
SHIPPED = len(list(paths.shipped_presets().glob("*.toml")))
SAVED = Path(__file__).parent / "saved"


def refusal(text: str) -> str:
    with pytest.raises(ProblemError) as caught:
        presets.loads(text, "mine", "file")
    assert caught.value.problem.exit_code == 2
    return str(caught.value)


def test_the_shipped_presets_are_whole() -> None:
    found = presets.shipped_and_saved()
    assert len(found) >= 15
    assert {"full-sft-small-model", "lora-sft-small-card", "qlora-sft-large-model"} <= {
        preset.name for preset in found
    }
    assert len({preset.title for preset in found}) == len(found)
    for preset in found:
        assert presets.NAME.fullmatch(preset.name)
        assert preset.title
        assert preset.description
        assert preset.settings
        assert preset.origin == "shipped"


def test_aliases_become_the_settings_names() -> None:
    preset = presets.loads(HEAD + "[settings]\nlr = 1e-4\nr = 8\n", "mine", "file")
    assert preset.settings == {"learning_rate": 1e-4, "lora_rank": 8}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("title = ", "not valid TOML"),
        ('title = "T"', "this version reads schema = 1"),
        ('schema = 2\ntitle = "T"', "schema is 2"),
        (HEAD + 'titel = "T"', "did you mean `title`"),
        (HEAD + 'trust_remote_code = "yes"', "it would run code that comes with a model"),
        (HEAD + "[env]\nA = 'b'", "change the environment"),
        (HEAD + "[settings]\ncommand = 'rm'", "it would run a command"),
        (HEAD + "[settings]\ntrust_remote_code = true", "not allowed in a preset"),
        (HEAD + "[settings]\ndevices = ['GPU-1']", "devices of one machine"),
        (HEAD + "[settings]\nlearnin_rate = 1", "did you mean `learning_rate`"),
        (HEAD + "[settings]\nlearning_rate = -1", "greater than 0"),
        (HEAD + "[settings]\nlr = 1\nlearning_rate = 1", "given twice"),
        (HEAD + "[settings]\nmodel = '/home/me/model'", "a path on one machine"),
        (HEAD + "[settings]\nmodel = '~/model'", "a path on one machine"),
        (HEAD + "[settings]\ndata = '../rows.jsonl'", "a path on one machine"),
        (HEAD + "settings = 3", "is not a table"),
        (HEAD + 'goal = "cheap"', "one of quality"),
        ('schema = 1\ntitle = "a\\nb"', "not one line of text"),
    ],
)
def test_what_a_preset_may_not_carry_is_refused(text: str, what: str) -> None:
    assert what in refusal(text)


GIVEN = st.fixed_dictionaries(
    {},
    optional={
        "learning_rate": st.floats(1e-7, 1e-2),
        "method": st.sampled_from(["full", "lora", "qlora"]),
        "lora_rank": st.integers(1, 256),
        "gradient_checkpointing": st.booleans(),
        "system": st.text(max_size=40).filter(lambda t: t.lower() not in ("", "none", "null")),
    },
)


@given(
    title=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1),
    goal=st.sampled_from([None, "quality", "fastest", "least-memory"]),
    settings=GIVEN,
)
def test_what_is_written_is_read_again(title: str, goal: Any, settings: dict[str, Any]) -> None:
    preset = Preset(name="mine", title=title, goal=goal, settings=settings, origin="saved")
    assert presets.loads(presets.dumps(preset), "mine", "saved") == preset


def test_a_saved_preset_is_found_by_name_and_by_path(own_home: Path) -> None:
    preset = Preset(name="mine", title="Mine", settings={"lora_rank": 8}, origin="saved")
    path = presets.save(preset)
    assert path.parent == own_home / "presets"
    assert presets.load("mine") == preset
    assert presets.load(str(path)).settings == {"lora_rank": 8}
    assert preset in presets.shipped_and_saved()


def test_saving_again_replaces_the_file_and_leaves_nothing_beside_it(own_home: Path) -> None:
    for rank in (8, 16):
        presets.save(Preset(name="mine", title="M", settings={"lora_rank": rank}))
    assert presets.load("mine").settings == {"lora_rank": 16}
    assert [path.name for path in (own_home / "presets").iterdir()] == ["mine.toml"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "a b", "x" * 65, "a\n", "a.toml"])
def test_a_name_that_cannot_be_a_file_is_refused(own_home: Path, name: str) -> None:
    with pytest.raises(ProblemError, match="not a usable preset name"):
        presets.save(Preset(name=name, title="T"))
    assert not (own_home / "presets").exists()


def test_a_shipped_name_is_not_taken() -> None:
    with pytest.raises(ProblemError, match="a shipped preset has this name"):
        presets.save(Preset(name="lora-sft-small-card", title="T"))


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(ProblemError, match="did you mean lora-sft-small-card"):
        presets.load("lora-sft-smallcard")


def test_a_damaged_saved_file_is_told_and_does_not_hide_the_others(own_home: Path) -> None:
    folder = own_home / "presets"
    folder.mkdir()
    (folder / "bad.toml").write_text("schema = ")
    assert len(presets.shipped_and_saved()) == SHIPPED
    (problem,) = presets.broken()
    assert "not valid TOML" in problem.what


def test_a_file_nested_too_deeply_is_told_and_does_not_hide_the_others(own_home: Path) -> None:
    folder = own_home / "presets"
    folder.mkdir()
    (folder / "deep.toml").write_text("a=" + "[" * 100_000)
    assert len(presets.shipped_and_saved()) == SHIPPED
    (problem,) = presets.broken()
    assert "nested too deeply" in problem.what


def test_only_regular_files_of_a_presets_size_are_read(own_home: Path) -> None:
    folder = own_home / "presets"
    folder.mkdir()
    os.mkfifo(folder / "pipe.toml")
    (folder / "folder.toml").mkdir()
    (folder / "zero.toml").symlink_to("/dev/zero")
    (folder / "large.toml").write_bytes(b"#" * (2 * 1024**2))
    assert len(presets.shipped_and_saved()) == SHIPPED
    told = [problem.what for problem in presets.broken()]
    assert told == ["not a regular file", "larger than 1 MiB"] + ["not a regular file"] * 2
    with pytest.raises(ProblemError, match="not a regular file"):
        presets.load("/dev/zero")


@pytest.mark.parametrize("name", ["x" * 300 + ".toml", "a/" * 3000, "~nosuchuser/p.toml", "/\0"])
def test_a_name_that_no_file_has_is_one_sentence(name: str) -> None:
    with pytest.raises(ProblemError) as caught:
        presets.load(name)
    assert caught.value.problem.exit_code == 2


@pytest.mark.parametrize("file", sorted(SAVED.glob("preset-*.toml")), ids=lambda path: path.stem)
def test_a_preset_of_an_old_version_loads_for_ever(file: Path) -> None:
    """One file for each version that could save presets; nothing in them is ever changed."""
    preset = presets.load(str(file))
    assert preset.title == "LoRA for support answers"
    assert preset.goal == "fastest"
    assert preset.settings["method"] == "lora"
    assert preset.settings["system"] == "/no_think"
    assert len(preset.settings) >= 10


def test_every_version_has_left_a_preset() -> None:
    assert (SAVED / f"preset-{__version__}.toml").is_file()


def test_a_preset_of_ones_own_is_deleted_and_a_shipped_one_is_not(own_home: Path) -> None:
    presets.save(Preset(name="mine", title="M", settings={"lora_rank": 8}))
    with pytest.raises(ProblemError, match="did you mean mine"):
        presets.delete("mien")
    presets.delete("mine")
    assert list((own_home / "presets").iterdir()) == []
    with pytest.raises(ProblemError, match="a shipped preset stays as it is"):
        presets.delete("first-try")
    for name in ("../first-try", "", "/etc/passwd"):
        with pytest.raises(ProblemError, match="no preset of your own"):
            presets.delete(name)


def test_a_new_file_never_replaces_one(tmp_path: Path) -> None:
    file = presets.write_new(tmp_path / "p.toml", "one")
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ProblemError, match="there is a file already"):
        presets.write_new(file, "two")
    assert file.read_text() == "one"
    assert [path.name for path in file.parent.iterdir()] == ["p.toml"]


@pytest.mark.parametrize(
    "settings",
    ["nvme_path = '/mnt/x'", "target_modules = '~/x'", "revision = '../../x'", "model = 'C:\\m'"],
)
def test_no_setting_carries_a_path_into_one_machine(settings: str) -> None:
    if settings.partition(" ")[0] in SETTINGS:
        assert "a path on one machine" in refusal(HEAD + f"[settings]\n{settings}")


EDITOR = """\
#!/usr/bin/env bash
printf '%s' "$EDITED" >>"$2"
exit "${EDITOR_CODE:-0}"
"""


@pytest.mark.parametrize(
    ("added", "code", "rank", "ends"),
    [
        ("lora_alpha = 64\n", "0", 64, 0),
        ("lora_alpa = 64\n", "0", None, 2),
        ("lora_alpha = 64\n", "3", None, 1),
        ("", "0", None, 0),
    ],
)
def test_an_edited_preset_takes_its_place_only_when_it_can_be_used(
    own_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    added: str,
    code: str,
    rank: int | None,
    ends: int,
) -> None:
    editor = tmp_path / "an editor"
    editor.write_text(EDITOR)
    editor.chmod(0o700)
    monkeypatch.setenv("EDITOR", f"'{editor}' -f")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITED", added)
    monkeypatch.setenv("EDITOR_CODE", code)
    presets.save(Preset(name="mine", title="M", settings={"lora_rank": 8}))
    assert main(["presets", "edit", "mine"]) == ends
    assert presets.load("mine").settings.get("lora_alpha") == rank


def test_a_shared_preset_becomes_ones_own(own_home: Path, tmp_path: Path) -> None:
    file = tmp_path / "shared.toml"
    assert main(["presets", "show", "sft-lora-8b-24gb", "-o", str(file)]) == 0
    assert main(["presets", "save", "mine", "--from", str(file)]) == 0
    assert presets.load("mine").settings == presets.load("sft-lora-8b-24gb").settings
    assert main(["presets", "delete", "mine"]) == 0
    assert main(["presets", "delete", "mine"]) == 2
