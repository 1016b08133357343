"""The Hugging Face hub, or a mirror of it in HF_ENDPOINT."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from engine.failure import RunError
from engine.hub.repo import COMMIT, File, Kind, Listing, Repo, chain, kinds, leads_out
from engine.theirs import why

AT_ONCE = 8
ETAG = re.compile(r"[\w-]+")
"""What the hub calls a content by, and the library's cache a file."""
RESUMED_BYTES = 16 * 1024**2
"""Files from this size on survive the end of the program that fetches them, half-fetched."""


class HuggingFace:
    """Asks with the account of HF_TOKEN, if there is one."""

    name = "huggingface"

    def __init__(self) -> None:
        from huggingface_hub import constants
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        self.place = urlsplit(constants.ENDPOINT).hostname or constants.ENDPOINT
        self._root = Path(constants.HF_HUB_CACHE).expanduser()

    def cache(self, repo: Repo) -> Path:
        """The folder of a repository in the library's cache."""
        return self._root / f"{repo.kind}s--{repo.name.replace('/', '--')}"

    def ask(self, repo: Repo) -> Listing:
        """The newest commit of the revision, and its files."""
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile

        api = HfApi()
        sha = api.repo_info(repo.name, repo_type=repo.kind, revision=repo.revision).sha
        assert sha is not None
        tree = api.list_repo_tree(repo.name, recursive=True, revision=sha, repo_type=repo.kind)
        files = [
            File(path=f.path, size_bytes=f.size, sha256=f.lfs.sha256 if f.lfs else None)
            for f in tree
            if isinstance(f, RepoFile)
        ]
        self._keep_name(repo, sha)
        return Listing(revision=sha, files=files)

    def _keep_name(self, repo: Repo, sha: str) -> None:
        """What the library finds a branch by when the hub is not asked."""
        name = repo.revision or "main"
        if not COMMIT.fullmatch(name) and not leads_out(name):
            path = self.cache(repo) / "refs" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(sha, encoding="ascii")

    def folder(self, repo: Repo, listing: Listing) -> Path:
        """The folder of a commit in the library's cache."""
        return self.cache(repo) / "snapshots" / listing.revision

    def get(self, repo: Repo, listing: Listing, files: Sequence[File]) -> None:
        """Fetch files, several at once; one that is cut off is gone on with next time."""
        from huggingface_hub import hf_hub_download

        revision = listing.revision

        def one(file: File) -> None:
            if file.size_bytes >= RESUMED_BYTES:
                self._resumed(repo, revision, file)
            hf_hub_download(repo.name, file.path, repo_type=repo.kind, revision=revision)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            for _ in pool.map(one, files):
                pass

    def _resumed(self, repo: Repo, revision: str, file: File) -> None:
        """Fetch a large file into the library's cache, from where it was cut off before.

        The library begins a file anew in each process. Where the hub offers its own protocol for
        large files, and that is installed, it is faster, and left to the library.
        """
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import http_get, is_xet_available
        from huggingface_hub.utils import build_hf_headers

        url = hf_hub_url(repo.name, file.path, repo_type=repo.kind, revision=revision)
        said = get_hf_file_metadata(url)
        if said.etag is None or (said.xet_file_data is not None and is_xet_available()):
            return
        if not ETAG.fullmatch(said.etag):
            raise OSError(f"{self.place} names the content of {file.path} {said.etag!r}")
        whole = self.cache(repo) / "blobs" / said.etag
        part = whole.with_name(f"{said.etag}.part")
        if whole.exists():
            return
        whole.parent.mkdir(parents=True, exist_ok=True)
        own_host = urlsplit(said.location).netloc == urlsplit(url).netloc
        with part.open("ab") as content:
            fcntl.flock(content, fcntl.LOCK_EX)  # another run may be at it
            if whole.exists():
                return
            if content.tell() > file.size_bytes:
                content.truncate(0)
            http_get(
                said.location,
                content,
                resume_size=content.tell(),
                headers=build_hf_headers() if own_host else {},  # a token is for the hub alone
                expected_size=file.size_bytes,
            )
            content.flush()
            _check_content(part, file)
            os.replace(part, whole)

    def refusal(self, repo: Repo, error: Exception) -> RunError:
        """What an error of the library means."""
        for known in (_of_access, _of_network):
            sentence = known(self.place, repo, error)
            if sentence is not None:
                failure = "bad_spec" if known is _of_access else "unknown"
                return RunError(failure, f"{repo.name}: {sentence}")
        local = _local(repo.kind)
        return RunError(
            "unknown", f"{repo.name}: {self.place} did not give it ({why(error)}); {local}"
        )


