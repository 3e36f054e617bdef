"""`unpack_shards`: the records that earlier versions wrote into shards -> a file each.

A shard is a gzip file with a member per record, each a line of JSON. A process that is killed on the way
loses nothing: the shards are put away when every record has its file, and whoever comes next goes on.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.base.atomic_file import Process, write_atomically
from agentsys.errors import ConfigError

LOGDIR_OWN_FOLDER = ".agentsys"
"""The folder that our store keeps for itself inside a log folder; hidden, so never read as a case."""
_DEPTH = 5
"""Components of a record's path under its log folder: pipeline, suite, user task, attack and the file."""
_GONE = "gone"
"""Status of a line by which older lines of its key count no more."""
_MAGIC, _GZIP = b"\x1f\x8b\x08", 31
_CHUNK, _LARGEST = 1 << 16, 1 << 28
"""Bytes that are inflated at once, and of a record at most: anyone may have written the shard."""
_BEAT_S = 60.0
"""A run touches its heartbeat more often than that."""

_log = logging.getLogger(__name__)


class _ShardLine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    written_ns: int
    status: str
    config_hash: str = ""
    file: str = ""


class _ShardPosition(NamedTuple):
    """A line in a shard; of several lines of one key the greatest counts."""

    written_ns: int
    shard: str
    offset: int
    gone: bool


def unpack_shards_above(path: Path) -> None:
    """Unpack the shards of a folder, and those of the log folders that it may lie in.

    Raises:
        ConfigError: If the files cannot be written, or a process still writes to the shards.
    """
    whole = path.absolute()
    for place in (whole, *whole.parents[:_DEPTH]):
        unpack_shards(str(place))


def unpack_shards(logdir: str) -> bool:
    """Give every record in a log folder's shards its file; a record that has one is left as it is.

    Returns:
        Whether there were shards, which are put away now.

    Raises:
        ConfigError: If the files cannot be written, or a process still writes to the shards.
    """
    own = Path(logdir, LOGDIR_OWN_FOLDER)
    shards = sorted((own / "shards").glob("*.jsonl.gz"))
    if not shards:
        return False
    _check_unused(own, shards)
    try:
        damaged = _write_records(Path(logdir), shards)
        os.sync()  # one wait for the disk in place of one per file
    except OSError as error:
        raise ConfigError(
            f"{logdir} holds records in shards, which this version turns into files, and cannot be written "
            f"({error.strerror}): make room, or give a copy of the folder that you can write to."
        ) from None
    with suppress(OSError):  # read-only, with all files there; or another process was faster
        aside = own / f"shards-unpacked-{Process.here().mark}"
        (own / "shards").rename(aside)
        if damaged or any(aside.glob("*.torn")):
            _log.warning("%s: parts of its shards are no whole records; they are kept in %s", logdir, aside)
        else:
            shutil.rmtree(aside)
    return not (own / "shards").exists()


def _check_unused(own: Path, shards: list[Path]) -> None:
    """Check that no other process still writes to the shards.

    Names of shards and of heartbeat files begin with their process's mark, which has three parts.

    Raises:
        ConfigError: If another process may be at work.
    """
    writers = [Process.from_mark("-".join(shard.name.split("-")[:3])) for shard in shards]
    # `is_dead` is None for a process of another machine: it counts as living only with a young heartbeat, below.
    living = [one for one in writers if one is not None and one.is_dead is False]
    for beat in (own / "claims").glob("*.alive"):
        process = Process.from_mark("-".join(beat.name.split("-")[:3]))
        with suppress(OSError):
            young = time.time() - beat.stat().st_mtime < _BEAT_S
            if process is not None and young and not process.is_dead:
                living.append(process)
    others = [one for one in living if one != Process.here()]
    if others:
        raise ConfigError(
            f"Process {others[0].pid} of an earlier version is at work in {own.parent}, whose records are to "
            "be turned into files: let it finish first."
        )


def _write_records(logdir: Path, shards: list[Path]) -> bool:
    damaged, newest = False, dict[str, _ShardPosition]()
    for shard in shards:
        for offset, line in _read_lines(shard.read_bytes()):
            if line is None or not _is_inside(logdir, line.key):
                damaged = True
                continue
            found = _ShardPosition(line.written_ns, shard.name, offset, line.status == _GONE)
            newest[line.key] = max(found, newest.get(line.key, found))
    written = 0
    for shard in shards:
        data = shard.read_bytes()
        for key, found in newest.items():
            if found.shard == shard.name and not found.gone and not (logdir / key).exists():
                member = _read_member(data, found.offset)
                assert member is not None, "read a moment ago"
                line, _ = member
                write_atomically(logdir / key, line.file.encode(), durable=False)
                os.utime(logdir / key, ns=(line.written_ns, line.written_ns))
                written += 1
    _log.warning("%s: %d records were moved out of shards into files.", logdir, written)
    return damaged


def _is_inside(logdir: Path, key: str) -> bool:
    """True if a key is a record's path, which leads nowhere out of the log folder."""
    *folders, name = parts = key.split("/")
    plain = len(parts) == _DEPTH and all(part and part[0] != "." and "\0" not in part for part in parts)
    return (
        plain
        and name.endswith(".json")
        and _resolve_folder(str(logdir.joinpath(*folders))).startswith(_resolve_folder(str(logdir)))
    )


@lru_cache(maxsize=10_000)
def _resolve_folder(folder: str) -> str:
    return os.path.join(os.path.realpath(folder), "")  # noqa: PTH118


def _read_lines(data: bytes) -> Iterator[tuple[int, _ShardLine | None]]:
    """The lines of a shard and their offsets; None stands for bytes that are no whole line."""
    at = 0
    while at < len(data):
        found = _read_member(data, at)
        if found is None:
            yield at, None
            at = data.find(_MAGIC, at + 1)
            if at < 0:
                return
        else:
            line, end = found
            yield at, line
            at = end


def _read_member(data: bytes, start: int) -> tuple[_ShardLine, int] | None:
    """The line at an offset and where it ends; None if there is no whole one."""
    inflate, text, at = zlib.decompressobj(_GZIP), bytearray(), start
    while not inflate.eof:
        chunk = data[at : at + _CHUNK]
        at += len(chunk)
        try:
            text += inflate.decompress(chunk, _LARGEST)
        except zlib.error:
            return None
        if not chunk or len(text) >= _LARGEST or inflate.unconsumed_tail:
            return None
    try:
        return _ShardLine.model_validate_json(bytes(text)), at - len(inflate.unused_data)
    except ValidationError:
        return None
