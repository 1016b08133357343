"""English texts → the reader's language: which one that is, and each text in it where it is shown.

The program says everything in English. What a person reads goes through `said` on its way out;
what is written to files, for programs or for a bug report does not. A catalogue is one file,
`wizard/locale/LANGUAGE.po`, whose msgids are the texts of the source with `{0}`, `{1}` where they
hold a value; `python -m tests.texts` brings it up to date.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from wizard.problem import Problem, ProblemError

if TYPE_CHECKING:
    import polib

ENGLISH: Final = "en"
CATALOGUES = Path(__file__).parent / "locale"
VARIABLE = "TUNEWRIGHT_LANG"
OF_THE_SYSTEM = ("LANGUAGE", "LC_ALL", "LC_MESSAGES", "LANG")
FRAGMENT = "fragment"
"""Context of a word that is a word of ours wherever it stands for a whole value."""
MOST_PIECES = 121
TITLE = "title"
PLACE_OF = "place"
"""Context of what a problem says of where it is, in words of ours; all else there is a name."""
LONGEST = 2000
"""Characters of a line that is compared with texts that hold values."""
HEAD = 8
ANSWERS = frozenset({"yes", "no", "none"})
WEAK_LETTERS, STRONG_MARKS = 10, 3
"""A text that says less than this by itself could be part of anybody's sentence."""

