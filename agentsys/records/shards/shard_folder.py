"""`ShardFolder`: what the shards of a log folder hold, followed while they grow.

Beside each shard lies an index that only grows too: a line per record, written after it. What was written
and not entered (its process was killed in between) is found by reading the shard where the index is silent.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agentsys.atomic_file import Process
from agentsys.records.shards.shard_line import GONE, ShardLine, line_at, members

SHARDS = Path(".agentsys", "shards")
"""In the log folder."""
SUFFIX = ".jsonl.gz"
INDEX = ".index"


class ShardEntry(NamedTuple):
    """A record in a shard."""

    written_ns: int
    shard: str
    """The shard's file name; of two lines of the same moment one must be the later one everywhere."""
    offset: int
    length: int
    status: str
    config_hash: str


class ShardPart(NamedTuple):
    """Bytes of a shard that are no record."""

    shard: Path
    offset: int
    size: int

    @property
    def line(self) -> str:
        """Why they are passed over."""
        return f"{self.size} bytes at {self.offset} are no whole record; a case cut off there is run again"


@dataclass
class _Followed:
    """How far one shard was read."""

    index_at: int = 0
    end: int = 0
    """Up to here every byte is accounted for."""
    later: dict[int, int] = field(default_factory=dict)
    """Offset -> end of records behind `end`, by the index."""
    closed: bool = False
    """Whether it will not grow: its process has ended, or writes to the next one."""


class ShardFolder:
    """The shards of a log folder. Safe to use from many threads."""

    def __init__(self, logdir: Path) -> None:
        self.logdir, self.folder = logdir, logdir / SHARDS
        self._lock = threading.RLock()
        self._clear()

    def _clear(self) -> None:
        self._entries: dict[str, ShardEntry] = {}
        self._followed: dict[str, _Followed] = {}
        self._texts: dict[str, str] = {}
        self._tree: dict[str, tuple[list[str], list[str]]] | None = None
        self.damaged: list[ShardPart] = []
        """Parts that no record can be read from, each once."""

    def refresh(self) -> ShardFolder:
        """Take in what was written since."""
        with self._lock:
            try:
                names = sorted(path.name for path in self.folder.glob(f"*{SUFFIX}"))
            except OSError:
                names = []
            if self._followed.keys() - set(names):
                self._clear()
            for name in names:
                followed = self._followed.setdefault(name, _Followed())
                if not followed.closed:
                    self._follow(name, followed, full=_next(name) in names)
        return self

    def find(self, key: str) -> ShardEntry | None:
        """Where a record is; None if it is in no shard, as far as they were read."""
        found = self._entries.get(key)
        return None if found is None or found.status == GONE else found

    def read(self, entry: ShardEntry) -> ShardLine:
        """Read a record.

        Raises:
            OSError: If its shard is gone.
            UnreadableRecord: If it is damaged.
        """
        return line_at(self.folder / entry.shard, entry.offset, entry.length)

    def __iter__(self) -> Iterator[tuple[str, ShardEntry]]:
        """The records by key, shard by shard in the order they were written."""
        with self._lock:
            found = [(key, entry) for key, entry in self._entries.items() if entry.status != GONE]
        return iter(sorted(found, key=lambda item: item[1][1:3]))

    @property
    def tree(self) -> Mapping[str, tuple[list[str], list[str]]]:
        """Folder under the log folder -> its subfolders' and its records' names, sorted; `""` is the top."""
        with self._lock:
            if self._tree is None:
                self._tree = _tree_of(key for key, entry in self._entries.items() if entry.status != GONE)
            return self._tree

    def _follow(self, name: str, followed: _Followed, *, full: bool) -> None:
        shard = self.folder / name
        ended = full or _has_ended(name)  # asked before: what it wrote last is then there to be read
        try:
            self._take_index(name, followed)
            size = shard.stat().st_size
            self._take_rest(shard, followed, size)
        except OSError:  # moved away at this moment
            return
        if ended:
            followed.closed = True
            if followed.end < size:
                self.damaged.append(ShardPart(shard, followed.end, size - followed.end))

    def _take_index(self, name: str, followed: _Followed) -> None:
        try:
            with (self.folder / f"{name.removesuffix(SUFFIX)}{INDEX}").open("rb") as file:
                file.seek(followed.index_at)
                lines = file.read()
        except FileNotFoundError:
            return
        whole = lines[: lines.rfind(b"\n") + 1]
        followed.index_at += len(whole)
        for line in whole.splitlines():
            told = _checked(line)
            if told is not None:  # damaged: the shard itself is read instead
                key, offset, length, written_ns, status, config_hash = told
                followed.later[offset] = offset + length
                self._enter(key, ShardEntry(written_ns, name, offset, length, status, config_hash))
        self._advance(followed)

    def _take_rest(self, shard: Path, followed: _Followed, size: int) -> None:
        """Read what no index names; a damaged part before an indexed record is passed over."""
        while followed.end < size:
            stop = min((at for at in followed.later if at > followed.end), default=size)
            for line, offset, end in members(shard, followed.end, stop):
                length = end - offset
                entry = ShardEntry(line.written_ns, shard.name, offset, length, line.status, line.config_hash)
                self._enter(line.key, entry)
                followed.end = end
            if followed.end < stop < size:
                self.damaged.append(ShardPart(shard, followed.end, stop - followed.end))
                followed.end = stop
            elif followed.end < stop:
                return
            self._advance(followed)

    def _advance(self, followed: _Followed) -> None:
        while followed.end in followed.later:
            followed.end = followed.later.pop(followed.end)

    def _enter(self, key: str, entry: ShardEntry) -> None:
        before = self._entries.get(key)
        if before is None or before < entry:
            same = self._texts.setdefault  # a handful of hashes and shards, a million records
            told = entry._replace(
                shard=same(entry.shard, entry.shard),
                status=same(entry.status, entry.status),
                config_hash=same(entry.config_hash, entry.config_hash),
            )
            self._entries[key] = told
            self._tree = None


