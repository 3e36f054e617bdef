"""`pack` and `unpack`: a log folder's records from a file each into shards, and back, to the letter.

A process that is killed on the way loses nothing: a file is removed when its record is in a shard on the
disk, the shards when every record of theirs has its file; what is in both counts once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import orjson

from agentsys.atomic_file import Process, write_atomically
from agentsys.records.case import ATTEMPTS, Case
from agentsys.records.schema import OWN_KEY
from agentsys.records.shards.shard_folder import ShardFolder
from agentsys.records.shards.shard_line import ShardLine
from agentsys.records.shards.shard_writer import ShardWriter
from agentsys.records.unreadable import UnreadableRecord

_AT_ONCE = 200
"""Records that are held in memory and put on the disk together."""


class MovedRecords(NamedTuple):
    """What was done to a log folder."""

    records: int
    """Moved into shards, or out of them."""
    left: int
    """Files that are no record of ours (published ones, damaged ones), or records that are damaged."""


def pack(logdir: Path) -> MovedRecords:
    """Put the records that have files into one new shard; attempts of searches keep theirs.

    Nobody may be writing to the folder.

    Raises:
        OSError: If the disk does not take them. What was packed till then is.
    """
    known, writer, moved, left = ShardFolder(logdir).refresh(), ShardWriter(logdir), 0, 0
    found = _record_files(logdir)
    while paths := list(islice(found, _AT_ONCE)):
        read = [(path, line) for path in paths if (line := _line_of(path, logdir, known)) is not None]
        if read:
            writer.append([line for _, line in read])
        for path, _ in read:
            path.unlink()
        moved, left = moved + len(read), left + len(paths) - len(read)
    writer.close()
    _remove_empty(logdir)
    return MovedRecords(moved, left)


def unpack(logdir: Path) -> MovedRecords:
    """Give every record in a shard its file again. Nobody may be writing to the folder.

    Raises:
        OSError: If the disk does not take them; then the shards stay.
    """
    folder, moved, left = ShardFolder(logdir).refresh(), 0, 0
    for key, entry in folder:
        path = logdir / key
        if path.exists():  # newer, or left by an unpacking that was stopped
            continue
        try:
            line = folder.read(entry)
        except UnreadableRecord:
            left += 1
            continue
        write_atomically(path, line.file.encode(), durable=False)
        os.utime(path, ns=(line.written_ns, line.written_ns))
        moved += 1
    if folder.folder.is_dir():
        _put_away(folder, keep=bool(left or folder.damaged))
    return MovedRecords(moved, left)


def set_torn_aside(logdir: Path) -> list[Path]:
    """Cut half records off the shards whose processes were killed, and keep them in files of their own.

    Returns:
        These files.
    """
    folder, kept = ShardFolder(logdir).refresh(), []
    for part in folder.damaged:
        if part.offset + part.size == part.shard.stat().st_size:
            aside = part.shard.with_name(f"{part.shard.name}.{part.offset}.torn")
            with part.shard.open("rb") as file:
                file.seek(part.offset)
                write_atomically(aside, file.read())
            os.truncate(part.shard, part.offset)
            kept.append(aside)
    return kept


def _put_away(folder: ShardFolder, *, keep: bool) -> None:
    """Remove the shards, in one step; with something in them that nobody can read they are kept aside."""
    os.sync()  # one wait for the disk in place of one per file
    marked = folder.folder.with_name(f"shards-unpacked-{Process.here().mark}")
    folder.folder.rename(marked)
    if not keep:
        shutil.rmtree(marked)


def _record_files(logdir: Path) -> Iterator[Path]:
    """The files that lie where records do: `<pipeline>/<suite>/<user task>/<attack>/<injection>.json`."""
    for pipeline in _folders(logdir):
        for suite in _folders(pipeline):
            for user in _folders(suite):
                for attack in _folders(user):
                    yield from sorted(path for path in attack.glob("*.json") if path.is_file())


def _folders(parent: Path) -> list[Path]:
    return sorted(
        path
        for path in parent.iterdir()
        if path.is_dir() and path.name[0] != "." and not path.name.endswith(ATTEMPTS)
    )


def _line_of(path: Path, logdir: Path, known: ShardFolder) -> ShardLine | None:
    """A file as a line of a shard; None if it is no record of ours that is in its place."""
    try:
        content, written_ns = path.read_bytes(), path.stat().st_mtime_ns
        block = orjson.loads(content)[OWN_KEY]
        key = path.relative_to(logdir).as_posix()
        if Case.model_validate(block["case"]).key != key:
            return None
        before = known.find(key)
        return ShardLine(
            key=key,
            written_ns=written_ns if before is None else max(written_ns, before.written_ns + 1),
            status=str(block["status"]),
            config_hash=str(block["config_hash"]),
            file=content.decode(),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _remove_empty(logdir: Path) -> None:
    for pipeline in _folders(logdir):
        for parent, _, _ in os.walk(pipeline, topdown=False):
            with suppress(OSError):  # something else lies there
                Path(parent).rmdir()
