"""`list_files`: the JSON files under a folder; each folder is visited once and hidden ones are passed over.

Files with many cases each (ASB's results) are listed apart, because the index has no place for them.
"""

from __future__ import annotations

import os
import stat
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from agentsys.errors import ConfigError
from agentsys.records.asb_format import is_asb_result
from agentsys.records.case import ATTEMPTS
from agentsys.records.old_shards import LOGDIR_OWN_FOLDER, unpack_shards, unpack_shards_above

FolderId = tuple[int, int]
"""Device and inode: the same for every path that leads to a folder."""


class SkippedFile(NamedTuple):
    """A file (or a folder that cannot be listed) that was passed over."""

    path: str
    reason: str


class Listing(NamedTuple):
    """The contents of one given path."""

    root: str
    """The path as it was given; every file's path begins with it."""
    folders: dict[FolderId, list[str]]
    """Folder -> paths of its JSON files; both sorted, a folder before its subfolders."""
    skipped_entries: list[SkippedFile]
    """Folders that may not be looked into, and pipes and devices."""
    asb_results: dict[FolderId, list[str]]
    """Folder -> paths of ASB's results files; only folders that hold some."""

    @property
    def files(self) -> list[str]:
        """All paths, in order."""
        return [path for paths in self.folders.values() for path in paths]


def list_files(root: Path) -> Listing:
    """Every JSON file under a folder; a file given itself is listed whatever its name.

    Args:
        root: A folder or a file. Links are followed; every folder is visited once.

    Raises:
        ConfigError: If there is nothing at this path, or records in shards cannot be turned into files.
    """
    unpack_shards_above(root)
    if not root.exists():
        raise ConfigError(f"No folder '{root}'. Give the log folder of a run, e.g. results/runs.")
    if root.is_file():
        status = root.stat()
        alone = {(status.st_dev, status.st_ino): [str(root)]}
        if root.suffix == ".csv" and is_asb_result(str(root)):
            return Listing(str(root), {}, [], alone)
        return Listing(str(root), alone, [], {})
    found = Listing(str(root), {}, [], {})
    waiting = [str(root)]
    while waiting:
        folder = waiting.pop()
        try:
            subfolders = _list_folder(folder, found)
        except OSError as error:
            found.skipped_entries.append(SkippedFile(folder, f"cannot be read ({error.strerror})"))
        else:
            waiting += reversed(subfolders)
    return found


def _list_folder(folder: str, found: Listing) -> list[str]:
    """Enters a folder's files, unless it was visited before, and gives its subfolders, sorted."""
    status = os.stat(folder)  # noqa: PTH116  `folder` is a str already
    identity = (status.st_dev, status.st_ino)
    if identity in found.folders:
        return []
    with os.scandir(folder) as listing:
        entries = [*listing]
    entries.sort(key=_name)
    subfolders, files, tables = list[str](), list[str](), list[str]()
    for entry in entries:
        name = entry.name
        if name[0] == ".":
            if name == LOGDIR_OWN_FOLDER and unpack_shards(folder):
                return _list_folder(folder, found)  # what was in them has files now
            continue
        if name.endswith(".json") and entry.is_file(follow_symlinks=False):
            files.append(entry.path)
        elif _is_folder(entry):
            if not name.endswith(ATTEMPTS):  # a search's attempts are no cases of their own
                subfolders.append(entry.path)
        elif _is_endless(entry):
            found.skipped_entries.append(SkippedFile(entry.path, "a pipe or a device, no file"))
        elif name.endswith(".json"):
            files.append(entry.path)
        elif name.endswith(".csv") and is_asb_result(entry.path):
            tables.append(entry.path)
    found.folders[identity] = files
    if tables:
        found.asb_results[identity] = tables
    return subfolders


_name = attrgetter("name")


def _is_endless(entry: os.DirEntry[str]) -> bool:
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
