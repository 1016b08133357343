"""Another trainer's configuration → Preset, with a word on every key."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from engine.events import printable
from wizard.answers import Preset
from wizard.formats import text
from wizard.formats.command import Statement, is_command, statements
from wizard.formats.peers import accelerate, axolotl, llamafactory, swift, trl
from wizard.formats.reader import Reader, fields
from wizard.formats.rules import settle
from wizard.formats.values import Imported, Left, told
from wizard.presets import dumps, loads
from wizard.problem import Problem, ProblemError

READERS: Mapping[str, Callable[[Reader], None]] = {
    "swift": swift.read,
    "llamafactory": llamafactory.read,
    "axolotl": axolotl.read,
    "trl": trl.read,
    "accelerate": accelerate.read,
}
NAMES: Mapping[str, str] = {
    "swift": "ms-swift",
    "llamafactory": "LLaMA-Factory",
    "axolotl": "axolotl",
    "trl": "TRL",
    "accelerate": "accelerate",
}


def import_preset(content: str, *, file: str, name: str, peer: str | None = None) -> Imported:
    """A preset of another trainer's configuration or command line.

    `file` is shown, `name` becomes the preset's, `peer` says whose it is when that cannot be told.
    Raises ProblemError for text that cannot be read, or when nothing says whose it is.
    """
    if is_command(content):
        whose, values, left = _of_commands(statements(content), file)
    else:
        values, left = text.read_mapping(content, file), []
        whose = peer or recognise(values, file)
    if peer is not None and whose != peer:
        what = f"a command of {NAMES[whose]}, not of {NAMES[peer]}"
        raise ProblemError(Problem(what=what, where=file, exit_code=2))
    reader = Reader(peer=whose, values=values)
    READERS[whose](reader)
    settle(reader)
    title = f"From {NAMES[whose]}: {printable(file)}"
    preset = Preset(name=name, title=title, settings=reader.settings, origin="file")
    # Read as any preset would be: what it may not carry is refused there too.
    preset = replace(loads(dumps(preset), name, "file"), origin="file")
    return Imported(
        format=whose,
        preset=preset,
        carried=tuple(reader.carried),
        left=(*left, *reader.left),
    )


def preset_text(imported: Imported) -> str:
    """The preset's file; comments name every key that is not carried, never its value."""
    version, _ = fields(imported.format)
    head = [f"Read as a configuration of {version}."]
    if imported.left:
        head += ["Not carried over:", *(f"  {line}" for line in told(imported.left, values=False))]
    return text.comments(head) + dumps(imported.preset)


def recognise(values: Mapping[str, Any], file: str) -> str:
    """Whose configuration this is: that of the trainer which knows most of its keys.

    Raises ProblemError when no trainer stands out.
    """
    if "distributed_type" in values or "compute_environment" in values:
        return "accelerate"
    known = {peer: len(fields(peer)[1] & set(values)) for peer in READERS if peer != "accelerate"}
    best = max(known.values())
    first = [peer for peer, count in known.items() if count == best]
    # Keys that one trainer alone has decide between two that share all others.
    marks = [peer for peer in first if _marks(peer) & set(values)]
    chosen = first if len(first) == 1 else marks
    if best == 0 or len(chosen) != 1:
        raise ProblemError(
            Problem(
                what="it does not show whose configuration this is",
                where=file,
                fix=f"say it with --from: {', '.join(READERS)}",
                exit_code=2,
            )
        )
    return chosen[0]


def _marks(peer: str) -> frozenset[str]:
    others = (fields(other)[1] for other in READERS if other != peer)
    return fields(peer)[1].difference(*others)


def _of_commands(found: list[Statement], file: str) -> tuple[str, dict[str, Any], list[Left]]:
    """(whose, its settings, the other lines) of a script with one training command."""
    training = [one for one in found if one.peer]
    if len(training) != 1:
        many = f"{len(training)} training commands" if training else "no training command"
        raise ProblemError(
            Problem(
                what=f"{many} in it",
                where=file,
                fix="give one `swift sft …` or `trl sft …`, or a configuration file",
                exit_code=2,
            )
        )
    (one,) = training
    assert one.peer is not None
    # Its first word says which line it is; the others may hold a secret.
    others = [
        Left(
            key=f"line {other.line}",
            value=re.split(r"[\s=]", other.text, maxsplit=1)[0] + " …",
            why="not a training command",
        )
        for other in found
        if other is not one
    ]
    left = [Left(key=key, value=value, why=why) for key, value, why in one.unread]
    return one.peer, dict(one.values), [*others, *left]
