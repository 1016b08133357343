"""ModelScope, through the library of its makers."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib import util
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.failure import RunError
from engine.hub.repo import File, Listing, Repo, chain, content_of, kinds
from engine.theirs import why

BRANCH = "master"


class ModelScope:
    """Asks with the account of MODELSCOPE_API_TOKEN, if there is one."""

    name = "modelscope"

    def __init__(self) -> None:
        if util.find_spec("modelscope_hub") is None:
            raise RunError("bad_spec", "ModelScope needs `pip install modelscope-hub`")
        from modelscope_hub import HubApi, HubConfig

        self._config = HubConfig()
        self._api: Any = HubApi(self._config)
        endpoint = self._config.endpoint
        self.place = urlsplit(endpoint or "").hostname or "modelscope.cn"

    def cache(self, repo: Repo) -> Path:
        """The folder of a repository in the library's cache."""
        return Path(self._config.cache_dir) / f"{repo.kind}s" / repo.name.replace("/", "--")

    def ask(self, repo: Repo) -> Listing:
        """The files of a revision. The hub names no commit: what they hold stands for it."""
        branch = repo.revision or BRANCH
        found = self._api.list_repo_files(repo.name, repo.kind, revision=branch)
        files = [
            File(path=f.path, size_bytes=f.size, sha256=f.sha256 or None)
            for f in found
            if f.type != "tree"
        ]
        return Listing(revision=branch, files=files)

    def folder(self, repo: Repo, listing: Listing) -> Path:
        """A folder for what a revision holds now: a branch goes on, and runs keep their files."""
        return self.cache(repo) / "snapshots" / content_of(listing.files)

    def get(self, repo: Repo, listing: Listing, files: Sequence[File]) -> None:
        """Fetch files; the library goes on with those that were cut off, and compares hashes."""
        folder = self.folder(repo, listing)
        wanted = [file for file in files if not _adopted(folder, file)]
        self._api.download_repo(
            repo.name,
            repo.kind,
            revision=listing.revision,
            local_dir=folder,
            file_list=[
                {"Path": file.path, "Size": file.size_bytes, "Sha256": file.sha256}
                for file in wanted
            ],
        )

    def refusal(self, repo: Repo, error: Exception) -> RunError:
        """What an error of the library means."""
        causes = [*getattr(error, "failed_files", {}).values(), error]
        known = frozenset().union(*(kinds(one) for one in causes))
        what = "model" if repo.kind == "model" else "data set"
        if "AuthenticationError" in known:
            sentence = f"{self.place} wants a token: set MODELSCOPE_API_TOKEN"
            return RunError("bad_spec", f"{repo.name}: {sentence}")
        if "PermissionDeniedError" in known:
            sentence = f"{self.place} does not give it to this account: ask for access on its page"
            return RunError("bad_spec", f"{repo.name}: {sentence}")
        if "NotExistError" in known:
            at = f" with the revision {repo.revision}" if repo.revision else ""
            sentence = f"{self.place} has no such {what}{at}, or it is private: check the name"
            return RunError("bad_spec", f"{repo.name}: {sentence}")
        if "FileIntegrityError" in known:
            sentence = f"{self.place} gives other files than it lists: run again"
        elif known & {"NetworkError", "ConnectionError", "Timeout"}:
            sentence = f"{self.place} cannot be reached: run again later, or set source=huggingface"
        else:
            sentence = f"{self.place} did not give it ({why(next(iter(chain(causes[0]))))})"
        return RunError("unknown", f"{repo.name}: {sentence}")


def _adopted(folder: Path, file: File) -> bool:
    """Whether a file was taken over from what an earlier state of the revision held."""
    if file.sha256 is None:
        return False
    for other in folder.parent.glob("*"):
        there, here = other / file.path, folder / file.path
        if other == folder or not there.is_file() or there.stat().st_size != file.size_bytes:
            continue
        with there.open("rb") as opened:
            same = hashlib.file_digest(opened, "sha256").hexdigest() == file.sha256
        if same:
            here.parent.mkdir(parents=True, exist_ok=True)
            here.unlink(missing_ok=True)
            os.link(there, here)
            return True
    return False