def _check_content(part: Path, file: File) -> None:
    """Raises OSError, and removes the file, when it is not what the hub lists."""
    if file.sha256 is None:
        return
    with part.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != file.sha256:
        part.unlink()
        raise OSError(f"{file.path} arrived damaged and was removed: run again")


def _local(kind: Kind) -> str:
    """The way without a hub."""
    return "give a local folder" if kind == "model" else "fetch it elsewhere, then give its files"


def _of_access(place: str, repo: Repo, error: Exception) -> str | None:
    """The hub answered, and does not give it."""
    known, status = kinds(error), _status(error)
    what = "model" if repo.kind == "model" else "data set"
    has_token = bool(os.environ.get("HF_TOKEN"))
    if "GatedRepoError" in known:
        who = (
            "the account of HF_TOKEN has no access to it yet"
            if has_token
            else "HF_TOKEN is not set"
        )
        page = f"https://{place}/{'' if repo.kind == 'model' else 'datasets/'}{repo.name}"
        return f"gated, and {who}: accept its terms on {page}, then set HF_TOKEN to that account's"
    if "RevisionNotFoundError" in known:
        return f"{place} has no revision {repo.revision} of it"
    if "RepositoryNotFoundError" in known or status == 404 or (status == 401 and not has_token):
        token = "HF_TOKEN may not see it" if has_token else "private ones need HF_TOKEN"
        return f"{place} has no such {what}, or it is private: check the name ({token})"
    if status == 401:
        return f"{place} does not accept the token in HF_TOKEN: make a new one, or unset it"
    if status == 403:
        return f"{place} refuses this account: HF_TOKEN needs the right to read this {what}"
    if "HFValidationError" in known:
        return f"not a name of a {what}: it looks like org/name"
    return None


def _of_network(place: str, repo: Repo, error: Exception) -> str | None:
    """The hub did not answer, or not to the end."""
    known, status, local = kinds(error), _status(error), _local(repo.kind)
    if "OfflineModeIsEnabled" in known:
        return (
            f"not on this machine, and HF_HUB_OFFLINE forbids asking {place}: unset it, or {local}"
        )
    host = _host(error)
    proxied = known & {"ConnectError", "ConnectTimeout"} and _goes_through_proxy(host or place)
    if "ProxyError" in known or proxied:
        return (
            f"the proxy in HTTPS_PROXY or HTTP_PROXY does not let through to {host or place}: "
            f"correct it, or set NO_PROXY={host or place}"
        )
    if known & {"ConnectError", "ConnectTimeout"} and host not in (None, place):
        return (
            f"{place} sends its files on to {host}, which this machine does not reach: "
            f"set HF_HUB_DISABLE_XET=1, or HF_ENDPOINT to another mirror, or {local}"
        )
    if known & {"ConnectError", "ConnectTimeout"}:
        return f"{place} cannot be reached: set HF_ENDPOINT to a mirror of the hub, or {local}"
    if known & {"RemoteProtocolError", "ReadError", "ReadTimeout", "TimeoutException"}:
        return f"the connection to {host or place} breaks off: run again, what has arrived is kept"
    if "Consistency check" in str(error):
        return f"{place} gives files of another size than it lists: try again, or another mirror"
    if status == 429:
        return f"{place} asks to come back later (429): wait, or set HF_TOKEN"
    if status is not None and status >= 500:
        return f"{place} is out of order ({status}): run again later, or {local}"
    return None


def _goes_through_proxy(host: str) -> bool:
    """Whether the environment names a proxy for a host."""
    proxies = urllib.request.getproxies()
    named = any(proxies.get(scheme) for scheme in ("https", "http", "all"))
    return named and not urllib.request.proxy_bypass(host)


def _status(error: Exception) -> int | None:
    for one in chain(error):
        status = getattr(getattr(one, "response", None), "status_code", None)
        if isinstance(status, int):
            return status
    return None


def _host(error: Exception) -> str | None:
    """The host of the request that failed."""
    for one in chain(error):
        try:
            request = getattr(one, "request", None)
        except RuntimeError:  # the library's way to say that there is none
            continue
        if request is not None:
            return str(request.url.host)
    return None
