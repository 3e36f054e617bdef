"""`ReplyStore`: replies on disk, one small file each, and one asker for each that is not there yet."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from enum import StrEnum
from pathlib import Path
from typing import Any

from agentsys.atomic_file import write_atomically
from agentsys.models.chat import ChatReply
from agentsys.models.errors import ModelError
from agentsys.models.providers.wire_text import encode_for_wire

try:
    import fcntl
except ImportError:  # Windows: then processes do not wait for one another, threads do
    fcntl = None  # type: ignore[assignment]

_LOG = logging.getLogger(__name__)

DAMAGED_SUFFIX = ".damaged"
"""Suffix of a file that was set aside."""


class CacheMode(StrEnum):
    """What kept replies are used for."""

    OFF = "off"
    """For nothing: every request is sent, and no reply is kept."""
    READ_WRITE = "read_write"
    """A request that was answered before is not sent, and the replies of others are kept."""
    READ_ONLY = "read_only"
    """Nothing is ever sent: a request that was not answered before is an error."""


class ReplyStore:
    """Replies on disk: `<folder>/<2 hex>/<62 hex>.json`, written whole or not at all.

    Many threads and processes may use one folder; killing any of them leaves it as it was.

    Args:
        folder: The replies' folder; made when the first one is stored.
        read_only: Whether nothing is ever asked or written.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self._lock = threading.Lock()
        self._pending: dict[str, Future[ChatReply | None]] = {}

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Look up a key; None if nothing is stored under it, or nothing that can be read."""
        try:
            # Not orjson, which makes floats of integers beyond 64 bits.
            value = json.loads(self._path(key).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a value.

        Raises:
            OSError: If the disk does not take it; then nothing was stored.
        """
        write_atomically(self._path(key), encode_for_wire(value), durable=False)

    def has(self, key: str) -> bool:
        """Say whether there is a file under a key, readable or not."""
        return self._path(key).exists()

    def move_damaged(self, key: str) -> None:
        """Keep a file that is no reply under another name. Only for whoever is `alone` with the key."""
        path = self._path(key)
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(DAMAGED_SUFFIX))
            _LOG.warning("%s is no reply as it was stored; it was kept as *%s", path, DAMAGED_SUFFIX)

    def claim_request(self, key: str) -> Future[ChatReply | None] | None:
        """Say who asks: None means the caller, who then calls `done`; else what will come of who does."""
        with self._lock:
            other = self._pending.get(key)
            if other is None:
                self._pending[key] = Future()
            return other

    def finish_request(self, key: str, reply: ChatReply | None, error: ModelError | None = None) -> None:
        """Tell those who wait for a key what came of it: a reply, an error, or nothing that concerns them."""
        with self._lock:
            future = self._pending.pop(key)
        if error is None:
            future.set_result(reply)
        else:
            future.set_exception(error)

    @contextlib.contextmanager
    def lock_key(self, key: str) -> Iterator[None]:
        """Hold a key against other processes; what a killed one held is free."""
        held = self._open_locked(self._path(key).with_name(f".{key[2:]}.lock"))
        try:
            yield
        finally:
            if held is not None:
                held[1].unlink(missing_ok=True)
                os.close(held[0])

    def _open_locked(self, path: Path) -> tuple[int, Path] | None:
        """A locked file; None where there can be none: two processes then may both ask."""
        if fcntl is None:
            return None
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX)
                    if _is_same_file(descriptor, path):
                        return descriptor, path
                except OSError:
                    os.close(descriptor)
                    raise
                os.close(descriptor)
        return None

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"


def _is_same_file(descriptor: int, path: Path) -> bool:
    """Whether an open file still has its name: who held its lock before has removed it."""
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
