"""Installed versions, read from package metadata: nothing heavy is imported."""

from __future__ import annotations

import platform
from importlib import metadata

from wizard.facts import Software

PACKAGES = (
    "tunewright",
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "deepspeed",
    "bitsandbytes",
    "flash-attn",
)


def read_software(*, driver: str | None, cuda: str | None) -> Software:
    """Versions in this environment; a package that is absent has None."""
    return Software(
        python=platform.python_version(),
        versions={name: _version(name) for name in PACKAGES},
        driver=driver,
        cuda=cuda,
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
