"""`tunewright import`: a preset of what another trainer was told."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from engine.theirs import why
from wizard.commands import output
from wizard.commands.terminal import note, print_exactly, print_json
from wizard.problem import Problem, ProblemError

HELP = "make a preset of another trainer's configuration or command line"
DESCRIPTION = (
    "Reads ms-swift's args.json, YAML or `swift sft …`, LLaMA-Factory's and axolotl's YAML, "
    "TRL's YAML or `trl sft …`, and accelerate's YAML. Every key is carried over or listed with "
    "the reason why not. Nothing in the file is run."
)
SOURCES = ("swift", "llamafactory", "axolotl", "trl", "accelerate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("file", metavar="FILE", help="the configuration, or a script with the call")
    output.add_file(parser, "a file for the preset", "--out", metavar="PRESET.toml", dest="into")
    parser.add_argument("--from", dest="peer", choices=SOURCES, help="whose it is, if unclear")
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Read, and print or write the preset."""
    from wizard import paths
    from wizard.formats.importing import NAMES, import_preset, preset_text
    from wizard.formats.values import told
    from wizard.presets import write_new

    path = paths.expanded(args.file, "FILE")
    content = _read(path)
    named = Path(args.into).stem if args.into else path.stem
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", named).strip("-")[:64] or "imported"
    imported = import_preset(content, file=path.name, name=name, peer=args.peer)
    for line in told(imported.left):
        note(f"not carried over: {line}")
    note(f"{len(imported.carried)} carried over from {NAMES[imported.format]}")
    if args.into is not None:
        into = output.target(args.into, force=args.force)
        note(f"written: {write_new(into, preset_text(imported), force=args.force)}")
    elif args.json:
        print_json(_as_json(imported))
    else:
        print_exactly(preset_text(imported))
    return 0


def _as_json(imported: object) -> dict[str, object]:
    from wizard.formats.values import SECRET, Imported

    assert isinstance(imported, Imported)
    return {
        "schema": 1,
        "format": imported.format,
        "title": imported.preset.title,
        "settings": dict(imported.preset.settings),
        "carried": [
            {"keys": list(one.keys), "setting": one.setting, "value": one.value}
            for one in imported.carried
        ],
        "left": [
            {
                "key": one.key,
                "value": None if SECRET.search(one.key) else one.value,
                "why": one.why,
            }
            for one in imported.left
        ],
    }


def _read(path: Path) -> str:
    from wizard.formats.text import LIMIT_BYTES

    def refused(what: str, fix: str = "") -> ProblemError:
        return ProblemError(Problem(what=what, where=str(path), fix=fix, exit_code=2))

    try:
        if path.exists() and not path.is_file():
            raise refused("not a regular file")
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        if len(content) > LIMIT_BYTES:
            raise refused("larger than 1 MiB", "give a configuration file")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refused("not UTF-8 text", "save it as UTF-8") from None
    except OSError as error:
        raise refused(f"cannot be read: {why(error)}", "check the path") from None
