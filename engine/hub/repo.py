"""What is on a hub, and how it gets here: listed, disk checked first, resumed, sizes checked."""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Literal, Protocol
from urllib.parse import quote

from engine.failure import RunError
from engine.record import read_json, write_json

Kind = Literal["model", "dataset"]
GIB = 1024**3
COMMIT = re.compile(r"[0-9a-f]{40}")
"""A revision that always means the same files."""
SPARE_BYTES = 256 * 1024**2
"""Of a disk, left free: a full one ends other programs too."""
TOLD_SECONDS = 2.0
Told = Callable[[int, int], object]
"""Is told how many bytes of how many have arrived."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Repo:
    """A model or a data set that a hub is asked for."""

    name: str
    """Such as `Qwen/Qwen3-8B`."""
    kind: Kind
    revision: str | None
    """Commit, branch or tag; None takes the newest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class File:
    """A file of a repository."""

    path: str
    size_bytes: int
    sha256: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """What a repository holds at one commit."""

    revision: str
    files: Sequence[File]

    def file(self, path: str) -> File | None:
        """The file of that name."""
        return next((file for file in self.files if file.path == path), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """Files of a repository that are here."""

    folder: Path
    revision: str
    paths: Sequence[str]
    content: str
    """What the hub says they hold; stands for the commit where a hub names none."""


class Hub(Protocol):
    """One kind of hub, through the library of its makers."""

    name: str
    """As the setting `source` calls it."""
    place: str
    """Its address, for sentences."""

    def cache(self, repo: Repo) -> Path:
        """The folder that holds what is fetched of a repository."""
        ...

    def ask(self, repo: Repo) -> Listing:
        """What the hub says a repository holds.

        Raises what its library raises.
        """
        ...

    def folder(self, repo: Repo, listing: Listing) -> Path:
        """Where the files of a listing are, or will be."""
        ...

    def get(self, repo: Repo, listing: Listing, files: Sequence[File]) -> None:
        """Make files be there. Raises what its library raises."""
        ...

    def refusal(self, repo: Repo, error: Exception) -> RunError:
        """What an error of its library means, in one sentence."""
        ...


Read = Callable[[str], Path]
Choose = Callable[[Listing, Read], Sequence[str]]
"""Which files of a repository are wanted; may read small ones of it first."""


def fetch(hub: Hub, repo: Repo, choose: Choose, told: Told) -> Snapshot:
    """The chosen files of a repository, in a local folder.

    A commit whose files are all here is taken without asking anybody. Raises RunError: disk_full
    before anything large is fetched, and whatever `hub.refusal` makes of the rest.
    """
    try:
        listing = _listing(hub, repo)
        folder = hub.folder(repo, listing)

        def read(path: str) -> Path:
            file = listing.file(path)
            assert file is not None
            _get(hub, repo, listing, [file])
            return folder / path

        chosen = set(choose(listing, read))
        files = [file for file in listing.files if file.path in chosen]
        needed = sum(file.size_bytes for file in files if not _is_whole(folder, file))
        if needed:
            _check_disk(hub.cache(repo), needed, repo)
            with _Watched(hub.cache(repo), needed, told):
                _get(hub, repo, listing, files)
    except RunError as error:
        where = "" if str(error).startswith(repo.name) else f"{repo.name}: "
        raise RunError(error.failure, f"{where}{error}") from None
    except Exception as error:
        raise hub.refusal(repo, error) from None
    return Snapshot(
        folder=folder,
        revision=listing.revision,
        paths=[file.path for file in files],
        content=content_of(files),
    )


def content_of(files: Sequence[File]) -> str:
    """A hash over names, sizes and contents, as far as the hub tells them."""
    lines = sorted(f"{file.path} {file.size_bytes} {file.sha256}" for file in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:40]


def _listing(hub: Hub, repo: Repo) -> Listing:
    """What the hub says or, where it cannot be asked, what it said when it last was."""
    kept = hub.cache(repo) / "listings"
    last = _recorded(kept, repo.revision)
    if last is not None and COMMIT.fullmatch(repo.revision or ""):
        return last
    try:
        listing = hub.ask(repo)
    except Exception as error:
        if last is None or not is_unreachable(error):
            raise
        return last
    outside = next((f.path for f in listing.files if leads_out(f.path)), None)
    if outside is not None:
        raise RunError("unknown", f"{repo.name}: {hub.place} lists a file outside: {outside!r}")
    _record(kept, repo.revision, listing)
    return listing


def leads_out(path: str) -> bool:
    """Whether a name of the hub's means a place outside of the folder it belongs in."""
    parts = PurePosixPath(path).parts
    return not parts or path.startswith("/") or ".." in parts


def _record(folder: Path, asked: str | None, listing: Listing) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    said = {"revision": listing.revision, "files": [asdict(file) for file in listing.files]}
    for name in {_key(asked), _key(listing.revision)}:
        write_json(folder / f"{name}.json", said)


def _recorded(folder: Path, asked: str | None) -> Listing | None:
    said = read_json(folder / f"{_key(asked)}.json")
    try:
        files = [File(**file) for file in said["files"]]
        return Listing(revision=said["revision"], files=files)
    except (KeyError, TypeError):
        return None


def _key(revision: str | None) -> str:
    """A revision as the name of a file."""
    return quote(revision or "newest", safe="")


def _is_whole(folder: Path, file: File) -> bool:
    path = folder / file.path
    return path.is_file() and path.stat().st_size == file.size_bytes


def _get(hub: Hub, repo: Repo, listing: Listing, files: Sequence[File]) -> None:
    """Fetch what is missing of some files.

    Raises RunError for one of another size than the hub lists.
    """
    folder = hub.folder(repo, listing)
    missing = [file for file in files if not _is_whole(folder, file)]
    if missing:
        hub.get(repo, listing, missing)
    for file in files:
        if not _is_whole(folder, file):
            path = folder / file.path
            size = f"{path.stat().st_size:,} bytes" if path.is_file() else "nothing"
            raise RunError(
                "unknown",
                f"{repo.name}: {hub.place} gave {size} for {file.path}, which it lists with "
                f"{file.size_bytes:,}: try again, or another mirror",
            )


def _check_disk(cache: Path, needed_bytes: int, repo: Repo) -> None:
    """Raises RunError (disk_full) when a disk has no room for what is still to come."""
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    if needed_bytes + SPARE_BYTES > free:
        raise RunError(
            "disk_full",
            f"{repo.name}: {needed_bytes / GIB:.1f} GiB are still to be fetched, and the disk of "
            f"{there} has {free / GIB:.1f} GiB free: make room, or set HF_HOME (ModelScope: "
            "MODELSCOPE_CACHE) to a folder on another disk",
        )


class _Watched(AbstractContextManager[None]):
    """Tells how many bytes have arrived, by what lies on the disk."""

    def __init__(self, folder: Path, total_bytes: int, told: Told) -> None:
        self._folder, self._total, self._told = folder, total_bytes, told
        self._before = _held(folder)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell, daemon=True)

    def __enter__(self) -> None:
        self._told(0, self._total)
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        if error is None:
            self._told(self._total, self._total)

    def _tell(self) -> None:
        while not self._over.wait(TOLD_SECONDS):
            arrived = max(0, _held(self._folder) - self._before)
            self._told(min(arrived, self._total), self._total)


def _held(folder: Path) -> int:
    """Bytes of the files in a folder; links count nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += 0 if path.is_symlink() or not path.is_file() else path.stat().st_size
        except OSError:  # renamed just now
            continue
    return total


UNREACHABLE = frozenset(
    {"ConnectError", "TimeoutException", "OfflineModeIsEnabled", "NetworkError", "ConnectionError"}
)
"""Errors of the hubs' libraries and of what they are built on: nobody answered."""


def chain(error: BaseException) -> Iterable[BaseException]:
    """An error and what caused it, outermost first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def kinds(error: BaseException) -> frozenset[str]:
    """Names of an error's classes and those of its causes: libraries rename their modules."""
    return frozenset(cls.__name__ for one in chain(error) for cls in type(one).__mro__)


def is_unreachable(error: BaseException) -> bool:
    """Whether nobody answered, so that what is here may stand in."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return bool(kinds(error) & UNREACHABLE) or (isinstance(status, int) and status >= 500)
