"""`listed`: the JSON files under a folder, each folder once, hidden ones passed over.

Files with many cases each (ASB's results) are listed apart, as they have no place in the index.
"""

from __future__ import annotations

import hashlib
import os
import stat
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from agentsys.errors import ConfigError
from agentsys.records.case import ATTEMPTS
from agentsys.records.formats.asb import is_asb_result
from agentsys.records.shards.either import is_stored, shards_above
from agentsys.records.shards.remote import mirror_of
from agentsys.records.shards.shard_folder import SHARDS, ShardFolder

FolderId = tuple[int, int]
"""Device and inode: the same for every path that leads to a folder."""


class Skipped(NamedTuple):
    """A file (or a folder that cannot be listed) that was passed over."""

    path: str
    reason: str


class Listing(NamedTuple):
    """The contents of one given path."""

    root: str
    """The path as it was given; every file's path begins with it."""
    folders: dict[FolderId, list[str]]
    """Folder -> paths of its JSON files; both sorted, a folder before its subfolders."""
    unlisted: list[Skipped]
    """Folders that may not be looked into, and pipes and devices."""
    results: dict[FolderId, list[str]]
    """Folder -> paths of ASB's results files; only folders that hold some."""

    @property
    def files(self) -> list[str]:
        """All paths, in order."""
        return [path for paths in self.folders.values() for path in paths]


def listed(root: Path) -> Listing:
    """Every JSON file under a folder; a file given itself is listed whatever its name.

    Args:
        root: A folder or a file. Links are followed; every folder is visited once. The shards at a URL are
            fetched, and the folder that they are in now is listed.

    Raises:
        ConfigError: If there is nothing at this path.
    """
    root = mirror_of(root) or root
    sharded = _Sharded(str(root))
    if not root.exists():
        if is_stored(str(root)):
            return Listing(str(root), {_made_up(str(root)): [str(root)]}, sharded.damaged, {})
        if not any(sharded.inside(str(root))):
            raise ConfigError(f"No folder '{root}'. Give the log folder of a run, e.g. results/runs.")
    if root.is_file():
        status = root.stat()
        alone = {(status.st_dev, status.st_ino): [str(root)]}
        if root.suffix == ".csv" and is_asb_result(str(root)):
            return Listing(str(root), {}, [], alone)
        return Listing(str(root), alone, [], {})
    found = Listing(str(root), {}, sharded.damaged, {})
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            subfolders = _visit(folder, found, sharded)
        except OSError as error:
            found.unlisted.append(Skipped(folder, f"cannot be read ({error.strerror})"))
        else:
            waiting += reversed(subfolders)
    return found


def is_listed(root: Path) -> bool:
    """Say whether `listed` finds anything at this path."""
    root = mirror_of(root) or root
    return root.exists() or is_stored(str(root)) or any(_Sharded(str(root)).inside(str(root)))


class _Sharded:
    """The folders and records of a walk that are in shards."""

    def __init__(self, root: str) -> None:
        self._homes: list[tuple[str, str, ShardFolder]] = []
        self.damaged: list[Skipped] = []
        """Parts of shards that no record can be read from; it grows with the walk."""
        self._enter(root)

    def inside(self, folder: str) -> tuple[list[str], list[str]]:
        """The subfolders and the records of a folder, by their paths, sorted."""
        if os.path.isdir(os.path.join(folder, SHARDS)):  # noqa: PTH112, PTH118
            self._enter(folder)
        for top, below, shards in reversed(self._homes):
            if folder == top or folder.startswith(os.path.join(top, "")):  # noqa: PTH118
                parts = [below, folder[len(top) :].strip("/")]
                names = shards.tree.get("/".join(filter(None, parts)), ([], []))
                folders, files = ([os.path.join(folder, name) for name in some] for some in names)  # noqa: PTH118
                return folders, files
        return [], []

    def _enter(self, folder: str) -> None:
        found = None if any(top == folder for top, _, _ in self._homes) else shards_above(folder)
        if found is not None:
            shards, below = found
            self._homes.append((folder, below, shards.refresh()))
            self.damaged += [Skipped(str(part.shard), part.line) for part in shards.damaged]


def _made_up(folder: str) -> FolderId:
    """What stands for the identity of a folder all of whose records are in shards."""
    path = os.path.abspath(folder)  # noqa: PTH100
    return -1, int.from_bytes(hashlib.sha256(os.fsencode(path)).digest()[:8], "big")


def _visit(folder: str, found: Listing, sharded: _Sharded) -> list[str]:
    """Enters a folder's files, unless it was visited before, and gives its subfolders, sorted."""
    more_folders, more_files = sharded.inside(folder)
    try:
        status = os.stat(folder)  # noqa: PTH116  `folder` is a str already
    except FileNotFoundError:
        if not more_folders and not more_files:
            raise
        found.folders[_made_up(folder)] = more_files
        return more_folders
    identity = (status.st_dev, status.st_ino)
    if identity in found.folders:
        return []
    with os.scandir(folder) as entries:
        shown = sorted((entry for entry in entries if entry.name[0] != "."), key=attrgetter("name"))
    subfolders = [entry.path for entry in shown if _is_folder(entry) and not _holds_attempts(entry)]
    endless = [entry.path for entry in shown if _endless(entry)]
    found.unlisted.extend(Skipped(path, "a pipe or a device, no file") for path in endless)
    files = [entry.path for entry in shown if entry.path not in endless]
    own = {path for path in files if path.endswith(".json")}.difference(subfolders)
    found.folders[identity] = sorted(own.union(more_files))
    tables = [path for path in files if path.endswith(".csv") and is_asb_result(path)]
    if tables:
        found.results[identity] = sorted(tables)
    return sorted({*subfolders, *more_folders}) if more_folders else subfolders


def _holds_attempts(entry: os.DirEntry[str]) -> bool:
    """Whether a folder holds a search's attempts, which are no cases of their own."""
    return entry.name.endswith(ATTEMPTS)


def _endless(entry: os.DirEntry[str]) -> bool:
    """Whether this is a pipe, a socket or a device, which would be waited for, or read, for ever."""
    try:
        return not entry.is_file() and not entry.is_dir() and not stat.S_ISREG(entry.stat().st_mode)
    except OSError:  # a link to nothing: whoever reads it says so
        return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in circles, or into a place out of reach
        return False
