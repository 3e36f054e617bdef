"""A record by its path, whether it has a file of its own or stands in a shard of its log folder."""

from __future__ import annotations

import errno
import os
import threading
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from agentsys.records.shards.shard_folder import SHARDS, ShardEntry, ShardFolder

_DEPTH = 5
"""Components of a record's path under its log folder: pipeline, suite, user task, attack and the file."""

_lock = threading.Lock()


class FileStamp(NamedTuple):
    """The marks by which a record is known to be the one that was read."""

    inode: int
    """In a shard: the offset."""
    size: int
    """In a shard: as it is stored there."""
    mtime_ns: int


def content_of(path: str) -> bytes:
    """Read a record, or any other file.

    Raises:
        OSError: If there is none at this path, or it cannot be read.
        UnreadableRecord: If it is damaged in its shard.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123  Path.open costs 10% more over 40,000 files
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        folder, entry = _placed(path)
        try:
            return folder.read(entry).file.encode()
        except FileNotFoundError:  # unpacked at this moment
            return Path(path).read_bytes()


def stamp_of(path: str) -> FileStamp:
    """The marks of a record, or of any other file.

    Raises:
        OSError: If there is none at this path, or it is out of reach.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  Path.stat costs twice as much
    except (FileNotFoundError, NotADirectoryError):
        entry = _placed(path)[1]
        return FileStamp(entry.offset, entry.length, entry.written_ns)
    return FileStamp(status.st_ino, status.st_size, status.st_mtime_ns)


def is_stored(path: str) -> bool:
    """Say whether there is a record, or any other file, at a path."""
    try:
        stamp_of(path)
    except OSError:
        return False
    return not os.path.isdir(path)  # noqa: PTH112


def shards_above(path: str) -> tuple[ShardFolder, str] | None:
    """The shards of the log folder that a path is, or lies in; None if it has none.

    Returns:
        The shards, and the path below the log folder (`""`: it is the log folder).
    """
    home = os.path.abspath(path)  # noqa: PTH100  names as they were given, links not followed
    below: list[str] = []
    for _ in range(_DEPTH + 1):
        if os.path.isdir(os.path.join(home, SHARDS)):  # noqa: PTH112, PTH118
            return _shards_of(home), "/".join(reversed(below))
        home, _, name = home.rpartition("/")
        below.append(name)
        if not home:
            break
    return None


def _placed(path: str) -> tuple[ShardFolder, ShardEntry]:
    folder, name = os.path.split(path)
    home = _home_of(os.path.abspath(folder))  # noqa: PTH100
    if home is not None:
        logdir, below = home
        folder_of_shards, key = _shards_of(logdir), f"{below}/{name}"
        entry = folder_of_shards.find(key) or folder_of_shards.refresh().find(key)
        if entry is not None:
            return folder_of_shards, entry
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


@lru_cache(maxsize=100_000)
def _home_of(folder: str) -> tuple[str, str] | None:
    """The log folder above a folder of records, if that can be one by its depth, and the rest of the path."""
    parts = folder.rsplit("/", _DEPTH - 1)
    return (parts[0] or "/", "/".join(parts[1:])) if len(parts) == _DEPTH else None


@lru_cache(maxsize=64)
def _followed(logdir: str) -> ShardFolder:
    return ShardFolder(Path(logdir)).refresh()


def _shards_of(logdir: str) -> ShardFolder:
    with _lock:
        return _followed(logdir)
