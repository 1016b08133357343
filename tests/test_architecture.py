"""The drawing, enforced: who may load what, what the command offers, what is shipped."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import tree
from wizard.cli import build_parser

ROOT = tree.ROOT
TRAINING_STACK = {
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "deepspeed",
    "bitsandbytes",
    "pandas",
    "pyarrow",
}
SCREEN_STACK = {"textual", "rich", "plotext"}
OUTSIDE_WORLD = {"subprocess", "asyncio", "multiprocessing"}

CORE = [
    "wizard.facts",
    "wizard.answers",
    "wizard.plan",
    "wizard.problem",
    "wizard.planner",
    "wizard.steps",
    "wizard.script",
    "wizard.dashboard.state",
    "wizard.dashboard.health",
    "engine.spec",
    "engine.settings",
    "engine.events",
]


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def loaded_by(*modules: str) -> set[str]:
    """Names in sys.modules of a fresh interpreter after it imported these modules."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
    )
    return set(output.stdout.split())


@pytest.mark.wide
def test_the_whole_wizard_with_every_screen_loads_nothing_that_trains() -> None:
    modules = [module_name(path) for path in (ROOT / "wizard").rglob("*.py")]
    modules.remove("wizard.__main__")

    assert loaded_by(*modules) & TRAINING_STACK == set()


def test_the_command_starts_without_textual() -> None:
    assert loaded_by("wizard.cli") & (SCREEN_STACK | TRAINING_STACK) == set()


def test_the_first_frame_needs_none_of_what_only_later_pages_need() -> None:
    code = "from wizard.app import TunewrightApp; from wizard.commands.verbs import verbs; verbs()"
    output = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        cwd=ROOT,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    later = {"pydantic", "tomlkit", "plotext", "wizard.planner", "engine.spec"}
    assert later & set(output.stdout.split()) == set()


def test_the_core_loads_neither_screens_nor_processes_nor_what_trains() -> None:
    assert loaded_by(*CORE) & (SCREEN_STACK | OUTSIDE_WORLD | TRAINING_STACK) == set()


@pytest.mark.parametrize("module", ["engine.watch", "engine.events"])
def test_what_outlives_the_ranks_is_standard_library_only(module: str) -> None:
    code = f"import sys; import {module}; print(*sys.modules)"
    bare = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE
    )

    foreign = {name.split(".")[0] for name in bare.stdout.split()} - sys.stdlib_module_names

    assert foreign <= {"engine", "__main__"}


def test_the_engine_loads_without_the_wizard_and_its_screens() -> None:
    # recipes and train load the training stack, which brings rich along; import rules cover those.
    modules = ["engine.spec", "engine.events", "engine.fetch", "engine.failure"]

    assert not [name for name in loaded_by(*modules) if name.split(".")[0] in {"wizard", "textual"}]


def test_every_module_begins_with_its_purpose_in_one_line() -> None:
    without = [str(path) for path in tree.modules() if not tree.purpose(path).endswith((".", ":"))]

    assert without == []


def test_the_tree_in_the_readme_is_the_tree_of_files() -> None:
    assert tree.readme_tree() == tree.tree(), "python -m tests.tree writes it anew"


def test_the_import_rules_hold() -> None:
    result = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )

    assert result.returncode == 0, result.stdout


def test_the_command_line_is_the_one_written_down() -> None:
    today = "\n".join(tree.command_line(build_parser(), "tunewright")) + "\n"

    assert tree.COMMAND_LINE.read_text(encoding="utf-8") == today


def test_every_command_in_the_readme_is_one_that_the_program_takes() -> None:
    readme = tree.README.read_text(encoding="utf-8")
    commands = re.findall(r"^tunewright.*", readme, flags=re.MULTILINE)

    for command in commands:
        build_parser().parse_args(shlex.split(command, comments=True)[1:])

    assert len(commands) > 5


@pytest.mark.wide
def test_the_wheel_carries_presets_styles_and_templates(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("*.whl")

    shipped = set(zipfile.ZipFile(wheel).namelist())

    assert data_files() <= shipped


def data_files() -> set[str]:
    """Everything beside the code that the program reads, named as in the wheel."""
    presets = {
        f"wizard/{path.relative_to(ROOT)}"
        for path in (ROOT / "presets").rglob("*.*")
        if _kept(path)
    }
    beside_code = {
        str(path.relative_to(ROOT))
        for package in ("wizard", "engine")
        for path in (ROOT / package).rglob("*.*")
        if _kept(path)
    }
    assert len(presets) > 3
    return presets | beside_code


def _kept(path: Path) -> bool:
    return path.is_file() and "__pycache__" not in path.parts


# Written apart, so that this file does not hold what it looks for.
FORBIDDEN = re.compile(
    "|".join(["/wo" + "rk/", r"\.\./sha" + "red", "py" + r"pi\.org", "python" + r"hosted\.org"])
)


def test_no_file_names_the_place_where_it_was_written() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout
    texts = (ROOT / name for name in listed.split("\0") if name)

    found = [
        str(path.relative_to(ROOT))
        for path in texts
        if path.is_file() and FORBIDDEN.search(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert found == []