PLACE = re.compile(r"\{(\d+)\}")
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
NUMBER = re.compile(r"[-+~]?\d")
COUNT = re.compile(r"\{0\} [A-Za-z ]+$")
QUANTITY = re.compile(r"\(?[-+~]?\d[\d,.]*( ?[A-Za-z/%°]+){0,2}\)?")
IDEOGRAPHS_APART = re.compile("^[\u4e00-\u9fff] [\u4e00-\u9fff]$")
MIXED = re.compile("^([\u4e00-\u9fff][A-Za-z0-9/-]|[A-Za-z0-9%][\u4e00-\u9fff])$")
AND = " and "
NAME = re.compile(r"--[\w-]+|\w*[_\d]\w*")
"""An option, a setting or a number: what is listed with `and` between."""
BEGIN, END = "\ufdd0", "\ufdd1"
"""Around what is foreign: no characters, and in no text."""
MARKED = re.compile(f"[{BEGIN}{END}]")
FOREIGN = re.compile(f"{BEGIN}([^{BEGIN}{END}]*){END}|(“[^“”{BEGIN}{END}]*(?:”|$))")
"""Marked, or in quotes; `engine.theirs` quotes. The end of what is quoted may have been cut off."""
HIDDEN = re.compile(rf"{BEGIN}(\d+){END}")
PROSE = re.compile(r"[a-z]{2,}")
PATHS = ("/", "~/", "./", "../")
WORDS_APART = re.compile(r"\s\S")
JOINTS = re.compile(r"(\n+|\s{2,}|(?<=[A-Za-z)`'%])[.!?] (?=[A-Z`])|; |, |: | \()")
"""What joins texts."""
BEFORE = re.compile(r"(: |; )(?=\d)")
"""Between a place and a text that begins with a number."""
EDGES = re.compile(r"([\s,;:.(\[]*)(.*?)([\s,;:.)\]]*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Template:
    """A text that holds values: what stands between them, and how it is said elsewhere."""

    literals: tuple[str, ...]
    said: str
    weak: bool
    counts: bool = False
    """A number of things: what stands for the number is one."""

    @property
    def weight(self) -> int:
        """How much it says by itself; what a text begins with counts for more."""
        return sum(map(len, self.literals)) + (HEAD if self.literals[0] else 0)

    def values(self, text: str) -> list[list[str]]:
        """What stands where the values are: the first ones short, or the last; none elsewhere."""
        first, *middle, last = self.literals
        begin, end = len(first), len(text) - len(last)
        if end < begin or not text.startswith(first) or not text.endswith(last):
            return []
        early = _places(text, middle, begin, end)
        if early is None:
            return []
        late = _places(text[::-1], [m[::-1] for m in middle[::-1]], len(last), len(text) - begin)
        assert late is not None, "what stands in a text stands there from either end"
        mirrored = [(len(text) - b, len(text) - a) for a, b in late[::-1]]
        return [_between(text, places, begin, end) for places in (early, mirrored)]


def _places(text: str, literals: list[str], begin: int, end: int) -> list[tuple[int, int]] | None:
    found = []
    for literal in literals:
        at = text.find(literal, begin, end)
        if at < 0:
            return None
        begin = at + len(literal)
        found.append((at, begin))
    return found


def _between(text: str, places: list[tuple[int, int]], begin: int, end: int) -> list[str]:
    starts = [begin, *(after for _, after in places)]
    ends = [*(before for before, _ in places), end]
    return [text[start:stop] for start, stop in zip(starts, ends, strict=True)]


class Catalogue:
    """All texts in one other language."""

    def __init__(self, entries: Iterable[polib.POEntry]) -> None:
        self.whole: dict[str, str] = {}
        self.fragments: set[str] = set()
        self.titles: dict[str, str] = {}
        """Titles of columns that are another word elsewhere."""
        self.places: list[tuple[re.Pattern[str], str]] = []
        self.marks: dict[str, str] = {}
        """Punctuation between texts, as the language writes it."""
        templates: list[tuple[str, Template]] = []
        for entry in entries:
            if entry.obsolete or entry.fuzzy:
                continue
            if entry.msgctxt == "between texts":
                self.marks[entry.msgid] = entry.msgstr
                continue
            translated = entry.msgstr or entry.msgstr_plural.get(0, "")
            for english in filter(None, (entry.msgid, entry.msgid_plural)):
                if not translated:
                    continue
                if entry.msgctxt == PLACE_OF:
                    self.places.append((_pattern(english), translated))
                    continue
                if PLACE.search(english):
                    counts = bool(entry.msgid_plural and COUNT.match(english))
                    template = _template(english, translated, counts=counts)
                    if not template.weak or translated != english:
                        templates.append((english, template))
                    continue
                if entry.msgctxt == TITLE:
                    self.titles[english] = translated
                    continue
                self.whole[english] = translated
                if entry.msgctxt == FRAGMENT:
                    self.fragments.add(english)
        for english, translated in [*self.whole.items()]:
            if english.endswith(".") and " " in english:  # as it stands before another sentence
                self.whole.setdefault(english[:-1], translated.removesuffix("。"))
        self.templates = _by_rarest_word(templates)

    @lru_cache(maxsize=8192)  # noqa: B019 – one catalogue lives as long as the program
    def said(self, text: str) -> str:
        """A text of ours in this language; in English where the catalogue lacks it."""
        whole = self._as_one(text)
        if not WORDS_APART.search(text) or _is_path(text) or text in self.whole:
            return text if whole is None else whole
        pieces = self._in_pieces(text)
        if whole is None or pieces is None:
            return whole or pieces or text
        return pieces if _english_left(pieces) < _english_left(whole) else whole

    def _as_one(self, text: str) -> str | None:
        """The text where it is one that the catalogue has, apart from what joins it to others."""
        for before, inner, after in _without_edges(text):
            found = self.whole.get(inner)
            if found is None and WORDS_APART.search(inner):
                found = self._with_values(inner)
            if found is not None:
                return self.mark(before) + found + self.mark(after)
        return None

    def value(self, text: str) -> str:
        """The same for what may be anybody's: a lone word is of ours only as a fragment."""
        if text in self.fragments:
            return self.whole[text]
        before, core, after = EDGES.fullmatch(text).groups()  # type: ignore[union-attr]
        if core in self.fragments:
            return self.mark(before) + self.whole[core] + self.mark(after)
        if (listed := self._listed(core)) is not None:
            return before + listed + after
        if WORDS_APART.search(core):
            return self.said(text)
        return (self.mark(before) if before in (": ", "; ", ", ") else before) + core + after

    def _with_values(self, text: str) -> str | None:
        if len(text) > LONGEST:
            return None
        candidates = {
            id(template): template
            for word in {"", *WORD.findall(text)}
            for template in self.templates.get(word, ())
        }
        best = sorted(candidates.values(), key=lambda one: (-one.weight, one.literals))
        if _is_path(text):
            best = [template for template in best if not template.weak]
        for template in best:
            for values in sorted(template.values(text), key=_joints):
                known = [self.value(value) for value in values]
                if values[-1].endswith(".") and not template.literals[-1] and text != core(text):
                    continue  # the mark behind it is the sentence's
                if not template.literals[0] and BEFORE.search(values[0]):
                    continue  # a place, or another text, before the one that this is
                if template.counts and not self._is_number(values[0]):
                    continue
                if not template.weak or all(map(self._is_plain, values)):
                    return _filled(template.said, known)
        return None

    def _in_pieces(self, text: str) -> str | None:
        """Texts that were joined, each as long as it is known; None where none of them is."""
        pieces = JOINTS.split(text)
        if not 1 < len(pieces) <= MOST_PIECES:
            return None
        told, at = "", 0
        while at < len(pieces):
            if at:
                told += self.mark(pieces[at - 1])
            spans = [(end, "".join(pieces[at:end])) for end in range(len(pieces), at, -2)]
            spans = [(end, joined) for end, joined in spans if joined != text]
            exact = ((end, self.whole[s]) for end, s in spans[:-1] if s in self.whole)
            known = ((end, k) for end, s in spans[:-1] if (k := self._as_one(s)) is not None)
            end, found = next(exact, None) or next(known, (at + 1, self.value(pieces[at])))
            told += found
            at = end + 1
        english = " ".join(pieces[::2])
        return told if _english_left(told) < _english_left(english) else None

    def _is_number(self, value: str) -> bool:
        """Whether things are counted by it: digits, or a word of ours such as `no`."""
        return bool(NUMBER.match(value)) or value in self.fragments

    def _listed(self, text: str) -> str | None:
        """Names with `and` between them; None for what is no such list."""
        named = text.split(AND)
        if len(named) < 2 or not all(NAME.fullmatch(one) or one in self.whole for one in named):
            return None
        places = "{0}" + "".join(f"{self.mark(AND)}{{{at}}}" for at in range(1, len(named)))
        return _filled(places, [self.whole.get(one, one) for one in named])

    def _is_plain(self, value: str) -> bool:
        """Whether a value is a number, one word, or a text of ours: no part of another sentence."""
        stripped = value.strip()
        if value != value.rstrip(" ,;:"):
            return False
        if QUANTITY.fullmatch(stripped) or stripped in self.fragments - ANSWERS:
            return True
        if WORDS_APART.search(stripped) or PROSE.fullmatch(stripped):
            return (self._listed(value) or self._as_one(value)) is not None
        return True

    def place(self, text: str) -> str:
        """Where a problem is: words of ours around a name, which may be any and stays."""
        for pattern, translated in self.places:
            if found := pattern.fullmatch(text):
                return _filled(translated, [self.place(value) for value in found.groups()])
        return text

    def mark(self, mark: str) -> str:
        """Punctuation between texts, as the language writes it."""
        return self.marks.get(mark, mark)


def _filled(text: str, values: Sequence[str], place: re.Pattern[str] = PLACE) -> str:
    """A text with its values; Chinese characters and others have a blank between them."""
    told = ""
    for at, part in enumerate(place.split(text)):
        piece = values[int(part)] if at % 2 else part
        if IDEOGRAPHS_APART.search(f"{told[-2:]}{piece[:1]}"):
            told = told[:-1]
        elif IDEOGRAPHS_APART.search(f"{told[-1:]}{piece[:2]}"):
            piece = piece[1:]
        elif MIXED.search(f"{told[-1:]}{piece[:1]}"):
            told += " "
        told += piece
    return told


def _without_edges(text: str) -> list[tuple[str, str, str]]:
    """(before, text, after): as it is, without what joins it to a text before it, and behind."""
    before, core, after = EDGES.fullmatch(text).groups()  # type: ignore[union-attr]
    found = dict.fromkeys([("", text, ""), (before, core + after, ""), (before, core, after)])
    return sorted(found, key=lambda parts: parts[1].count("(") != parts[1].count(")"))


def _template(english: str, translated: str, *, counts: bool) -> Template:
    """Values are numbered by their place in the English text, in its order."""
    literals = tuple(PLACE.split(english)[::2])
    order = {number: str(at) for at, number in enumerate(PLACE.findall(english))}
    translated = PLACE.sub(lambda place: f"{{{order[place[1]]}}}", translated)
    words = WORD.findall(" ".join(literals))
    marks = sum(literal.count(mark) for literal in literals for mark in ",;:()")
    weak = marks < STRONG_MARKS and (sum(map(len, words)) < WEAK_LETTERS or len(words) < 2)
    return Template(literals=literals, said=translated, weak=weak, counts=counts)


def _pattern(english: str) -> re.Pattern[str]:
    """What a text with values matches; its values are numbered in its order."""
    return re.compile("(.+)".join(map(re.escape, PLACE.split(english)[::2])), re.DOTALL)


def _by_rarest_word(
    templates: Iterable[tuple[str, Template]],
) -> Mapping[str, tuple[Template, ...]]:
    """Word → the templates that are tried for a text that has it."""
    known = [(_whole_words(english), template) for english, template in templates]
    often = Counter(word for words, _ in known for word in words)
    found: dict[str, list[Template]] = defaultdict(list)
    for words, template in known:
        rarest = min(words, key=lambda word: (often[word], word), default="")
        found[rarest].append(template)
    return {word: tuple(of_word) for word, of_word in found.items()}


def _whole_words(english: str) -> set[str]:
    """Words that no value can be grown together with."""
    marked = PLACE.sub("\0", english)
    return {
        word[0]
        for word in WORD.finditer(marked)
        if marked[word.start() - 1 : word.start()] != "\0"
        and marked[word.end() : word.end() + 1] != "\0"
    }


def _is_path(text: str) -> bool:
    return text.startswith(PATHS) and not JOINTS.search(text)


def _joints(values: Sequence[str]) -> tuple[int, int]:
    """How often texts are joined within values, first where a number begins the second."""
    before = sum(len(BEFORE.findall(value)) for value in values)
    return before, sum(len(JOINTS.findall(core(value))) for value in values)


def _english_left(text: str) -> int:
    return len(PROSE.findall(text))


def core(text: str) -> str:
    """A text without what joins it to others."""
    return EDGES.fullmatch(text)[2]  # type: ignore[index]


_catalogue: Catalogue | None = None
_language = ENGLISH


def use(language: str) -> None:
    """Say everything in this language from now on: one of `languages()`."""
    global _catalogue, _language
    if language == _language:
        return
    if language == ENGLISH:
        _catalogue, _language = None, ENGLISH
        return
    _catalogue, _language = _read(language), language


@functools.cache
def _read(language: str) -> Catalogue:
    import polib

    return Catalogue(polib.pofile(str(CATALOGUES / f"{language}.po"), encoding="utf-8"))


def used() -> str:
    """The language in use."""
    return _language


def foreign(text: object) -> str:
    """What others wrote (a model, a library, rows, a log), marked for a line that `said` passes on.

    `said` takes the marks away and leaves what is between them as it is, even where it is a text of
    ours. What is marked goes nowhere else.
    """
    return f"{BEGIN}{MARKED.sub('', str(text))}{END}"


def said(text: str) -> str:
    """A text of ours, for a person to read; values in it stay as they are."""
    return _apart(text, None if _catalogue is None else _catalogue.said)


def said_title(text: str) -> str:
    """The title of a column."""
    return text if _catalogue is None else _catalogue.titles.get(text) or _catalogue.said(text)


def said_value(text: str) -> str:
    """The same where the text may be somebody's name for something: a name stays as it is."""
    return _apart(text, None if _catalogue is None else _catalogue.value)


def _apart(text: str, translated: Callable[[str], str] | None) -> str:
    """A text translated with numbers for what is foreign in it."""
    if BEGIN not in text and "“" not in text:
        return translated(text) if translated else text
    values = [marked or quoted for marked, quoted in FOREIGN.findall(text)]
    if translated is None:
        return FOREIGN.sub(lambda found: found[1] or found[2] or "", text)
    numbers = iter(range(len(values)))
    hidden = FOREIGN.sub(lambda _: f"{BEGIN}{next(numbers)}{END}", text)
    return _filled(translated(hidden), values, HIDDEN)


def mark(mark: str) -> str:
    """Punctuation as the language writes it: `, ` or `.`."""
    return mark if _catalogue is None else _catalogue.mark(mark)


def joined(texts: Iterable[str]) -> str:
    """Texts in the reader's language with commas between them."""
    return mark(", ").join(texts)


def said_place(where: str) -> str:
    """Where a problem is: words of ours around a name."""
    return where if _catalogue is None else _catalogue.place(where)


def said_problem(problem: Problem) -> str:
    """A problem as one line."""
    if _catalogue is None:
        return str(problem)
    colon, begin, end = map(_catalogue.mark, (": ", " (", ")"))
    place = said_place(problem.where)
    where = f"{place}{colon}" if place else ""
    fix = f"{begin}{said(problem.fix)}{end}" if problem.fix else ""
    return f"{where}{said(problem.what)}{fix}"


def languages() -> tuple[str, ...]:
    """English, then every language there is a catalogue of."""
    return (ENGLISH, *sorted(path.stem for path in CATALOGUES.glob("*.po")))


def wanted(arguments: Iterable[str], environment: Mapping[str, str]) -> str:
    """The language asked for by `--lang`, else by our variable, else by the locale.

    Raises ProblemError (2) where --lang or our variable name one that is not there.
    """
    for name, source in ((_option(arguments), "--lang"), (environment.get(VARIABLE), VARIABLE)):
        if name:
            found = _known(name)
            if found is None:
                there = ", ".join(languages())
                what = f"no language `{name}`"
                raise ProblemError(
                    Problem(what=what, where=source, fix=f"there are {there}", exit_code=2)
                )
            return found
    for variable in OF_THE_SYSTEM:
        for name in environment.get(variable, "").split(":"):
            if name and (found := _known(name)):
                return found
        if environment.get(variable) and variable != "LANGUAGE":
            break  # the first of these that is set decides
    return ENGLISH


def _option(arguments: Iterable[str]) -> str | None:
    """The value of the last `--lang`, wherever it stands."""
    found, expected = None, False
    for word in arguments:
        if expected:
            found, expected = word, False
        elif word == "--":
            break
        elif word.startswith("--lang="):
            found = word.removeprefix("--lang=")
        else:
            expected = word == "--lang"
    return found


def _known(name: str) -> str | None:
    """`zh`, `zh_CN.UTF-8`, `zh-Hans` → the catalogue of that language; C and POSIX are English."""
    plain = re.split(r"[.@]", name)[0].replace("-", "_")
    if plain in ("C", "POSIX"):
        return ENGLISH
    there = {one.lower(): one for one in languages()}
    language = plain.lower().split("_")[0]
    related = (one for one in languages() if one.lower().split("_")[0] == language)
    return there.get(plain.lower()) or next(related, None)
