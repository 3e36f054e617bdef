"""`BatchJournal`: what was sent in batches, on disk before it is sent, so that nothing is paid for twice."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from agentsys.atomic_file import Process, write_atomically

_LOG = logging.getLogger(__name__)


class BatchEntry(BaseModel):
    """One batch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mark: str
    """Our own word for it, sent along where the vendor takes one."""
    owner: str
    """Process that sends it (`Process.mark`)."""
    since: float
    """When it was about to be sent, in seconds since the epoch."""
    custom_ids: tuple[str, ...]
    """Its requests, in order."""
    batch_id: str | None = None
    """The vendor's id; None as long as nobody knows whether it was sent."""

    @property
    def abandoned(self) -> bool:
        """Whether the process that sent it has ended (where that can be seen from here)."""
        owner = Process.parsed(self.owner)
        return owner is None or owner.is_dead is True


class BatchJournal:
    """A model's batches in one log folder, made with the first: a file for each, one with replies handed out.

    An entry stays until the run that sent it has ended in order (`settle`): a reply may be lost with the
    process that it was handed to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def intend(self, custom_ids: Sequence[str]) -> BatchEntry:
        """Note that a batch is about to be sent."""
        mark = secrets.token_hex(16)
        entry = BatchEntry(
            mark=mark, owner=Process.here().mark, since=time.time(), custom_ids=tuple(custom_ids)
        )
        self._write(entry)
        return entry

    def sent(self, entry: BatchEntry, batch_id: str) -> BatchEntry:
        """Note the vendor's id of a batch."""
        known = entry.model_copy(update={"batch_id": batch_id})
        self._write(known)
        return known

    def drop(self, entry: BatchEntry) -> None:
        """Forget a batch."""
        for path in (self._path(entry), self._taken(entry)):
            path.unlink(missing_ok=True)

    def took(self, entry: BatchEntry, custom_id: str) -> None:
        """Note that a reply was handed out, and so booked."""
        try:
            with self._taken(entry).open("a") as file:
                file.write(custom_id + "\n")
        except OSError as error:
            _LOG.warning("A batch's reply could not be noted in %s: %s", self.folder, error.strerror)

    def taken(self, entry: BatchEntry) -> frozenset[str]:
        """Custom ids of the replies that were handed out."""
        try:
            return frozenset(self._taken(entry).read_text().split())
        except OSError:
            return frozenset()

    def entries(self) -> list[BatchEntry]:
        """Every batch whose sending is settled or whose sender has ended, the oldest first."""
        found = [entry for path in self.folder.glob("*.json") if (entry := _entry(path)) is not None]
        known = [entry for entry in found if entry.batch_id is not None or entry.abandoned]
        return sorted(known, key=lambda entry: entry.since)

    def settle(self, ended: Iterable[BatchEntry]) -> None:
        """Forget batches of this process, and of those that have ended: what they gave is in records now."""
        for entry in ended:
            if entry.owner == Process.here().mark or entry.abandoned:
                self.drop(entry)

    def _path(self, entry: BatchEntry) -> Path:
        return self.folder / f"{entry.mark}.json"

    def _taken(self, entry: BatchEntry) -> Path:
        return self.folder / f"{entry.mark}.taken"

    def _write(self, entry: BatchEntry) -> None:
        try:
            write_atomically(self._path(entry), json.dumps(entry.model_dump()).encode())
        except OSError as error:
            # The cases' records will not fit on this disk either; the replies must not be lost for it.
            _LOG.warning("A batch could not be noted in %s: %s", self.folder, error.strerror)


def _entry(path: Path) -> BatchEntry | None:
    try:
        return BatchEntry.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None
