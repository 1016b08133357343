"""A setting by its name: which one is meant, what it takes, and what a value given as text is."""

from __future__ import annotations

import difflib
import functools
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ConfigDict, TypeAdapter, ValidationError

from engine.aliases import ALIASES, TRANSLATED, VALUE_ALIASES
from engine.spec import SETTINGS, TABLES, SpecError


def setting_name(key: str) -> str:
    """The canonical name of a setting.

    Raises SpecError for an unknown key, offering the nearest name.
    """
    key = key.strip().lstrip("-").replace("-", "_")
    table, _, name = key.rpartition(".")
    if table and SETTINGS.get(name) == table:  # as it stands in spec.toml: plugins.loss
        return name
    if key in SETTINGS:
        return key
    elsewhere = key.lower()
    if elsewhere in ALIASES:
        return ALIASES[elsewhere]
    if elsewhere in TRANSLATED:
        return TRANSLATED[elsewhere][0]
    near = difflib.get_close_matches(key, [*SETTINGS, *ALIASES, *TRANSLATED], n=1, cutoff=0.5)
    hint = f": did you mean `{near[0]}`?" if near else ""
    raise SpecError(f"unknown setting `{key}`{hint}")


def setting_info(key: str) -> Any:
    """The pydantic field of a setting: annotation, default, description."""
    name = setting_name(key)
    return TABLES[SETTINGS[name]].model_fields[name]


def parse_setting(key: str, value: object) -> tuple[str, Any]:
    """(canonical name, checked value) of a setting given as text or as a value.

    Raises SpecError, naming the setting and what it accepts.
    """
    name = setting_name(key)
    info = setting_info(name)
    value = _translated(key, value)
    if isinstance(value, str) and value.lower() in ("none", "null", "") and _optional(info):
        return name, None
    if isinstance(value, str):
        value = VALUE_ALIASES.get(name, {}).get(value.lower(), value)
    if isinstance(value, str) and name == "devices":
        value = tuple(part for part in value.split(",") if part)
    if isinstance(value, str) and not _is_unicode(value):
        raise SpecError(f"{name} = {value!a}: not valid UTF-8, and spec.toml is")
    try:
        return name, _adapter(name).validate_python(value)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        hint = _nearest_choice(value, info)
        raise SpecError(f"{name} = {value!r}: {reason[0].lower()}{reason[1:]}{hint}") from None


@functools.cache
def _adapter(name: str) -> TypeAdapter[Any]:
    info = setting_info(name)
    constrained: Any = Annotated[info.annotation, info]
    return TypeAdapter(constrained, config=ConfigDict(allow_inf_nan=False))


def _nearest_choice(value: object, info: Any) -> str:
    """The word meant, where a setting takes words and one of them is near."""
    words = [word for word in _words(info.annotation) if isinstance(word, str)]
    near = difflib.get_close_matches(str(value).lower(), words, n=1)
    return f": did you mean `{near[0]}`?" if near else ""


def _words(kind: Any) -> list[Any]:
    """What a Literal takes, also one inside a union."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [word for inner in get_args(kind) for word in _words(inner)]


def _translated(key: str, value: object) -> object:
    """A value given under another trainer's name, as ours is written."""
    elsewhere = key.strip().lstrip("-").replace("-", "_").lower()
    if elsewhere in SETTINGS or elsewhere not in TRANSLATED:
        return value
    try:
        return TRANSLATED[elsewhere][1](str(value).strip().lower())
    except ValueError as error:
        raise SpecError(f"{key} = {value!r} has no meaning of its own here: {error}") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _optional(info: Any) -> bool:
    return type(None) in get_args(info.annotation)
