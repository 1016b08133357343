"""A small hub on this machine: the protocol of Hugging Face's hub, and that of ModelScope's.

A real server that real clients talk to. It holds repositories of a commit each, counts what it is
asked, and can be told to behave badly: to refuse, cut connections, lie about sizes, send on.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

LARGE_BYTES = 64
"""From here on a file is kept as the hub keeps large files: by its hash, with a linked size."""
KINDS = {"models": "model", "datasets": "dataset"}


@dataclass(kw_only=True)
class Repository:
    """Files at one commit, and what is odd about them."""

    files: dict[str, bytes]
    refuses: tuple[int, str] | None = None
    """Status and error code that every question gets."""
    cuts: dict[str, list[int]] = field(default_factory=dict)
    """Path → bytes after which each next answer breaks off; [] is whole again."""
    sends_on: dict[str, str] = field(default_factory=dict)
    """Path → another address that has it."""
    lists: dict[str, int] = field(default_factory=dict)
    """Path → the size that is told, in place of its own."""
    etags: dict[str, str] = field(default_factory=dict)
    """Path → what it calls the content, where that is not its hash."""
    slow_seconds: float = 0.0
    """Wait before each piece of a file."""

    @property
    def sha(self) -> str:
        """Its commit."""
        content = b"".join(name.encode() + body for name, body in sorted(self.files.items()))
        return hashlib.sha1(content).hexdigest()

    def size(self, path: str) -> int:
        """Bytes of a file, as they are told."""
        return self.lists.get(path, len(self.files[path]))


class Hub:
    """What a server has, and what it was asked."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.asked: list[tuple[str, str, str | None]] = []
        """(method, path, Range) of each request."""
        self.tokens: set[str | None] = set()
        self.address = ""

    def add(self, kind: str, name: str, files: Mapping[str, bytes], **odd: Any) -> Repository:
        """Put a repository on it."""
        self.repositories[kind, name] = Repository(files=dict(files), **odd)
        return self.repositories[kind, name]

    def downloads(self, path: str) -> list[str | None]:
        """Ranges of the requests for the content of a file."""
        ends = (f"/{path}", f"FilePath={urllib.parse.quote_plus(path)}")
        return [r for method, asked, r in self.asked if method == "GET" and asked.endswith(ends)]


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub that answers until the block ends."""
    hub = Hub()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), type("Bound", (_Handler,), {"hub": hub})
    )
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None: ...

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.hub.asked.append((self.command, self.path, self.headers.get("Range")))
        self.hub.tokens.add(self.headers.get("Authorization"))
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        for pattern, answer in ROUTES:
            found = re.fullmatch(pattern, path)
            if found:
                answer(self, found, dict(urllib.parse.parse_qsl(query)), body)
                return
        self._refuse(404, "RepoNotFound")

    def _repository(self, kind: str, name: str, revision: str | None) -> Repository | None:
        found = self.hub.repositories.get((kind, name))
        if found is None:
            self._refuse(404, "RepoNotFound")
        elif found.refuses is not None:
            self._refuse(*found.refuses)
        elif revision not in (None, "main", "master", found.sha):
            self._refuse(404, "RevisionNotFound")
        else:
            return found
        return None

    def _refuse(self, status: int, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self._json({"Code": status, "Message": code, "error": code}, begun=True)

    def _json(self, value: object, *, begun: bool = False) -> None:
        content = json.dumps(value).encode()
        if not begun:
            self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def hf_info(self, found: re.Match[str], query: Mapping[str, str], body: bool) -> None:
        repository = self._repository(KINDS[found[1]], found[2], found[3])
        if repository is not None:
            siblings = [{"rfilename": name} for name in repository.files]
            self._json({"id": found[2], "sha": repository.sha, "siblings": siblings, "tags": []})

    def hf_tree(self, found: re.Match[str], query: Mapping[str, str], body: bool) -> None:
        repository = self._repository(KINDS[found[1]], found[2], found[3])
        if repository is not None:
            self._json([_entry(repository, name) for name in repository.files])

    def hf_file(self, found: re.Match[str], query: Mapping[str, str], body: bool) -> None:
        kind = "dataset" if found[1] else "model"
        repository = self._repository(kind, found[2], found[3])
        if repository is None:
            return
        if found[4] not in repository.files:
            self._refuse(404, "EntryNotFound")
            return
        self._file(repository, found[4], body)

    def ms_files(self, found: re.Match[str], query: Mapping[str, str], body: bool) -> None:
        repository = self._repository(KINDS[found[1]], found[2], query.get("Revision"))
        if repository is not None:
            files = [
                {
                    "Path": name,
                    "Name": name,
                    "Type": "blob",
                    "Size": repository.size(name),
                    "Sha256": hashlib.sha256(content).hexdigest(),
                }
                for name, content in repository.files.items()
            ]
            self._json({"Code": 200, "Success": True, "Data": {"Files": files}})

    def ms_file(self, found: re.Match[str], query: Mapping[str, str], body: bool) -> None:
        repository = self._repository(KINDS[found[1]], found[2], query.get("Revision"))
        if repository is not None:
            self._file(repository, query["FilePath"], body)

    def ms_info(self, found: re.Match[str], query: Mapping[str, str], body: bool) -> None:
        repository = self._repository(KINDS[found[1]], found[2], None)
        if repository is not None:
            self._json({"Code": 200, "Success": True, "Data": {"Name": found[2]}})

    def _file(self, repository: Repository, path: str, body: bool) -> None:
        content = repository.files[path]
        first, status = 0, 200
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        last = len(content) - 1
        if wanted and body:
            first, status = int(wanted[1]), 206
            last = min(last, int(wanted[2])) if wanted[2] else last
        elsewhere = repository.sends_on.get(path)
        self.send_response(302 if elsewhere else status)
        self.send_header("X-Repo-Commit", repository.sha)
        etag = repository.etags.get(path) or _etag(content)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Accept-Ranges", "bytes")
        if len(content) >= LARGE_BYTES:
            self.send_header("X-Linked-ETag", f'"{etag}"')
            self.send_header("X-Linked-Size", str(repository.size(path)))
        if elsewhere:
            self.send_header("Location", elsewhere)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        if body:
            self._send(repository, path, content[first : last + 1])

    def _send(self, repository: Repository, path: str, content: bytes) -> None:
        cuts = repository.cuts.get(path) or []
        limit = cuts.pop(0) if cuts else None
        for start in range(0, len(content[:limit]), 1 << 20):
            time.sleep(repository.slow_seconds)
            self.wfile.write(content[:limit][start : start + (1 << 20)])
        if limit is not None and limit < len(content):
            self.close_connection = True
            self.wfile.flush()
            self.connection.shutdown(2)


def _etag(content: bytes) -> str:
    if len(content) >= LARGE_BYTES:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(content).hexdigest()


def _entry(repository: Repository, name: str) -> dict[str, Any]:
    content, size = repository.files[name], repository.size(name)
    entry: dict[str, Any] = {"type": "file", "path": name, "size": size, "oid": _etag(content)[:40]}
    if len(content) >= LARGE_BYTES:
        entry["lfs"] = {"oid": _etag(content), "size": size, "pointerSize": 130}
    return entry


NAME = r"([\w.-]+/[\w.-]+)"
ROUTES = [
    (rf"/api/(models|datasets)/{NAME}/tree/([^/]+)", _Handler.hf_tree),
    (rf"/api/(models|datasets)/{NAME}(?:/revision/([^/]+))?", _Handler.hf_info),
    (rf"/(datasets/)?{NAME}/resolve/([^/]+)/(.+)", _Handler.hf_file),
    (rf"/api/v1/(models|datasets)/{NAME}/repo/(?:files|tree)", _Handler.ms_files),
    (rf"/api/v1/(models|datasets)/{NAME}/repo", _Handler.ms_file),
    (rf"/api/v1/(models|datasets)/{NAME}", _Handler.ms_info),
]
