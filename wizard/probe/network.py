"""Asks the model hub for one byte of a weight file, and says how far that gets."""

from __future__ import annotations

import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from typing import IO, Literal, TypeAlias

from wizard.facts import Reach
from wizard.probe.parts import Part, together

HUB = "https://huggingface.co"
FILE = "/HuggingFaceTB/SmolLM2-135M-Instruct/resolve/main/model.safetensors"
"""A public model's weights: they come from another host than the pages do."""
LIMIT_SECONDS = 5.0
WHOLE_LIMIT_SECONDS = 12.0
"""Looking up a name has no limit of its own; this one holds for all of it."""

Kind: TypeAlias = Literal[
    "ok", "name", "closed", "slow", "certificate", "proxy", "refused", "missing", "failing", "other"
]
CODES: Mapping[int, Kind] = {401: "refused", 403: "refused", 404: "missing", 407: "proxy"}


def ask_hub(environment: Mapping[str, str], limit_seconds: float = LIMIT_SECONDS) -> Reach:
    """How the hub answers, or its mirror in HF_ENDPOINT. Never raises, never waits long."""
    url = (environment.get("HF_ENDPOINT") or HUB).rstrip("/") + FILE
    part = Part("hub", lambda: ask(url, limit_seconds), max(WHOLE_LIMIT_SECONDS, limit_seconds))
    for _, reach, problem in together((part,)):
        if problem is None and isinstance(reach, Reach):
            return reach
    return Reach(host=_host(url), kind="slow", detail="")


def ask(url: str, limit_seconds: float) -> Reach:
    """Fetch one byte, wherever the address leads; the host named is the one that failed."""
    trail = _Trail([url])
    try:
        request = urllib.request.Request(url, headers={"Range": "bytes=0-0"})
        with urllib.request.build_opener(trail).open(request, timeout=limit_seconds) as answer:
            answer.read(1)
    except urllib.error.HTTPError as error:
        kind = CODES.get(error.code, "failing" if error.code >= 500 else "other")
        return Reach(host=_host(trail.urls[-1]), kind=kind, detail=f"{error.code} {error.reason}")
    except (OSError, HTTPException, ValueError) as error:
        kind, detail = explain(error)
        proxy = _proxy_for(trail.urls[-1])
        if proxy and kind in ("name", "closed", "slow"):  # we never spoke to the host itself
            return Reach(host=proxy, kind="proxy", detail=detail)
        return Reach(host=_host(trail.urls[-1]), kind=kind, detail=detail)
    return Reach(host=_host(url), kind="ok", detail="")


def explain(error: BaseException) -> tuple[Kind, str]:
    """(what kind of trouble an error of the connection is, its own words)."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    words = " ".join(str(reason).split())[:200]
    if isinstance(reason, socket.gaierror):
        return "name", words
    if isinstance(reason, ssl.SSLError):
        return "certificate", words
    if isinstance(reason, TimeoutError):
        return "slow", words
    if "Tunnel connection failed" in words:
        return "proxy", words
    if isinstance(reason, OSError):
        return "closed", words
    return "other", words


@dataclass(eq=False)
class _Trail(urllib.request.HTTPRedirectHandler):
    """Follows where an address leads, and remembers the way."""

    urls: list[str] = field(default_factory=list)

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        self.urls.append(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _proxy_for(url: str) -> str | None:
    """The host of the proxy that requests for this address go to; None when they go straight."""
    parts = urllib.parse.urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return None
    return _host(proxy if "://" in proxy else f"http://{proxy}")


def _host(url: str) -> str:
    return urllib.parse.urlsplit(url).hostname or url
