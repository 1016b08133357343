"""Checks of the environment: proxies, certificates, the hub, what another launcher left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from engine.theirs import quoted
from wizard.facts import Facts
from wizard.probe.checks.rule import Check, Found, error, note, warning
from wizard.problem import Problem

PROXIES = ("http_proxy", "https_proxy", "all_proxy")
KNOWN_SCHEMES = ("http", "https", "socks5", "socks5h")
LOCAL = ("localhost", "127.0.0.1")
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
OFFICIAL_HUB = re.compile(r"https://huggingface\.co/?")
MIRROR = "export HF_ENDPOINT= a mirror that this machine reaches"
BY_PATH = "copy the model here and give its folder: --model /path"
HUB_TROUBLES = {
    "name": ("its name is not known here: no network, or no name server", BY_PATH),
    "closed": ("it does not take the connection", f"{MIRROR}, or {BY_PATH}"),
    "slow": ("it does not answer in time", f"{MIRROR}, or {BY_PATH}"),
    "certificate": (
        "its certificate is not trusted: something between here and there opens the connection",
        "export SSL_CERT_FILE=/path/ca.pem REQUESTS_CA_BUNDLE=/path/ca.pem with your firm's own",
    ),
    "proxy": ("the proxy does not pass the request on", "look at https_proxy, and its password"),
    "refused": ("it refuses a public file", "is HF_TOKEN still valid? hf auth login"),
    "missing": ("it does not have a file that the hub has", f"{MIRROR}, or {BY_PATH}"),
    "failing": ("it is out of order", "try again later"),
}
"""How a question to the hub ended → (what that means, the remedy)."""
YES = ("1", "ON", "YES", "TRUE")


def proxy(facts: Facts) -> Found:
    """A proxy of a kind the hub's library does not know ends it when it starts."""
    variables = facts.host.surroundings.environment
    proxies = _proxies(variables)
    return [p for name, url in proxies for p in _proxy(name, url)] if proxies else None


def _proxies(variables: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, url) for name, url in variables.items() if name.lower() in PROXIES and url]


def _proxy(name: str, url: str) -> Iterator[Problem]:
    scheme, mark, rest = url.partition("://")
    if not mark:
        fix = f"export {name}=http://{url}"
        yield warning(f"{url} names no scheme: some programs then ignore it", name, fix)
    elif scheme.lower() not in KNOWN_SCHEMES:
        # httpx raises at its start: SWivid/F5-TTS#381.
        fix = f"export {name}=socks5h://{rest}, and pip install 'httpx[socks]'"
        if not scheme.lower().startswith("socks"):
            fix = f"export {name}=http://{rest}"
        yield error(f"the hub's library knows no proxy of the kind {scheme}://", name, fix)
    elif scheme.lower().startswith("socks"):
        yield note(f"a {scheme} proxy needs one more package", name, "pip install 'httpx[socks]'")


def two_spellings(facts: Facts) -> Found:
    """Programs differ in which spelling they read."""
    variables = facts.host.surroundings.environment
    if not _proxies(variables):
        return None
    return [
        warning(
            f"differs from {name.upper()}: programs take one or the other", name, f"unset {name}"
        )
        for name in PROXIES
        if variables.get(name, variables.get(name.upper()))
        != variables.get(name.upper(), variables.get(name))
    ]


def not_proxied(facts: Facts) -> Found:
    """Ranks talk to this machine itself, which no proxy reaches."""
    variables = facts.host.surroundings.environment
    if not _proxies(variables):
        return None
    spared = f"{variables.get('no_proxy', '')},{variables.get('NO_PROXY', '')}".split(",")
    missing = [name for name in LOCAL if name not in (part.strip() for part in spared)]
    if not missing or "*" in spared:
        return []
    value = ",".join([*(part for part in dict.fromkeys(spared) if part), *missing])
    what = f"it does not spare {' and '.join(missing)}: talk within this machine goes to the proxy"
    return [warning(what, "no_proxy", f"export no_proxy={value} NO_PROXY={value}")]


def certificates(facts: Facts) -> Found:
    """Certificates that cannot be read make every encrypted connection fail."""
    return [
        error(f"{path} is not there: no encrypted connection works", name, f"unset {name}")
        for name, path in facts.host.surroundings.broken_variables.items()
    ]


def endpoint(facts: Facts) -> Found:
    """A mirror of the hub serves pages; files may still come from elsewhere."""
    variables = facts.host.surroundings.environment
    url = variables.get("HF_ENDPOINT")
    if not url:
        return None
    if not re.match(r"https?://[^/\s]+", url):
        return [error(f"{url} is no address", "HF_ENDPOINT", "unset HF_ENDPOINT")]
    if OFFICIAL_HUB.fullmatch(url) or variables.get("HF_HUB_DISABLE_XET", "").upper() in YES:
        return []
    # huggingface_hub#2152: the mirror sends on to hosts that may not be reachable.
    what = f"{url} may send downloads on to hosts of the hub that this machine does not reach"
    return [note(what, "HF_ENDPOINT", "if downloads stand at 0 %: export HF_HUB_DISABLE_XET=1")]


def hub(facts: Facts) -> Found:
    """Whether models can be fetched; only `doctor --network` asks."""
    reach = facts.host.surroundings.hub
    if reach is None:
        return None
    if reach.kind == "ok":
        return []
    what, fix = HUB_TROUBLES.get(reach.kind, ("does not give the file", f"{MIRROR}, or {BY_PATH}"))
    said = f" ({quoted(reach.detail)})" if reach.detail else ""
    return [warning(f"{what}{said}", reach.host, fix)]


def offline(facts: Facts) -> Found:
    """Offline, only what lies in the cache can be used."""
    variables = facts.host.surroundings.environment
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    on = [name for name in names if variables.get(name, "").upper() in YES]
    if not on:
        return []
    what = "set: models are taken from the cache or by path, nothing is fetched"
    return [note(what, " and ".join(on), f"to fetch: unset {' '.join(on)}")]


def launcher(facts: Facts) -> Found:
    """Variables of another launcher make a single process wait for ranks that never come."""
    variables = facts.host.surroundings.environment
    left = [name for name in LAUNCHER if name in variables]
    if not left:
        return []
    what = "left by another launcher: a program may take itself for one of its ranks"
    return [warning(what, ", ".join(left), f"unset {' '.join(left)}")]


CHECKS = (
    Check(id="settings.proxy", title="proxies are of a known kind", find=proxy),
    Check(id="settings.proxy-spelling", title="proxies are spelt alike", find=two_spellings),
    Check(id="settings.no-proxy", title="no proxy within this machine", find=not_proxied),
    Check(id="settings.certificates", title="certificates can be read", find=certificates),
    Check(id="settings.endpoint", title="the hub's address", find=endpoint),
    Check(id="settings.hub", title="the hub gives its files", find=hub),
    Check(id="settings.offline", title="models may be fetched", find=offline),
    Check(id="settings.launcher", title="nothing left by another launcher", find=launcher),
)
