"""What a model's configuration names as its own code, in `auto_map`: classes and their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def classes(config: Any) -> tuple[str, ...]:
    """What a configuration's `auto_map` names, each as `module.Class`; empty without one."""
    named = config.get("auto_map") if isinstance(config, dict) else None
    if not isinstance(named, dict):
        return ()
    return tuple(dict.fromkeys(_texts(list(named.values()))))


def _texts(values: list[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, list):
            yield from _texts(value)
        elif isinstance(value, str):
            yield value


def files(config: Any) -> tuple[str, ...]:
    """The files that those classes are in."""
    modules = (name.rpartition(".")[0] for name in classes(config))
    return tuple(dict.fromkeys(f"{module}.py" for module in modules))
