"""All texts that the program says, from its source: `python -m tests.texts` updates the catalogues.

A text is a string of the source that reads like words, an f-string with its values numbered; what
is written to files or for programs is left out. Lone words count where words are shown: titles,
labels, names of keys.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polib

from tests.text_rules import (
    CODE,
    FRAGMENTS,
    GROUP,
    LABELLED,
    NAMED_FIELD,
    NO_TEXT_CALLS,
    NO_TEXT_KEYWORDS,
    NO_TEXT_NAMES,
    NOT_FOR_PEOPLE,
    NOUNS,
    OF_LIBRARIES,
    PLACES,
    PLURAL,
    READS,
    SHORT,
    STYLE,
    TITLED,
    TITLES,
    TOLD_BY,
    WITH_DEFAULT,
    WORD,
    WORD_LISTS,
    WRITERS,
)
from wizard.language import CATALOGUES, EDGES, FRAGMENT, PLACE_OF, TITLE, languages

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = CATALOGUES / "tunewright.pot"


@dataclass(slots=True)
class Text:
    """A text and the files that say it."""

    english: str
    files: set[str] = field(default_factory=set)
    plural: str = ""
    context: str | None = None


def texts() -> list[Text]:
    """Every text, in the order of the source."""
    found: dict[str, Text] = {}

    def keep(english: str, where: str, plural: str = "", context: str | None = None) -> None:
        text = found.setdefault(english, Text(english, plural=plural, context=context))
        text.files.add(where)

    for word in FRAGMENTS:
        keep(word, "tests/texts.py", context=FRAGMENT)
    for word in TITLES:
        found[f"{TITLE}\4{word}"] = Text(word, {"tests/texts.py"}, context=TITLE)
    for place in (*PLACES, *_places_of_machines()):
        found[f"{PLACE_OF}\4{place}"] = Text(place, {"tests/texts.py"}, context=PLACE_OF)
    for noun in NOUNS:
        keep(f"{{0}} {noun}", "tests/texts.py", plural=f"{{0}} {noun}s")
    for english in SHORT:
        keep(english, "tests/texts.py")
    for module in _modules():
        for english in of_module(module):
            if english not in FRAGMENTS:
                plural = english.replace(PLURAL, "s") if PLURAL in english else ""
                one = english.replace(PLURAL, "")
                keep(one, module.relative_to(ROOT).as_posix(), plural)
    for english, where in [*_of_settings(), *_of_presets(), *_of_machines(), *_of_scripts()]:
        keep(english, where)
    for english in OF_LIBRARIES:
        keep(english, "tests/texts.py")
    return list(found.values())


def _modules() -> Iterator[Path]:
    for package in ("wizard", "engine"):
        for module in sorted((ROOT / package).rglob("*.py")):
            if module.relative_to(ROOT).as_posix() not in NOT_FOR_PEOPLE:
                yield module


def of_module(path: Path) -> Iterator[str]:
    """The texts of one file, each without the separators around it."""
    name = path.relative_to(ROOT).as_posix()
    source = path.read_text(encoding="utf-8")
    reader = _Reader(name, formats=".format" in source)
    reader.visit(ast.parse(source))
    for whole, shown in reader.found:
        english = whole if whole.endswith((": ", "] ")) else core(whole)
        if _reads_like_words(english.replace(PLURAL, "s"), shown):
            yield english


def core(text: str) -> str:
    """A text without the separators that join it to others."""
    found = EDGES.fullmatch(text)
    assert found is not None
    before, inner, after = found.groups()
    ends = after.startswith(".") and not before.strip()
    if before.endswith("(") and inner.count(")") > inner.count("("):
        inner = f"({inner}"
    sentence = inner + ("." if ends and not inner.endswith("}") else "")
    if inner.count("(") > inner.count(")") and after.startswith(")"):
        sentence = inner + ")" + ("." if after.startswith(").") else "")
    if inner.count("[") > inner.count("]") and after.startswith("]"):
        sentence = inner + "]"
    return _numbered(sentence)


def _numbered(text: str) -> str:
    order: dict[str, int] = {}
    return re.sub(r"\{(\d+)\}", lambda place: f"{{{order.setdefault(place[1], len(order))}}}", text)


def _reads_like_words(text: str, shown: bool) -> bool:
    literal = re.sub(r"\{\d+\}", " \0 ", text)
    words = READS.findall(literal)
    if not words or CODE.search(text) or STYLE.match(text):
        return False
    if not re.search(r"\s", text):
        return shown and bool(WORD.match(text))
    if "\0" not in literal:
        return len(words) > 1 or shown
    return any(re.search(rf"(^|[\s(,;:>]){word}\b", text) for word in words)


class _Reader(ast.NodeVisitor):
    """Strings that may be shown, and whether they stand where words are shown."""

    def __init__(self, name: str, *, formats: bool) -> None:
        self.name = name
        self.found: list[tuple[str, bool]] = []
        self._writes = name.startswith(WRITERS)
        self._labelled = name.startswith(LABELLED)
        self._shown = False
        self._told = 0
        self._formats = formats
        self._keys = name.startswith("wizard/planner/")

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            if GROUP.search(node.value):  # what a pattern found, put into a sentence
                group = GROUP.sub(lambda found: f"{{{int(found[1]) - 1}}}", node.value)
                self._keep(group if " " in group else "")
                return
            fields = iter(range(10))
            number = lambda _: f"{{{next(fields)}}}"  # noqa: E731
            self._keep(NAMED_FIELD.sub(number, node.value) if self._formats else node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._keep(_template([node]))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                self._inside(part.value, shown=False)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        parts = _added(node)
        texts = [part for part in parts if _is_text(part)]
        if len(parts) > 1 and texts and len(texts) < len(parts):
            self._keep(_template(parts))
        elif len(parts) > 1 and texts:
            self._keep(_template(parts))
            return
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.visit(node.value)
        if not isinstance(node.slice, ast.Constant):
            self.visit(node.slice)

    def visit_Compare(self, node: ast.Compare) -> None:
        for part in (node.left, *node.comparators):
            if not isinstance(part, ast.Constant | ast.Tuple | ast.Set | ast.List):
                self.visit(part)

    def visit_MatchValue(self, node: ast.MatchValue) -> None:
        return

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._assigned([node.target], node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assigned(node.targets, node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment] # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        enum = any(isinstance(base, ast.Name) and base.id == "Enum" for base in node.bases)
        for statement in node.body:
            self._inside(statement, shown=enum)

    def visit_Tuple(self, node: ast.Tuple) -> None:
        for at, part in enumerate(node.elts):
            label = self._labelled and at == 0 and len(node.elts) > 1
            self._inside(part, shown=self._shown or label)

    def visit_Dict(self, node: ast.Dict) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and self._keys and " " in str(key.value):
                self._inside(key, shown=False)
            elif key is not None and not isinstance(key, ast.Constant):
                self.visit(key)
            self.visit(value)

    def visit_Call(self, node: ast.Call) -> None:
        called = _called(node)
        if isinstance(node.func, ast.Attribute) and not (
            called in ("join", "split") and isinstance(node.func.value, ast.Constant)
        ):
            self.visit(node.func)
        if called in WITH_DEFAULT:
            for part in node.args[1:]:
                self._inside(part, shown=False)
            return
        if called in NO_TEXT_CALLS:
            for part in (*node.args, *(k.value for k in node.keywords)):
                if not isinstance(part, ast.Constant | ast.JoinedStr):
                    self.visit(part)
            return
        self._told += called in TOLD_BY
        titled = TITLED.get(called, ())
        for at, part in enumerate(node.args):
            if not (called == "Binding" and at < 2) and not (called == "_key" and at < 2):
                self._inside(part, shown=at in titled)
        for keyword in node.keywords:
            if keyword.arg in titled or keyword.arg not in NO_TEXT_KEYWORDS:
                self._inside(keyword.value, shown=keyword.arg in titled)
        self._told -= called in TOLD_BY

    def _assigned(self, targets: list[ast.expr], value: ast.expr) -> None:
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if any(NO_TEXT_NAMES.match(name) for name in names):
            return
        self._inside(value, shown=self._shown or any(name in WORD_LISTS for name in names))

    def _inside(self, node: ast.AST, *, shown: bool) -> None:
        before, self._shown = self._shown, shown
        self.visit(node)
        self._shown = before

    def _keep(self, text: str) -> None:
        if not self._writes or self._told:
            self.found.append((text, self._shown))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _added(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_added(node.left), *_added(node.right)]
    return [node]


def _template(parts: list[ast.expr]) -> str:
    """Texts one after the other, with a number for each value; values side by side are one."""
    pieces: list[str | None] = []
    for part in parts:
        inner = part.values if isinstance(part, ast.JoinedStr) else [part]
        for one in inner:
            value = one.value if isinstance(one, ast.Constant) else None
            if _is_plural(one.value if isinstance(one, ast.FormattedValue) else one):
                value = PLURAL
            pieces.append(value if isinstance(value, str) else None)
    text, number, after_value = "", 0, False
    for piece in pieces:
        if piece is None and after_value:
            continue
        text += f"{{{number}}}" if piece is None else piece
        number += piece is None
        after_value = piece is None
    return text


def _is_plural(node: ast.AST) -> bool:
    """`"s" * (number != 1)`, or the same as a condition."""
    match node:
        case ast.BinOp(left=ast.Constant(value="s"), op=ast.Mult()):
            return True
        case ast.IfExp(body=ast.Constant(value=a), orelse=ast.Constant(value=b)):
            return {a, b} == {"s", ""}
    return False


def _of_settings() -> Iterator[tuple[str, str]]:
    from wizard.settings import every_setting

    for setting in every_setting():
        if setting.about:
            yield core(setting.about), "engine/spec.py"
        if re.match(r"(a |true|text|names)", setting.accepts):
            numbers = re.findall(r"\d(?:[\d,.e+-]*\d)?", setting.accepts)
            accepts = setting.accepts
            for at, number in enumerate(numbers):
                accepts = accepts.replace(number, f"{{{at}}}", 1)
            yield accepts, "wizard/settings.py"


def _of_presets() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "presets").glob("*.toml")):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        for key in ("title", "about", "description"):
            if isinstance(content.get(key), str):
                yield core(content[key]), path.relative_to(ROOT).as_posix()


def _of_machines() -> Iterator[tuple[str, str]]:
    for path in sorted((ROOT / "presets" / "machines").glob("*.json")):
        for problem in json.loads(path.read_text(encoding="utf-8")).get("problems", ()):
            yield core(problem["what"]), "presets/machines"


def _of_scripts() -> Iterator[tuple[str, str]]:
    """What a run's script fails with: it is kept as the run's last words, and told by screens."""
    for path in sorted((ROOT / "wizard" / "templates").glob("*.sh")):
        for sentence in re.findall(r'(?:fail \d+ |reason:-)"([^"]+)"', path.read_text("utf-8")):
            numbers = iter(range(10))
            value = re.compile(r"\$\(\([^)]*\)\)|\$\{[^}]*\}|\$\w+")
            yield (
                core(value.sub(lambda _: f"{{{next(numbers)}}}", sentence)),  # noqa: B023
                path.relative_to(ROOT).as_posix(),
            )


def _places_of_machines() -> Iterator[str]:
    for path in sorted((ROOT / "presets" / "machines").glob("*.json")):
        for problem in json.loads(path.read_text(encoding="utf-8")).get("problems", ()):
            yield problem["where"]


def template() -> polib.POFile:
    """All texts as gettext's own form without translations."""
    made = polib.POFile(wrapwidth=100)
    made.metadata = {
        "Project-Id-Version": "tunewright",
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
    }
    for mark in ("; ", ", ", ": ", ". ", " (", "(", ")", ".", "! ", "? ", " and "):
        made.append(polib.POEntry(msgid=mark, msgctxt="between texts"))
    for text in texts():
        made.append(
            polib.POEntry(
                msgid=text.english,
                msgid_plural=text.plural,
                msgctxt=text.context,
                occurrences=[(file, "") for file in sorted(text.files)],
                **({"msgstr_plural": {0: ""}} if text.plural else {}),
            )
        )
    return made


def write() -> None:
    """The template of today, and every catalogue with the texts of today."""
    made = template()
    made.save(str(TEMPLATE))
    for language in languages()[1:]:
        path = CATALOGUES / f"{language}.po"
        catalogue = polib.pofile(str(path), wrapwidth=100)
        catalogue.merge(made)
        for entry in catalogue.obsolete_entries():
            catalogue.remove(entry)
        catalogue.save(str(path))


if __name__ == "__main__":
    write()
