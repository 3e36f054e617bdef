"""Files that are there whole or not at all, or held by one process; and what a killed one leaves behind."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

try:
    import fcntl
except ImportError:  # Windows: then processes do not wait for one another, threads do
    fcntl = None  # type: ignore[assignment]

CAN_LOCK = fcntl is not None
_TEMPORARY_NAME = re.compile(r"\.([0-9a-f]{8}-\d+-\d+)-\d+\.tmp$")
STALE_AFTER_S = 86_400.0
"""Age from which a file of a process counts as left behind where the process cannot be asked after."""


class Process(NamedTuple):
    """A process, so that it can be told from a later one of the same number."""

    machine: str
    """8 hex digits: host name, boot, and the space that counts process numbers (a container's own)."""
    pid: int
    started: int
    """Ticks from the machine's boot to its start; 0 where the system does not tell."""

    @classmethod
    def here(cls) -> Process:
        """This process."""
        pid = os.getpid()
        return cls(_make_machine_id(), pid, _read_start_ticks(pid) or 0)

    @classmethod
    def from_mark(cls, mark: str) -> Process | None:
        """A process from its mark; None if it is none."""
        machine, _, rest = mark.partition("-")
        pid, _, started = rest.partition("-")
        return cls(machine, int(pid), int(started)) if pid.isdigit() and started.isdigit() else None

    @property
    def mark(self) -> str:
        """The process in one word, as part of a file's name."""
        return f"{self.machine}-{self.pid}-{self.started}"

    @property
    def is_dead(self) -> bool | None:
        """Whether it has ended; None where that cannot be seen from here (another machine)."""
        if self.machine != _make_machine_id() or not self.started:
            return None
        return _read_start_ticks(self.pid) != self.started


PRIVATE = 0o600
"""Mode of what is the user's own business: replies of models, what was spent."""
_GROUP_MAY_WRITE = stat.S_ISGID | stat.S_IWGRP


def open_file(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file, which is made with this mode, less the umask; in a folder that a group shares, the group may write.

    A folder is shared if its group may write and new files get its group (`chmod g+ws`).

    Raises:
        OSError: As `os.open` does.
    """
    file = os.open(path, flags, mode)
    if _is_shared(path.parent):
        with contextlib.suppress(OSError):  # another one's, who has seen to it
            os.fchmod(file, stat.S_IMODE(os.fstat(file).st_mode) | 0o060)
    return file


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, as far as they are not there; shared inside a folder that a group shares.

    Raises:
        OSError: If one cannot be made.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    if _is_shared(folder.parent):
        with contextlib.suppress(OSError):
            folder.chmod(stat.S_IMODE(folder.stat().st_mode) | _GROUP_MAY_WRITE)


def _is_shared(folder: Path) -> bool:
    return os.stat(folder).st_mode & _GROUP_MAY_WRITE == _GROUP_MAY_WRITE  # noqa: PTH116  a third of Path's time


def write_atomically(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Write `data` to a temporary name in the same folder and rename it.

    Args:
        path: The file; its folder is made if it is not there.
        data: The whole content.
        durable: Whether to flush it to the disk before it takes the name, and the name behind it.
        mode: Mode of the file; see `open_file`.

    Raises:
        OSError: If the disk does not take it; then the file is as it was.
    """
    mark = f"{Process.here().mark}-{threading.get_ident()}"
    temporary = path.with_name(f".{path.name[:100]}.{mark}.tmp")
    try:
        try:
            _write_file(temporary, data, durable=durable, mode=mode)
        except FileNotFoundError:  # most often the folder is there, and to ask takes a while
            make_folder(path.parent)
            _write_file(temporary, data, durable=durable, mode=mode)
        temporary.replace(path)
        if durable:
            _sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Flush the new name as well: without it a power cut leaves the old file, or none."""
    if os.name == "nt":  # a folder cannot be opened there
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _write_file(path: Path, data: bytes, *, durable: bool, mode: int) -> None:
    file = open_file(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | getattr(os, "O_BINARY", 0), mode)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        if durable:
            os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """Hold a file against other processes inside the block; it is made if need be, its folder is not.

    Yields:
        The open file's number.

    Raises:
        OSError: If it cannot be opened or locked.
    """
    file = open_file(path, os.O_RDWR | os.O_CREAT, PRIVATE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)


def remove_stale_files(folder: Path) -> int:
    """Remove the temporary files of processes that have ended, in all of a folder.

    Those of live processes stay, and so do younger ones whose process cannot be asked after.

    Returns:
        How many were removed.
    """
    files = (Path(here, name) for here, _, names in os.walk(folder) for name in names if name[0] == ".")
    stale = [path for path in files if path.suffix == ".tmp" and _is_stale(path)]
    for path in stale:
        path.unlink(missing_ok=True)
    return len(stale)


def _is_stale(path: Path) -> bool:
    mark = _TEMPORARY_NAME.search(path.name)
    process = Process.from_mark(mark[1]) if mark else None
    dead = process.is_dead if process else None
    if dead is not None:
        return dead
    try:
        return time.time() - path.stat().st_mtime > STALE_AFTER_S
    except OSError:  # its process has just renamed it
        return False


@functools.cache
def _make_machine_id() -> str:
    parts = [platform.node(), _read_text("/proc/sys/kernel/random/boot_id")]
    with contextlib.suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _read_start_ticks(pid: int) -> int | None:
    """When the process of this number started; None if there is none, or it is a zombie."""
    _, _, fields = _read_text(f"/proc/{pid}/stat").rpartition(")")  # its name may hold anything
    values = fields.split()
    return int(values[19]) if len(values) > 19 and values[0] not in "ZX" else None


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