def index_line(key: str, entry: ShardEntry) -> bytes:
    """A record's line in the index beside its shard: a sum of what follows, and where the record is."""
    place = [key, entry.offset, entry.length, entry.written_ns, entry.status, entry.config_hash]
    told = orjson.dumps(place)
    return b"%08x %s\n" % (zlib.crc32(told), told)


def _checked(line: bytes) -> list[Any] | None:
    """The fields of such a line; None if it is damaged."""
    total, _, told = line.partition(b" ")
    return orjson.loads(told) if total == b"%08x" % zlib.crc32(told) else None


def owner_of(shard: str) -> Process | None:
    """The process that writes a shard, by the shard's name; None if it does not tell."""
    return Process.parsed("-".join(shard.split("-")[:3]))


def _next(shard: str) -> str:
    """The name of the shard that its process begins when this one is full."""
    owner, _, number = shard.removesuffix(SUFFIX).rpartition("-")
    return f"{owner}-{int(number) + 1:04d}{SUFFIX}" if number.isdigit() else ""


def _has_ended(shard: str) -> bool:
    owner = owner_of(shard)
    return owner is not None and owner.is_dead is True


def _tree_of(keys: Iterable[str]) -> dict[str, tuple[list[str], list[str]]]:
    found: dict[str, tuple[set[str], set[str]]] = {"": (set(), set())}

    def at(folder: str) -> tuple[set[str], set[str]]:
        if folder not in found:
            parent, _, name = folder.rpartition("/")
            at(parent)[0].add(name)
            found[folder] = set(), set()
        return found[folder]

    for key in keys:
        folder, _, name = key.rpartition("/")
        at(folder)[1].add(name)
    return {folder: (sorted(folders), sorted(names)) for folder, (folders, names) in found.items()}
