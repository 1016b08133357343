"""Facts ⇄ JSON, version 1: every value with its source, or null with the reason."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union

from wizard.facts import Device, Facts
from wizard.problem import Problem, ProblemError

SCHEMA = 1
SOURCES = {
    "host": "the kernel (/proc, /sys, control groups)",
    "software": "package metadata and the driver",
    "torch": "torch, asked in a child process",
    "measured": "measured here by probe --bench",
}
REASONS = {
    "torch": "not asked: probe --torch asks it",
    "measured": "not measured: probe --bench measures",
    "host": "not reported by the kernel",
    "software": "not installed, or not reported",
}
ABOUT_A_RUN = ("model", "dataset")
"""Parts of Facts that are no part of a machine."""


def to_document(facts: Facts) -> dict[str, Any]:
    """The machine as plain values. `sources` and `unknown` beside the values are flat maps:
    path of a value → where it comes from, path of a null → why it is not known.
    """
    told = explained(dataclasses.replace(facts, model=None, dataset=None))
    values = {k: v for k, v in dataclasses.asdict(told).items() if k not in ABOUT_A_RUN}
    unknown = {
        path: REASONS[path.partition(".")[0]]
        for path in _nulls({key: values[key] for key in REASONS})
    }
    return {"schema": SCHEMA, **_plain(values), "sources": SOURCES, "unknown": unknown}


def explained(facts: Facts) -> Facts:
    """The facts with a reason for everything that a device does not tell."""
    return dataclasses.replace(facts, devices=tuple(_explained(d) for d in facts.devices))


def _explained(device: Device) -> Device:
    """Names in `sources` and `unknown` are those of the values, also of readings and bus."""
    default = f"not reported by {device.source or 'any source'}"
    found = dict(device.unknown)
    for part, values in (("", device), ("bus", device.bus), ("readings", device.readings)):
        why = found.pop(part, default)
        for field in dataclasses.fields(values):
            if getattr(values, field.name) is None and field.name != "mig_parent_uuid":
                found.setdefault(field.name, why)
    return dataclasses.replace(device, unknown=found)


def _nulls(values: Mapping[str, Any], before: str = "") -> list[str]:
    """Paths of all nulls, those in lists left out."""
    found = []
    for key, value in values.items():
        if value is None:
            found.append(before + key)
        elif isinstance(value, Mapping):
            found += _nulls(value, f"{before}{key}.")
    return found


def _plain(value: Any) -> Any:
    """Mappings and tuples as JSON knows them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def from_document(value: object, where: str) -> Facts:
    """Facts of a machine.

    Raises ProblemError (exit code 2) naming the value that cannot be used.
    """
    if not isinstance(value, Mapping) or "schema" not in value:
        raise _refused("not a machine file: it has no `schema`", where)
    if value["schema"] != SCHEMA:
        raise _refused(
            f"schema {value['schema']!r} is not known, only {SCHEMA}",
            where,
            "save it again with this version: tunewright probe -o FILE",
        )
    rest = {k: v for k, v in value.items() if k not in ("schema", "sources", "unknown")}
    facts = _build(Facts, rest, "", where)
    assert isinstance(facts, Facts)
    return facts


def _build(kind: type, value: object, path: str, where: str) -> Any:
    """A dataclass from its mapping; keys it does not have are refused with the nearest name."""
    if not isinstance(value, Mapping):
        raise _refused(f"`{path or 'the file'}` must be an object, not {_name(value)}", where)
    hints = _hints(kind)
    for key in value:
        if key not in hints or (kind is Facts and key in ABOUT_A_RUN):
            near = difflib.get_close_matches(str(key), hints, n=1)
            hint = f"did you mean {near[0]}?" if near else "remove it"
            raise _refused(f"`{path}{key}` is not known", where, hint)
    given = {key: _value(hints[key], one, f"{path}{key}", where) for key, one in value.items()}
    missing = [name for name in _required(kind) if name not in given]
    if missing:
        raise _refused(f"`{path}{missing[0]}` is missing", where)
    return kind(**given)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _required(kind: type) -> list[str]:
    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    return [f.name for f in fields if f.default is missing and f.default_factory is missing]


def _value(kind: Any, value: Any, path: str, where: str) -> Any:
    """A value of the wanted type, refused when it is of another."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _value(next(one for one in arguments if one is not type(None)), value, path, where)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _build(kind, value, f"{path}.", where)
    if origin is tuple:
        return _tuple(arguments, value, path, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(arguments, value, path, where)
    if origin is Literal:
        if value in arguments:
            return value
        words = ", ".join(map(str, arguments))
        raise _refused(f"`{path}` is {value!r}", where, f"it is one of: {words}")
    return _simple(kind, value, path, where)


def _tuple(arguments: tuple[Any, ...], value: Any, path: str, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _refused(f"`{path}` must be a list, not {_name(value)}", where)
    kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
    if len(kinds) != len(value):
        raise _refused(f"`{path}` must have {len(kinds)} values, not {len(value)}", where)
    return tuple(
        _value(kind, one, f"{path}[{i}]", where)
        for i, (kind, one) in enumerate(zip(kinds, value, strict=True))
    )


def _mapping(arguments: tuple[Any, ...], value: Any, path: str, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _refused(f"`{path}` must be an object, not {_name(value)}", where)
    return {
        str(key): _value(arguments[1], one, f"{path}.{key}", where) for key, one in value.items()
    }


def _simple(kind: Any, value: Any, path: str, where: str) -> Any:
    """Numbers, texts, truth values; a bool is no number, a whole number may stand for a broken."""
    wanted = (int, float) if kind is float else kind
    if kind in (Any, object):
        return value
    if not isinstance(value, wanted) or (isinstance(value, bool) and kind is not bool):
        raise _refused(f"`{path}` must be {_kind(kind)}, not {_name(value)}", where)
    return value


def _kind(kind: type) -> str:
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(
        kind, kind.__name__
    )


def _name(value: object) -> str:
    return "null" if value is None else f"{value!r:.40}"


def _refused(what: str, where: str, fix: str = "") -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=2))
