"""What others wrote (errors of the system or a library) reaches a person quoted, or not at all.

A text of ours is looked up in the catalogues where it is shown; one of somebody else must not be.
So an error that is not of our own classes becomes words through `engine.theirs` alone.
"""

from __future__ import annotations

import ast
import errno
import json
import os
import re
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.theirs import quoted, why, with_class
from tests.test_language import catalogue
from tests.texts import ROOT
from wizard import language
from wizard.problem import Problem

TO_WORDS = frozenset({"why", "with_class", "quoted"})
NUMBERS = frozenset(
    {
        "errno",
        "lineno",
        "colno",
        "code",
        "pos",
        "start",
        "problem_mark",
        "filename",
        "name",
        "url",
        "doc",
    }
    | {"errors", "__traceback__", "problem", "failure", "what", "fix", "line"}
)
"""What is no text, or is said as the name of a file or module."""
ONLY_LOOKED_AT = frozenset(
    {"isinstance", "type", "class_of_text", "startswith", "search", "getattr", "format_exception"}
)
OF_OUR_OWN_MAKING = {
    ("engine/settings.py", "_translated"): "what `engine.aliases` raises is ours",
    ("engine/plugins.py", "_module"): "the name of a module that is missing",
    ("engine/theirs.py", "why"): "it is what quotes",
    ("engine/theirs.py", "with_class"): "it is what quotes",
    ("engine/theirs.py", "is_of_the_system"): "it compares",
    ("engine/failure.py", "classify"): "where it takes the words as they are, they are ours",
    ("engine/hub/modelscope.py", "refusal"): "a list of errors, not of words",
    ("engine/adapter.py", "_continued"): "the line it finds is quoted",
    ("engine/hub/choice.py", "_first_sentence"): "the sentence it finds is quoted",
    ("engine/rows/lines.py", "reason"): "words of Python for what is no JSON: catalogues have them",
    ("engine/unpack.py", "main"): "the wizard quotes what this process says",
    ("wizard/formats/text.py", "_refusal"): "its first case is ours",
    ("wizard/demo/model.py", "download"): "handed on to what quotes it",
    ("wizard/probe/network.py", "ask"): "a fact; what tells it quotes it",
    ("wizard/probe/network.py", "explain"): "a fact; what tells it quotes it",
    ("wizard/probe/nvml_calls.py", "trouble"): "a fact; what tells it quotes it",
    ("wizard/probe/running.py", "run"): "what a command said; who tells it quotes it",
}
MODULES = [
    path for package in ("wizard", "engine") for path in sorted((ROOT / package).rglob("*.py"))
]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
OURS = frozenset(
    node.name
    for tree in TREES.values()
    for node in ast.walk(tree)
    if isinstance(node, ast.ClassDef)
)


@pytest.mark.wide
def test_an_error_of_others_becomes_words_in_one_place_alone() -> None:
    told = [
        f"{path.relative_to(ROOT)}:{node.lineno} {function}: {ast.unparse(node)}"
        for path, tree in TREES.items()
        for function, node in told_raw(tree)
        if (path.relative_to(ROOT).as_posix(), function) not in OF_OUR_OWN_MAKING
    ]
    assert not told, "say it through engine.theirs:\n" + "\n".join(told)


def told_raw(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(function, expression) for each text of an error of others that is not quoted."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for scope, name, function in scopes(tree, ""):
        for node in ast.walk(scope):
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                found = unquoted(node, parents)
                if found is not None:
                    yield function, found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("strerror", "stderr", "err"):
            if ast.unparse(node) == "sys.stderr":
                continue
            around = function_around(node, parents)
            if around is not None and not is_silent(around):
                yield around.name, node


def scopes(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str, str]]:
    """(where it holds, name, function): what a handler or a parameter calls an error of others."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, ast.FunctionDef) else function
        if isinstance(child, ast.ExceptHandler) and child.name and not only_ours(child.type):
            yield child, child.name, inside
        if isinstance(child, ast.FunctionDef):
            for argument in child.args.args:
                if argument.annotation is not None and is_error(argument.annotation):
                    yield child, argument.arg, inside
        yield from scopes(child, inside)


def only_ours(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return all(isinstance(one, ast.Name) and one.id in OURS for one in kinds)


def is_error(annotation: ast.expr) -> bool:
    named = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return any(name.endswith(("Error", "Exception")) and name not in OURS for name in named)


def unquoted(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> ast.expr | None:
    """The outermost expression in which the error's own words leave; None where they do not."""
    before: ast.AST = node
    parent = parents[node]
    while isinstance(parent, ast.expr | ast.keyword | ast.comprehension | ast.FormattedValue):
        if isinstance(parent, ast.Compare):
            return None
        if isinstance(parent, ast.Attribute) and parent.attr in NUMBERS:
            return None
        if isinstance(parent, ast.Call):
            called = ast.unparse(parent.func).rpartition(".")[2]
            if called in TO_WORDS | ONLY_LOOKED_AT:
                return None
            if called not in ("str", "repr") and before is node and node in parent.args:
                return None  # a function that takes the error itself: its parameter is looked at
        before, parent = parent, parents[parent]
    if isinstance(parent, ast.Raise | ast.If | ast.While | ast.Assert) and before is node:
        return None
    assert isinstance(before, ast.expr)
    return before if before is not node else None


