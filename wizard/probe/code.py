"""The user's own code that a run plugs in: where it is, and whether it has the name; never run."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from pathlib import Path

from engine.spec import PLUGIN, plugins
from engine.theirs import quoted, why
from wizard import paths
from wizard.problem import Problem, ProblemError


def located(kind: str, text: str) -> str:
    """A plug-in's `file.py:name` by the absolute path of its file; several stay several.

    Raises ProblemError for a file that is not there, is no Python, or lacks the name.
    """
    return ",".join(_located(f"plugins.{kind}", one) for one in plugins(text))


def _located(where: str, text: str) -> str:
    found = PLUGIN.fullmatch(text)
    assert found is not None, "the spec has checked it"
    file = paths.expanded(found["file"], where).absolute()
    if "," in str(file):
        raise _refused("a comma separates plug-ins, and this path has one", where, "move the file")
    names = _names(file, where)
    if found["name"] not in names:
        near = difflib.get_close_matches(found["name"], names, n=1)
        there = f"it has {', '.join(names)}" if names else "it has no names"
        hint = f"did you mean {near[0]}?" if near else there
        raise _refused(f"{file} has no `{found['name']}`", where, hint)
    return f"{file}:{found['name']}"


def _names(file: Path, where: str) -> list[str]:
    """What a file defines at its top level."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except OSError as error:
        raise _refused(f"{file}: {why(error)}", where, "check the path") from None
    except SyntaxError as error:
        what = f"{file}, line {error.lineno}: {quoted(error.msg)}"
        raise _refused(what, where, "repair the file") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise _refused(
            f"{file} is no Python file: {why(error)}", where, "repair the file"
        ) from None
    return list(dict.fromkeys(_defined(tree)))


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((name.asname or name.name).partition(".")[0] for name in node.names)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _defined(node)


def _refused(what: str, where: str, fix: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=2))
