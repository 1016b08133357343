"""What is written down about the program, made from it: `python -m tests.tree` writes it anew."""

from __future__ import annotations

import argparse
import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
COMMAND_LINE = ROOT / "tests" / "command_line.txt"
BEGIN = "<!-- tree: python -m tests.tree -->\n```\n"
END = "```\n<!-- /tree -->"
PURPOSE_COLUMN = 27

# Files that cannot say themselves what they are for, and folders whose files are alike.
OTHERS = {
    "install.sh": "a fresh machine → an environment of its own with the fitting torch build",
    "pyproject.toml": "dependencies, each with a reason; the import contracts; linters and tests",
    "constraints.txt": "the tested version of everything",
    "presets/": "named answers (TOML), fact tables and the demo's data: data, never code",
    "tests/": "mirrors the source",
    "benchmarks/": "what we claim about speed, measured",
    "docs/": "architecture.md, the drawing; results/, dated tables of what is run by hand",
}


def tree() -> str:
    """Every source file with its purpose line, folders before what they hold."""
    lines = [_line(name, purpose, depth=0) for name, purpose in OTHERS.items()]
    for package in ("wizard", "engine"):
        lines += ["", *_package(ROOT / package, depth=0)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


@functools.cache
def purpose(module: Path) -> str:
    """First line of a module's docstring; empty when there is none."""
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return docstring.split("\n", 1)[0]


def modules() -> Iterator[Path]:
    """All Python files of the program."""
    for package in ("wizard", "engine"):
        yield from sorted((ROOT / package).rglob("*.py"))


def _package(folder: Path, depth: int) -> Iterator[str]:
    yield _line(f"{folder.name}/", purpose(folder / "__init__.py"), depth)
    for module in sorted(folder.glob("*.py")):
        if module.name != "__init__.py":
            yield _line(module.name, purpose(module), depth + 1)
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        yield from _package(inner, depth + 1)


def _line(name: str, purpose_line: str, depth: int) -> str:
    return f"{'  ' * depth + name:<{PURPOSE_COLUMN}}{purpose_line}"


def readme_tree() -> str:
    """The tree as the README has it now."""
    return README.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]


def command_line(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """One line for a command and for each below it: its arguments."""
    below: list[tuple[str, argparse.ArgumentParser]] = []
    words = [name]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = list(action.choices.items())
        elif action.dest != "help" and action.help != argparse.SUPPRESS:
            words.append("/".join(action.option_strings) or str(action.metavar or action.dest))
    yield " ".join(words)
    for word, inner in below:
        yield from command_line(inner, f"{name} {word}")


def write() -> None:
    """Put the tree of today into the README, and the command line beside its test."""
    from wizard.cli import build_parser

    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    README.write_text(f"{before}{BEGIN}{tree()}{END}{after}", encoding="utf-8")
    lines = command_line(build_parser(), "tunewright")
    COMMAND_LINE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
