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


_OWN = SHARDS.parts[0]


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


class _Sharded:
    """The folders and records of a walk that are in shards."""

    def __init__(self, root: str) -> None:
        self._homes: list[tuple[str, str, ShardFolder]] = []
        self.damaged: list[Skipped] = []
        """Parts of shards that no record can be read from; it grows with the walk."""
        self.enter(root)

    def inside(self, folder: str) -> tuple[list[str], list[str]]:
        """The subfolders and the records of a folder, by their paths, sorted."""
        for top, below, shards in reversed(self._homes):
            if folder == top or folder.startswith(os.path.join(top, "")):  # noqa: PTH118
                parts = [below, folder[len(top) :].strip("/")]
                names = shards.tree.get("/".join(filter(None, parts)), ([], []))
                folders, files = ([os.path.join(folder, name) for name in some] for some in names)  # noqa: PTH118
                return folders, files
        return [], []

    def enter(self, folder: str) -> None:
        """Look for records in a folder's shards, too."""
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
    try:
        status = os.stat(folder)  # noqa: PTH116  `folder` is a str already
    except FileNotFoundError:
        subfolders, files = sharded.inside(folder)
        if not subfolders and not files:
            raise
        found.folders[_made_up(folder)] = files
        return subfolders
    identity = (status.st_dev, status.st_ino)
    if identity in found.folders:
        return []
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=_name)
    subfolders, files, tables = list[str](), list[str](), list[str]()
    for entry in entries:
        name = entry.name
        if name[0] == ".":
            if name == _OWN and os.path.isdir(os.path.join(folder, SHARDS)):  # noqa: PTH112, PTH118
                sharded.enter(folder)
            continue
        if name.endswith(".json") and entry.is_file(follow_symlinks=False):
            files.append(entry.path)
        elif _is_folder(entry):
            if not name.endswith(ATTEMPTS):  # a search's attempts are no cases of their own
                subfolders.append(entry.path)
        elif _endless(entry):
            found.unlisted.append(Skipped(entry.path, "a pipe or a device, no file"))
        elif name.endswith(".json"):
            files.append(entry.path)
        elif name.endswith(".csv") and is_asb_result(entry.path):
            tables.append(entry.path)
    more_folders, more_files = sharded.inside(folder)
    found.folders[identity] = sorted({*files, *more_files}) if more_files else files
    if tables:
        found.results[identity] = tables
    return sorted({*subfolders, *more_folders}) if more_folders else subfolders


_name = attrgetter("name")


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
