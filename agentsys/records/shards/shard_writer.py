"""`ShardWriter`: puts records at the end of one shard, which no other process writes to."""

from __future__ import annotations

import os
import secrets
import threading
import time
from pathlib import Path

from agentsys.atomic_file import Process
from agentsys.records.shards.shard_folder import INDEX, SHARDS, SUFFIX, ShardEntry, index_line
from agentsys.records.shards.shard_line import GONE, ShardLine

_LARGEST = 1 << 26
"""Bytes from which a shard is full, and another one is begun: what grew is sent to a URL whole."""


class ShardWriter:
    """Shards of this process alone, begun with its first record. Safe to use from many threads."""

    def __init__(self, logdir: Path) -> None:
        self._folder = logdir / SHARDS
        self._owner, self._number = f"{Process.here().mark}-{secrets.token_hex(4)}", 0
        self._lock = threading.Lock()
        self._files: tuple[int, int] | None = None
        self._full: list[int] = []
        """Files of shards that are not written to any more; a thread may still be waiting for the disk."""

    @property
    def shard(self) -> Path:
        """The file that is written to; it is not there before its first record."""
        return self._folder / f"{self._owner}-{self._number:04d}{SUFFIX}"

    def append(self, lines: list[ShardLine]) -> None:
        """Write some records; when this returns they are on the disk.

        Raises:
            OSError: If the disk does not take them; then the shard is as it was.
        """
        found = [(line, line.member) for line in lines]
        with self._lock:
            shard, index = self._files = self._files or self._opened()
            name = self.shard.name
            start = os.lseek(shard, 0, os.SEEK_END)
            try:
                _write(shard, b"".join(member for _, member in found))
            except OSError:
                os.ftruncate(shard, start)
                raise
            if start > _LARGEST:
                self._full += self._files
                self._files, self._number = None, self._number + 1
        os.fsync(shard)  # not under the lock: the disk takes what several threads wrote in one go
        entered = bytearray()
        for line, member in found:
            place = (start, len(member), line.status, line.config_hash)
            entered += index_line(line.key, ShardEntry(line.written_ns, name, *place))
            start += len(member)
        with self._lock:
            _write(index, bytes(entered))

    def take_back(self, key: str) -> None:
        """Have a record that stands in some shard count no more.

        Raises:
            OSError: If the disk does not take that.
        """
        self.append([ShardLine(key=key, written_ns=time.time_ns(), status=GONE)])

    def close(self) -> None:
        """Close the files; a later record opens them again."""
        with self._lock:
            for file in (*self._full, *(self._files or ())):
                os.close(file)
            self._files, self._full = None, []

    def _opened(self) -> tuple[int, int]:
        self._folder.mkdir(parents=True, exist_ok=True)
        index = self.shard.with_name(self.shard.name.removesuffix(SUFFIX) + INDEX)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        files = (
            os.open(self.shard, flags, 0o666),
            os.open(index, flags, 0o666),
        )
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return files


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
