"""Own code of a model: run only where the spec says so, and only as it was fetched."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.automap import classes, files
from engine.failure import RunError
from engine.record import read_json
from engine.theirs import why

CONFIGS = ("config.json", "tokenizer_config.json")
"""Files of a model whose `auto_map` names code."""
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")
ANSWER = "trust_remote_code=true"


def check(where: str, config: Any, *, trusted: bool) -> None:
    """Refuse a model that is loaded by its own code, unless the user said that it may run.

    Raises RunError (bad_spec), also where the code would come from another repository.
    """
    foreign = next((name for name in classes(config) if "--" in name), None)
    if trusted and foreign is not None:
        raise RunError(
            "bad_spec",
            f"{where}: its code is another repository's ({foreign}), of which no commit is "
            "pinned: copy those files into a folder of the model, and correct its auto_map",
        )
    if trusted or not classes(config) or _is_known(config.get("model_type")):
        return
    raise RunError(
        "bad_spec",
        f"{where}: models of the type {config.get('model_type')!r} run code that comes with them "
        f"({', '.join(files(config))}): read it and set {ANSWER} (--trust-remote-code), or take "
        "one that transformers has by itself",
    )


def check_whole(folder: Path) -> None:
    """Check that a folder has the code that its configurations name, and all of it.

    Raises RunError (bad_spec).
    """
    for name in CONFIGS:
        config = read_json(folder / name)
        check(str(folder), config, trusted=True)
        missing = next((file for file in files(config) if not (folder / file).is_file()), None)
        if missing is not None:
            raise RunError(
                "bad_spec",
                f"{folder}: {name} names {missing}, which is not there: code is fetched only "
                "where it may run, so fetch the model again by its name on the hub",
            )


def _is_known(kind: Any) -> bool:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    return kind in CONFIG_MAPPING_NAMES


def check_pinned(where: str, revision: str | None, newest: str) -> None:
    """Code that was read is that of one commit.

    Raises RunError (bad_spec) for a revision that can mean another one tomorrow.
    """
    if not COMMIT.fullmatch(newest):
        raise RunError(
            "bad_spec",
            f"{where}: {ANSWER} runs what comes with it, and this hub names no commits to hold it "
            "to: fetch it into a folder, read it there, and give the folder",
        )
    if revision is None or not COMMIT.fullmatch(revision):
        raise RunError(
            "bad_spec",
            f"{where}: {ANSWER} runs what comes with it, so say which commit you have read: "
            f"revision={newest} is the newest",
        )


def digests(folder: Path) -> dict[str, str]:
    """Each Python file of a model folder → its SHA-256: modules may import each other."""
    found = sorted(folder.glob("*.py"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


def check_unchanged(folder: Path, before: Mapping[str, str] | None) -> None:
    """A run goes on with the code that it began with; None is that of a run that never fetched it.

    Raises RunError (bad_spec) naming a file that is another one now.
    """
    if before is None:
        raise RunError("bad_spec", f"{folder}: {ANSWER} was set since; run `engine.fetch` first")
    now = digests(folder)
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            raise RunError(
                "bad_spec",
                f"{folder / name}: is not what it was when this run began, and it is run: put it "
                "back, or start a new run",
            )


def copy_once(folder: Path) -> None:
    """Put the code where Python imports it from, by one process: ranks then find it as it is.

    Nothing of it is run. Raises RunError (bad_spec) for code that cannot be copied.
    """
    from transformers.dynamic_module_utils import get_cached_module_file

    named = [file for name in CONFIGS for file in files(read_json(folder / name))]
    for file in dict.fromkeys(named):
        try:
            get_cached_module_file(str(folder), file)
        except Exception as error:
            raise RunError(
                "bad_spec", f"{folder / file}: cannot be loaded ({why(error)})"
            ) from None
