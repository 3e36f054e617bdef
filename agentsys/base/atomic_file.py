"""Atomic and locked files, and the removal of temporary files of killed processes."""

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
except ImportError:  # Windows: processes do not wait for one another, only threads do.
    fcntl = None  # type: ignore[assignment]

CAN_LOCK = fcntl is not None
_TEMPORARY_NAME = re.compile(r"\.([0-9a-f]{8}-\d+-\d+)-\d+\.tmp$")
STALE_AFTER_S = 86_400.0
"""Age in seconds from which a process's file counts as stale if it is not known whether the process lives."""


class Process(NamedTuple):
    """Identity of a process, distinct from a later process with the same pid."""

    machine: str
    """8 hexadecimal digits of host name, boot and pid namespace (of a container)."""
    pid: int
    started: int
    """Clock ticks from the machine's boot to the process's start; 0 if unknown."""

    @classmethod
    def here(cls) -> Process:
        """This process."""
        pid = os.getpid()
        return cls(_make_machine_id(), pid, _read_start_ticks(pid) or 0)

    @classmethod
    def from_mark(cls, mark: str) -> Process | None:
        """Parse a process's mark; None if it is invalid."""
        machine, _, rest = mark.partition("-")
        pid, _, started = rest.partition("-")
        return cls(machine, int(pid), int(started)) if pid.isdigit() and started.isdigit() else None

    @property
    def mark(self) -> str:
        """The process as one word, for file names."""
        return f"{self.machine}-{self.pid}-{self.started}"

    @property
    def is_dead(self) -> bool | None:
        """True if it has ended; None if that is unknown (another machine)."""
        if self.machine != _make_machine_id() or not self.started:
            return None
        return _read_start_ticks(self.pid) != self.started


PRIVATE = 0o600
"""Mode of private files: replies of models, the ledger."""
_GROUP_MAY_WRITE = stat.S_ISGID | stat.S_IWGRP


def open_file(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file; a new one gets this mode, less the umask, and is group-writable in a shared folder.

    A folder is shared if its group may write and new files get its group (`chmod g+ws`).

    Raises:
        OSError: As `os.open` does.
    """
    file = os.open(path, flags, mode)
    if _is_shared(path.parent):
        with contextlib.suppress(OSError):  # Another user's file, who has already set its mode.
            os.fchmod(file, stat.S_IMODE(os.fstat(file).st_mode) | 0o060)
    return file


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, if needed; inside a shared folder they are shared.

    Raises:
        OSError: If one cannot be created.
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
        path: The file; its folder is created if needed.
        data: The whole content.
        durable: True: flush the data to the disk before the rename, and the folder after it.
        mode: Mode of the file; see `open_file`.

    Raises:
        OSError: If it cannot be written; then the file is unchanged.
    """
    mark = f"{Process.here().mark}-{threading.get_ident()}"
    temporary = path.with_name(f".{path.name[:100]}.{mark}.tmp")
    try:
        try:
            _write_file(temporary, data, durable=durable, mode=mode)
        except FileNotFoundError:  # Checking first would cost time, and the folder mostly exists.
            make_folder(path.parent)
            _write_file(temporary, data, durable=durable, mode=mode)
        temporary.replace(path)
        if durable:
            _sync_folder(path.parent)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Flush a folder: without it a power cut may undo the rename."""
    if os.name == "nt":  # A folder cannot be opened there.
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
    """Lock a file against other processes inside the block; the file is created if needed, its folder is not.

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
    """Remove the temporary files of dead processes in a folder and its subfolders.

    Files of live processes stay, and so do files younger than STALE_AFTER_S whose process's state is unknown.

    Returns:
        Number of files removed.
    """
    files = (Path(here, name) for here, _, names in os.walk(folder) for name in names if name[0] == ".")
    stale = [path for path in files if path.suffix == ".tmp" and _is_stale(path)]
    for path in stale:
        path.unlink(missing_ok=True)
    return len(stale)


def _is_stale(path: Path) -> bool:
    """True if a temporary file's process is dead, or unknown and the file a day old."""
    mark = _TEMPORARY_NAME.search(path.name)
    process = Process.from_mark(mark[1]) if mark else None
    dead = process.is_dead if process else None
    if dead is not None:
        return dead
    try:
        return time.time() - path.stat().st_mtime > STALE_AFTER_S
    except OSError:  # Its process has just renamed it.
        return False


@functools.cache
def _make_machine_id() -> str:
    parts = [platform.node(), _read_text("/proc/sys/kernel/random/boot_id")]
    with contextlib.suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def _read_start_ticks(pid: int) -> int | None:
    """Read a process's start in clock ticks since boot; None if there is none, or it is a zombie."""
    _, _, fields = _read_text(f"/proc/{pid}/stat").rpartition(")")  # The process's name may contain anything.
    values = fields.split()
    return int(values[19]) if len(values) > 19 and values[0] not in "ZX" else None


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
