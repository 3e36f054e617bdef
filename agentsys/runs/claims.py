"""`Claims`: many processes on one log folder, and each case run by one of them.

Who wants to do something takes a claim on it first: a small file that only one can make. Whose owner has
ended without giving it back is free again. On one machine the owner is looked up by its number and start;
of an owner on another machine only the heartbeat can be seen, a file that it touches now and then.
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
"""Without a heartbeat for this long, an owner on another machine counts as dead."""
_HEARTBEAT_SUFFIX = ".alive"
_POLL_S = 0.2


class Claims:
    """This run's claims in a log folder. Use as a context; safe to use from many threads."""

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
        with suppress(OSError):
            self.remove_dead()  # some were watched for long enough by now
        self._heartbeat.unlink(missing_ok=True)

    def take(self, name: str) -> bool:
        """Say whether `name` is this run's from now on, until `release`.

        Raises:
            StoreError: If the log folder is not there any more, or cannot be written.
        """
        self._store.check_there()
        hashed = hashlib.sha256(name.encode()).hexdigest()[:32]
        claim = self._folder / f"{hashed}.{self._owner}"
        try:
            os.close(open_file(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:  # another thread of this run's
            return False
        except OSError as error:
            raise self._store.make_write_error(claim, error) from None
        # Once it is made, not before: whoever makes his later finds this one. Two who make theirs at once may
        # both give way, which a look beforehand would not rule out either.
        others = [other for other in self._folder.glob(f"{hashed}.*") if other != claim]
        if not all(map(self._remove_if_dead, others)):
            claim.unlink(missing_ok=True)
            return False
        self._held[name] = claim
        return True

    def release(self, name: str) -> None:
        """Give a claim back; nothing happens where there is none."""
        claim = self._held.pop(name, None)
        if claim is not None:
            claim.unlink(missing_ok=True)

    @contextmanager
    def hold(self, name: str, give_up: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Hold a claim inside the block; while another run has it, call `give_up` (it may raise) and wait."""
        while not self.take(name):
            give_up()
            time.sleep(_POLL_S * (0.5 + random.random()))  # not in step with whoever else is waiting
        try:
            yield
        finally:
            self.release(name)

    def list_other_processes(self) -> list[Process]:
        """The processes that are at work in the same folder."""
        beats = [path for path in self._folder.glob(f"*{_HEARTBEAT_SUFFIX}") if path != self._heartbeat]
        found = [
            Process.from_mark(_cut_process_mark(path.name)) for path in beats if not self._is_dead(path.stem)
        ]
        return sorted({process for process in found if process is not None})

    def find_living_processes(self) -> list[Process]:
        """The processes at work here of which some is known to live; watches those on other machines for it.

        As soon as one is known to live, all that may are handed back. Else those who were there died with
        their machine, or are of this one before it was started anew: what they left is removed.
        """
        known: dict[Path, tuple[int, float]] = {}
        told = False
        while found := self.list_other_processes():
            if any(process.is_dead is False for process in found):
                return found
            known = {**self._beats, **known}
            if any(self._beats[path][0] != beat for path, (beat, _) in known.items()):
                return found
            if not told:
                _log.warning(
                    "Process %d was at work in %s from another machine, or before a restart: watching for up "
                    "to %.0f seconds whether it still is",
                    found[0].pid,
                    self._store.root,
                    self._patience_s,
                )
                told = True
            time.sleep(_POLL_S)
        self.remove_dead()
        return []

    def _touch_heartbeat(self) -> None:
        while not self._ended.wait(self._patience_s / 6):
            try:
                os.utime(self._heartbeat)
            except OSError:  # gone with its folder: whoever takes or stores next says so
                return

    def _remove_if_dead(self, claim: Path) -> bool:
        """Remove the claim of a run that has ended; say whether it was one.

        A claim's name holds its owner's, and no owner has the name of an earlier one: what is removed
        here cannot be a live run's, however long ago it was looked at.
        """
        if not self._is_dead(claim.suffix[1:]):
            return False
        claim.unlink(missing_ok=True)
        return True

    def _is_dead(self, owner: str) -> bool:
        if owner == self._owner:
            return False
        heartbeat = self._folder / f"{owner}{_HEARTBEAT_SUFFIX}"
        if not heartbeat.exists():
            return True  # made before its first claim, removed after its last
        process = Process.from_mark(_cut_process_mark(owner))
        dead = process.is_dead if process is not None else None
        return self._is_silent(heartbeat) if dead is None else dead

    def _is_silent(self, path: Path) -> bool:
        """Say whether a file was untouched for as long as this process has watched it, and long enough.

        Two machines' clocks may differ, so that only what changes counts, and never its time.
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
            with suppress(OSError):  # not touched for a day as the disk counts: its machine went down
                old = self._heartbeat.stat().st_mtime - heartbeat.stat().st_mtime > STALE_AFTER_S
            if old or self._is_dead(heartbeat.stem):
                heartbeat.unlink(missing_ok=True)
        for claim in self._folder.glob("*.*"):
            if claim.suffix != _HEARTBEAT_SUFFIX:
                self._remove_if_dead(claim)


def _cut_process_mark(owner: str) -> str:
    return "-".join(owner.removesuffix(_HEARTBEAT_SUFFIX).split("-")[:3])