def function_around(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.FunctionDef | None:
    while node in parents and not isinstance(node, ast.FunctionDef):
        node = parents[node]
    return node if isinstance(node, ast.FunctionDef) else None


def is_silent(function: ast.FunctionDef) -> bool:
    """Whether a function says nothing of its own, or quotes what it says of others."""
    calls = {
        ast.unparse(node.func).rpartition(".")[2]
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    }
    says = any(isinstance(node, ast.JoinedStr) for node in ast.walk(function)) or "Problem" in calls
    return not says or bool(calls & TO_WORDS)


OWN_TEXTS = sorted(catalogue("zh_CN").whole)


@pytest.fixture(scope="module", autouse=True)
def chinese() -> Iterator[None]:
    language.use("zh_CN")
    yield
    language.use(language.ENGLISH)


@given(st.one_of(st.sampled_from(OWN_TEXTS), st.text(max_size=40)))
@settings(max_examples=100, deadline=None)
def test_what_is_quoted_is_never_translated(text: str) -> None:
    theirs = quoted(text)
    told = language.said(f"not valid TOML: {theirs}")
    assert told == f"不是有效的 TOML：{theirs}"
    assert language.said_value(theirs) == theirs
    assert language.said(f"ValueError: {theirs}; check the disk").endswith(f"{theirs}；检查磁盘")


@given(st.sampled_from(OWN_TEXTS), st.sampled_from(["/data/", "./", "~/"]))
@settings(max_examples=100, deadline=None)
def test_a_file_that_is_called_like_a_text_of_ours_keeps_its_name(text: str, folder: str) -> None:
    where = f"{folder}{text}"
    told = language.said_problem(Problem(what="no such file", where=where, fix="check the path"))
    assert told == f"{where}：没有这个文件（检查路径）"
    told = language.said_problem(Problem(what="the file is empty", where=f"{where}, line 3"))
    assert told == f"{where}，第 3 行：文件是空的"


@pytest.mark.parametrize("name", ["Data", "no dataset", "unknown model", "the file is empty"])
def test_a_name_without_a_folder_is_no_text_of_ours_either(name: str) -> None:
    told = language.said_problem(Problem(what="no such file", where=name))
    assert told == f"{name}：没有这个文件"


def test_words_of_the_system_are_ours_and_all_other_words_are_quoted() -> None:
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "Data")
    assert language.said(f"cannot be read: {why(missing)}") == "无法读取：没有这个文件或目录"
    odd = OSError(errno.ENOENT, "no dataset")
    assert language.said(f"cannot be read: {why(odd)}") == "无法读取：“no dataset”"
    broken = json.JSONDecodeError("Expecting value", "\n", 1)
    assert language.said(f"cannot be read: {why(broken)}") == "无法读取：第 2 行第 1 列：缺少值"
    assert with_class(ValueError("no dataset")) == "ValueError: “no dataset”"
    assert with_class(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    "name",
    [
        *("ENOENT", "EACCES", "EPERM", "ENOSPC", "EDQUOT", "EROFS", "EIO", "EBUSY", "ENOMEM"),
        *("EISDIR", "ENOTDIR", "EEXIST", "ENOTEMPTY", "EMFILE", "ENAMETOOLONG", "EINVAL", "EXDEV"),
        *("ETXTBSY", "EFBIG", "EMLINK", "ELOOP", "E2BIG", "ENOEXEC", "EPIPE", "EBADF", "EINTR"),
        *("EAGAIN", "ENOTSUP", "ENOSYS", "ESRCH", "ENODEV", "ENXIO", "ESTALE", "EREMOTEIO"),
        *("EUCLEAN", "ENOTCONN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH"),
        *("EHOSTUNREACH", "EHOSTDOWN", "EADDRINUSE", "EADDRNOTAVAIL"),
    ],
)
def test_what_the_system_says_of_a_call_that_failed_is_said_in_chinese(name: str) -> None:
    number = getattr(errno, name)
    told = language.said(f"cannot be read: {why(OSError(number, os.strerror(number)))}")
    assert not re.search(r"[A-Za-z]{2,} ", told.replace("I/O", "")), told


@given(st.text(max_size=2000))
@settings(max_examples=50, deadline=None)
def test_a_quotation_is_one_short_line_with_one_end(text: str) -> None:
    told = quoted(text)
    assert (told[0], told[-1], told.count("“"), told.count("”")) == ("“", "”", 1, 1)
    assert len(told.splitlines()) <= 1
    assert len(told) <= 502


def test_a_quotation_whose_end_was_cut_off_is_not_translated_either() -> None:
    assert language.said("cannot be read: “no dataset and") == "无法读取：“no dataset and"
