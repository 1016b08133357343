"""Another trainer's settings being read: each is carried over or left with a reason, none lost."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from engine.settings import parse_setting
from engine.spec import SETTINGS, SpecError
from wizard.formats.values import Carried, Left
from wizard.presets import why_not_carried

FIELDS = Path(__file__).parent / "fields"
PLAIN_FILE = re.compile(
    r"[^#:*,\0]+\.(jsonl?|parquet|csv|tsv|txt|arrow)(\.gz|\.zst)?", re.IGNORECASE
)
NO_SETTING = "tunewright has no such setting"
PLANNED = "left to the planner"


@cache
def fields(peer: str) -> tuple[str, frozenset[str]]:
    """(version, names) that a trainer accepts, as recorded."""
    head, *names = (FIELDS / f"{peer}.txt").read_text(encoding="utf-8").splitlines()
    return head.removeprefix("# "), frozenset(names)


@dataclass(kw_only=True)
class Reader:
    """A configuration on its way into settings."""

    peer: str
    values: dict[str, Any]
    """Keys that nothing was said about yet."""
    carried: list[Carried] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def settings(self) -> dict[str, Any]:
        """What was carried so far."""
        return {one.setting: one.value for one in self.carried}

    def get(self, key: str) -> Any:
        """The value of a key that is still to be told; None when it is absent or null."""
        return self.values.get(key)

    def leave(self, key: str, why: str) -> None:
        """Say why a key is not carried."""
        if key in self.values:
            self.left.append(Left(key=key, value=self.values.pop(key), why=why))

    def carry(self, setting: str, value: Any, *keys: str) -> None:
        """Carry keys over as one setting, else say why that is impossible."""
        self.carry_all({setting: value}, *keys)

    def carry_all(self, settings: Mapping[str, Any], *keys: str) -> None:
        """Carry keys over that together say several settings; what is impossible is told."""
        present = {key: self.values.pop(key) for key in keys if key in self.values}
        refused = []
        for setting, value in settings.items():
            why = self._refused(setting, value)
            if why:
                refused.append(why)
                continue
            name, checked = parse_setting(setting, value)
            if checked is None:
                refused.append("it is not set there")
            else:
                self.carried.append(Carried(keys=tuple(present), setting=name, value=checked))
        if refused:
            why = "; ".join(refused)
            self.left += [Left(key=key, value=given, why=why) for key, given in present.items()]

    def take_back(self, setting: str, why: str) -> None:
        """Leave the keys of a setting that was carried after all."""
        for one in [one for one in self.carried if one.setting == setting]:
            self.carried.remove(one)
            self.left += [Left(key=key, value=one.value, why=why) for key in one.keys]

    def _refused(self, setting: str, value: Any) -> str:
        if setting not in SETTINGS:
            return NO_SETTING
        try:
            name, checked = parse_setting(setting, value)
        except SpecError as error:
            return f"not possible here: {error}"
        if name in self.settings:
            same = self.settings[name] == checked
            return f"says again what {name} is" if same else f"contradicts {name} before it"
        return why_not_carried(name, checked)

    def carry_each(self, names: Mapping[str, str]) -> None:
        """Carry the keys that mean what one of our settings means."""
        for key, setting in names.items():
            if key in self.values:
                value = self.values[key]
                if value is None:
                    self.leave(key, "it is not set there")
                else:
                    self.carry(setting, value, key)

    def finish(self, reasons: Mapping[str, str]) -> None:
        """Say of every key that is still there why it is not carried."""
        version, known = fields(self.peer)
        for key in list(self.values):
            if key in reasons:
                self.leave(key, reasons[key])
            elif self.values[key] is None:
                self.leave(key, "it is not set there")
            elif key in known:
                self.leave(key, NO_SETTING)
            else:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
                hint = f": did you mean `{near[0]}`?" if near else ""
                self.leave(key, f"no setting of {version} either{hint}")


def is_true(value: Any) -> bool:
    """Whether a configuration says yes, as YAML, JSON or a command line write it."""
    return value is True or (isinstance(value, str) and value.lower() in ("true", "yes", "1"))


def is_false(value: Any) -> bool:
    """Whether a configuration says no."""
    return value is False or (isinstance(value, str) and value.lower() in ("false", "no", "0"))


def listed(value: Any) -> list[Any]:
    """A value that may be a list, or names separated by commas, as a list."""
    if isinstance(value, list):
        return value
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [] if value is None else [value]
