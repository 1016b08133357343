"""A model as the hub describes it: asked only when the user says so, a few small files."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

from engine.theirs import quoted
from wizard.facts import Model
from wizard.probe.model import HUB_ID, of_config
from wizard.probe.network import HUB, explain
from wizard.problem import Problem, ProblemError

LIMIT_SECONDS = 10.0
LIMIT_BYTES = 8 * 1024**2
"""No configuration comes near."""


def read_hub_model(name: str, environment: Mapping[str, str]) -> Model:
    """Facts of a hub id from the hub, or its mirror in HF_ENDPOINT; HF_TOKEN opens gated ones.

    Raises ProblemError (exit code 2), saying what to do, when there is no such model, a token is
    needed, or the hub cannot be reached.
    """
    if not HUB_ID.fullmatch(name):
        fix = "a hub id looks like Qwen/Qwen3-8B"
        raise ProblemError(Problem(what="not a hub id", where=name, fix=fix, exit_code=2))
    hub = (environment.get("HF_ENDPOINT") or HUB).rstrip("/")
    token = environment.get("HF_TOKEN")
    about = _fetched(f"{hub}/api/models/{name}?blobs=true", name, token)
    config = _fetched(f"{hub}/{name}/resolve/main/config.json", name, token)
    files = [one for one in about.get("siblings") or [] if isinstance(one, dict)]
    sizes = [one.get("size") for one in files if str(one.get("rfilename")).endswith(".safetensors")]
    weights = about.get("safetensors")
    total = weights.get("total") if isinstance(weights, dict) else None
    commit = about.get("sha")
    card = about.get("cardData")
    licence = card.get("license") if isinstance(card, dict) else None
    return of_config(
        name,
        config,
        parameters=total if isinstance(total, int) and total > 0 else None,
        disk_bytes=sum(size for size in sizes if isinstance(size, int)) or None,
        licence=licence if isinstance(licence, str) else None,
        gated=bool(about.get("gated")),
        commit=commit if isinstance(commit, str) else None,
        source=urllib.parse.urlsplit(hub).hostname or hub,
    )


def _fetched(url: str, name: str, token: str | None) -> dict[str, Any]:
    """The JSON object at an address."""
    request = urllib.request.Request(url)
    if token:  # for the hub alone, not for where it sends on to
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_SECONDS) as answer:
            value = json.loads(answer.read(LIMIT_BYTES).decode("utf-8"))
    except urllib.error.HTTPError as error:
        raise ProblemError(_refusal(error.code, name, url)) from None
    except (OSError, HTTPException) as error:
        _, words = explain(error)
        fix = "`tunewright doctor --network` says why; a folder works without the hub"
        what = f"the hub cannot be reached: {quoted(words)}"
        raise ProblemError(Problem(what=what, where=url, fix=fix, exit_code=2)) from None
    except (ValueError, RecursionError):
        raise ProblemError(Problem(what="no JSON came back", where=url, exit_code=2)) from None
    if not isinstance(value, dict):
        raise ProblemError(Problem(what="no description came back", where=url, exit_code=2))
    return value


def _refusal(code: int, name: str, url: str) -> Problem:
    if code in (401, 403):
        what = "the hub has no such model, or it is gated and wants a token"
        fix = "accept its licence on its page, and set HF_TOKEN before tunewright is started"
    elif code == 404:
        what, fix = "the hub has no such model", "check the name"
    else:
        what, fix = f"the hub answers with {code}", "try again later, or give a folder"
    return Problem(what=what, where=f"{name} at {url}", fix=fix, exit_code=2)
