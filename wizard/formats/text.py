"""YAML, comments and here-documents in which foreign text stays text."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from engine import theirs
from engine.events import printable
from wizard.problem import Problem, ProblemError

LIMIT_BYTES = 1024**2
"""A larger file is no configuration."""


class Block(str):
    """Text that YAML is to show line by line where it can."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Plain values only, and no anchors: two equal lists are two lists."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


class _RefusedError(yaml.YAMLError):
    """What YAML or JSON allow, and no configuration may hold."""


class _Loader(yaml.SafeLoader):
    """Plain values only; a key given twice is an error, not the last one's silent win."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise _RefusedError(f"line {event.start_mark.line + 1}: anchors are not followed here")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = getattr(key, "value", None)
            if isinstance(name, str):
                if name in seen:
                    line = key.start_mark.line + 1
                    raise _RefusedError(f"line {line}: `{printable(name)}` is given twice")
                seen.add(name)
        return super().construct_mapping(node, deep=deep)


_TEXT = "tag:yaml.org,2002:str"


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    # PyYAML folds line ends that only YAML knows when it may use single quotes.
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar(_TEXT, text, style=style)


def _block(dumper: yaml.SafeDumper, text: Block) -> yaml.Node:
    odd = any(not line.isprintable() for line in text.split("\n"))
    return dumper.represent_scalar(_TEXT, str(text), style='"' if odd else "|")


_Dumper.add_representer(str, _text)
_Dumper.add_representer(Block, _block)


def yaml_text(values: Mapping[str, Any]) -> str:
    """YAML of plain values, in their order; reading it gives them back."""
    return yaml.dump(dict(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=4096)


def read_mapping(text: str, where: str) -> dict[str, Any]:
    """The mapping in a JSON or YAML text.

    Raises ProblemError for text that is neither, or holds something else.
    """
    try:
        if text.lstrip().startswith("{"):
            found = json.loads(text, object_pairs_hook=_each_once)
        else:
            found = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ProblemError(_unreadable(error, where)) from None
    if not isinstance(found, dict) or not found:
        what = "holds no settings: a mapping of names to values is wanted"
        raise ProblemError(Problem(what=what, where=where, exit_code=2))
    return {str(key): value for key, value in found.items()}


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"`{printable(twice)}` is given twice")
    return found


def _unreadable(error: Exception, where: str) -> Problem:
    return Problem(
        what=str(_refusal(error)),
        where=where,
        fix="give the file as its trainer reads it",
        exit_code=2,
    )


def _refusal(error: Exception) -> _RefusedError:
    if isinstance(error, _RefusedError):
        return error
    if isinstance(error, RecursionError):
        return _RefusedError("nested too deeply")
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line = error.problem_mark.line + 1
        return _RefusedError(f"not valid YAML: line {line}: {theirs.quoted(error.problem)}")
    return _RefusedError(f"cannot be read: {theirs.why(error)}")


def comments(lines: Iterable[str]) -> str:
    """Lines as comments of bash, YAML and TOML: each stays one line, whatever it holds."""
    return "".join(f"# {printable(line)}".rstrip() + "\n" for line in lines)


def document(command: str, text: str, word: str) -> str:
    """A here-document: bash takes the lines as they are up to a delimiter no line equals."""
    assert text.endswith("\n"), "a here-document holds whole lines"
    lines = set(text.splitlines())
    while word in lines:
        word += "_" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return f"{command} <<'{word}'\n{text}{word}"


def quoted(text: str) -> str:
    """One word of bash."""
    return shlex.quote(text)
