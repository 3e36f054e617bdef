"""`Claims`: lock files with which several processes share one log folder, so that each case is run by one of them.

A process creates a claim, a small file that only one process can create, before it runs a case. A claim whose owner
has died is free again. On the same machine an owner is identified by process id and start time; on another machine
only by its heartbeat, a file that it touches regularly.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from agentsys.base.atomic_file import STALE_AFTER_S, Process, make_folder, open_file, remove_stale_files
from agentsys.runs.store import Store

_log = logging.getLogger(__name__)
PATIENCE_S = 60.0
"""Seconds without a heartbeat after which an owner on another machine counts as dead."""
_HEARTBEAT_SUFFIX = ".alive"
_POLL_S = 0.2
_ended_here: set[str] = set()
"""Owners of this process that have ended: their claims are free, also those that could not be removed."""


class Claims:
    """This run's claims in a log folder. Use as a context manager; thread-safe."""

    def __init__(self, store: Store, patience_s: float = PATIENCE_S) -> None:
        self._store, self._folder, self._patience_s = store, store.own / "claims", patience_s
        self._owner = f"{Process.here().mark}-{secrets.token_hex(4)}"
        self._heartbeat = self._folder / f"{self._owner}{_HEARTBEAT_SUFFIX}"
        self._held: dict[str, Path] = {}
        self._beats: dict[Path, tuple[int, float]] = {}
        self._ended = threading.Event()

    def __enter__(self) -> Claims:
        try:
            make_folder(self._folder)
            self._heartbeat.touch()
            self.remove_dead()
            remove_stale_files(self._store.root)
        except OSError as error:
            raise self._store.make_write_error(self._folder, error) from None
        self._store.marker = self._heartbeat
        threading.Thread(target=self._touch_heartbeat, name="heartbeat", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._ended.set()
        for name in list(self._held):
            self.release(name)
        self._store.marker = None
        _ended_here.add(self._owner)
        with suppress(OSError):
            self.remove_dead()  # Some heartbeats were watched for long enough by now.
        with suppress(OSError):
            self._heartbeat.unlink()

    def take(self, name: str) -> bool:
        """Claim `name` for this run; return True if it got the claim, which it holds until `release`.

        Raises:
            StoreError: If the log folder was removed, or cannot be written.
        """
        self._store.check_there()
        hashed = hashlib.sha256(name.encode()).hexdigest()[:32]
        claim = self._folder / f"{hashed}.{self._owner}"
        try:
            os.close(open_file(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            # Look for others only after creating ours, so that a later process sees it. Two that create theirs at
            # the same time may both give up, which checking first would not rule out either.
            others = [other for other in self._folder.glob(f"{hashed}.*") if other != claim]
            if not all(map(self._remove_if_dead, others)):
                claim.unlink(missing_ok=True)
                return False
        except FileExistsError:  # Another thread of this run has it.
            return False
        except OSError as error:
            raise self._store.make_write_error(claim, error) from None
        self._held[name] = claim
        return True

    def release(self, name: str) -> None:
        """Release a claim, if this run holds it; one that cannot be removed is free once the process has ended."""
        claim = self._held.pop(name, None)
        if claim is not None:
            with suppress(OSError):
                claim.unlink()

    @contextmanager
    def hold(self, name: str, give_up: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold a claim inside the block; while another run holds it, wait and call `give_up`, which may raise."""
        while not self.take(name):
            give_up()
            # Jitter, so that waiting processes do not poll in step.
            time.sleep(_POLL_S * (0.5 + random.random()))
        try:
            yield
        finally:
            self.release(name)

    def list_other_processes(self) -> list[Process]:
        """List the other processes that work in the same folder and are not known to be dead."""
        beats = [path for path in self._folder.glob(f"*{_HEARTBEAT_SUFFIX}") if path != self._heartbeat]
        processes = [
            Process.from_mark(_cut_process_mark(path.name)) for path in beats if not self._is_dead(path.stem)
        ]
        return sorted({process for process in processes if process is not None})

    def find_living_processes(self) -> list[Process]:
        """List the other processes in this folder once one of them is known to live.

        Processes on other machines are watched for a heartbeat. If none shows up, they died with their machine or
        before a restart of this one: their claims are removed, and the list is empty.
        """
        known: dict[Path, tuple[int, float]] = {}
        warned = False
        while processes := self.list_other_processes():
            if any(process.is_dead is False for process in processes):
                return processes
            known = {**self._beats, **known}
            if any(self._beats[path][0] != beat for path, (beat, _) in known.items()):
                return processes
            if not warned:
                _log.warning(
                    "Process %d was at work in %s from another machine, or before a restart: watching for up "
                    "to %.0f seconds whether it still is",
                    processes[0].pid,
                    self._store.root,
                    self._patience_s,
                )
                warned = True
            time.sleep(_POLL_S)
        self.remove_dead()
        return []

    def _touch_heartbeat(self) -> None:
        while not self._ended.wait(self._patience_s / 6):
            try:
                os.utime(self._heartbeat)
            except OSError:  # The folder was removed; the next `take` or `write` reports it.
                return

    def _remove_if_dead(self, claim: Path) -> bool:
        """Remove the claim of a dead run; return True if it was one.

        Owner names are never reused, so the removed claim cannot belong to a live run, however old the check is.
        """
        if not self._is_dead(claim.suffix[1:]):
            return False
        claim.unlink(missing_ok=True)
        return True

    def _is_dead(self, owner: str) -> bool:
        """True if the process that a claim names has ended, or given no sign for too long."""
        if owner in _ended_here:
            return True
        if owner == self._owner:
            return False
        heartbeat = self._folder / f"{owner}{_HEARTBEAT_SUFFIX}"
        if not heartbeat.exists():
            return True  # A heartbeat file exists from before the first claim until after the last.
        process = Process.from_mark(_cut_process_mark(owner))
        dead = process.is_dead if process is not None else None
        return self._is_silent(heartbeat) if dead is None else dead

    def _is_silent(self, path: Path) -> bool:
        """True if a file has not been touched for `patience_s` while this process watched it.

        Clocks of two machines may differ, so only changes of the time stamp count, never its value.
        """
        try:
            beat = path.stat().st_mtime_ns
        except FileNotFoundError:
            return True
        known, since = self._beats.setdefault(path, (beat, time.monotonic()))
        if known != beat:
            self._beats[path] = (beat, time.monotonic())
            return False
        return time.monotonic() - since > self._patience_s

    def remove_dead(self) -> None:
        """Remove the claims of processes that were killed."""
        for heartbeat in self._folder.glob(f"*{_HEARTBEAT_SUFFIX}"):
            old = False
            with suppress(OSError):  # Untouched for a day by the disk's own clock: its machine went down.
                old = self._heartbeat.stat().st_mtime - heartbeat.stat().st_mtime > STALE_AFTER_S
            if old or self._is_dead(heartbeat.stem):
                heartbeat.unlink(missing_ok=True)
        for claim in self._folder.glob("*.*"):
            if claim.suffix != _HEARTBEAT_SUFFIX:
                self._remove_if_dead(claim)


def _cut_process_mark(owner: str) -> str:
    return "-".join(owner.removesuffix(_HEARTBEAT_SUFFIX).split("-")[:3])
