"""Recordings of machines at the level of what the probe asks: commands' output and files.

`<machine>/commands.txt` is a terminal session (`$ command`, then its output; a last line
`[exit 18]` where it failed, `[hangs]` where it never ended), `<machine>/files.txt` the files read
(`== path`, then their text, `-> target` for a link). Formats are those of real output; values that
no public source gives, as unique ids, are made up. `tests/fakes/truth` says what is to come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wizard.probe.running import Ran

FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.parent.name for path in FOLDER.glob("*/*.txt")))


@dataclass(frozen=True, slots=True)
class Recording:
    """Answers to commands; every command that is not recorded is not installed."""

    answers: dict[str, Ran]

    def __call__(self, command: Sequence[str], limit_seconds: float) -> Ran:
        return self.answers.get(" ".join(command), Ran(None, "", "no such command"))


def session(name: str) -> Recording:
    """The commands of a machine; none where it has no session."""
    path = FOLDER / name / "commands.txt"
    return Recording(parse(path.read_text(encoding="utf-8")) if path.exists() else {})


def parse(text: str) -> dict[str, Ran]:
    """Command → what it came to."""
    found: dict[str, Ran] = {}
    for part in ("\n" + text).split("\n$ ")[1:]:
        command, _, output = part.partition("\n")
        found[command] = _ran(output)
    return found


def _ran(output: str) -> Ran:
    body, _, last = output.rstrip("\n").rpartition("\n")
    if last == "[hangs]":
        return Ran(None, body, "", timed_out=True)
    if last.startswith("[exit ") and last.endswith("]"):
        return Ran(int(last[6:-1]), body + "\n")
    return Ran(0, output + "\n")


def plant(name: str, root: Path) -> Path:
    """Write the files of a machine under `root`; returns it."""
    path = FOLDER / name / "files.txt"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for part in ("\n" + text).split("\n== ")[1:]:
        where, _, content = part.partition("\n")
        target = root / where
        target.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            target.symlink_to(content[3:].strip())
        else:
            target.write_text(content.rstrip("\n") + "\n" if content.strip() else "")
    return root
