"""Shut a guard in, run it, and end all that it started when it or the run ends. Standard library only.

`agentsys_plugins.guards.guard_confinement` starts it with a plan, as JSON: `way`, `reads`, `work`, `root`, `limits` and
`lifeline` (a descriptor that closes when the run ends), and behind it the command. Linux alone has what it asks for.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import select
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

NAMESPACES, LANDLOCK = "namespaces", "landlock"
_LIBC = ctypes.CDLL(None, use_errno=True)
_LOOK_S = 0.2
"""Seconds between two looks at what the guard's processes take together."""
_READ_ONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8
_BIND, _RECURSIVE, _DETACH = 0x1000, 0x4000, 2
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SET_DUMPABLE, _DROP_CAPABILITY, _SUBREAPER, _NO_NEW_PRIVILEGES, _SET_SECCOMP = 4, 24, 36, 38, 22
_LANDLOCK_NEEDED = 6
"""Its version that keeps signals and abstract sockets in (Linux 6.12)."""
_SYSCALLS = {
    "x86_64": (
        0xC000003E,
        (41, 425, 248, 249, 250),
        (29, 64, 68, *range(90, 95), 132, *range(188, 191), *range(197, 200), 235, 240, 260, 261, 268, 280),
    ),
    "aarch64": (
        0xC00000B7,
        (198, 425, 217, 218, 219),
        (*range(5, 8), *range(14, 17), *range(52, 56), 88, 180, 186, 190, 194),
    ),
}
"""Machine -> its number for audits; socket, io_uring_setup, add_key, request_key and keyctl; and what Landlock leaves
open: modes, owners, times and attributes of files, and what processes share by names of System V's or POSIX's."""
_NEWER_SYSCALLS = (452, 463, 466, 469)
"""Of the latter, those that have one number everywhere."""


def _call(name: str, *args: Any) -> int:
    """Call the C library; paths are given as text.

    Raises:
        OSError: If it fails.
    """
    given = [os.fsencode(one) if isinstance(one, (str, Path)) else one for one in args]
    result = int(getattr(_LIBC, name)(*given))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def _system_call(number: int, *args: Any) -> int:
    plain = [ctypes.c_long(one) if isinstance(one, int) else one for one in args]
    return _call("syscall", ctypes.c_long(number), *plain)


def build_root(root: Path, reads: Sequence[str], work: str) -> None:
    """Move, in a mount namespace of our own, onto a root that holds what may be read, read-only.

    Raises:
        OSError: If the system does not let us.
    """
    _mount_memory(root, "16m")
    for folder in ("tmp", "dev/shm"):
        (root / folder).mkdir(parents=True)
        _mount_memory(root / folder, "64m")
    for path in [*reads, *(f"/dev/{device}" for device in _DEVICES)]:
        _bind(path, root, _READ_ONLY | _NOSUID | (0 if path.startswith("/dev/") else _NODEV))
    _bind(work, root, _NOSUID | _NODEV)
    (root / "proc").mkdir()
    # Read-only: what the kernel is told under /proc/sys it is told for the whole system, by root in a namespace too.
    _call("mount", "proc", root / "proc", "proc", _READ_ONLY | _NOSUID | _NODEV | _NOEXEC, None)
    os.chdir(root)
    _call("pivot_root", ".", ".")
    _call("umount2", ".", _DETACH)
    _set_mount_flags("/", _READ_ONLY, 0)


def _mount_memory(where: Path, size: str) -> None:
    _call("mount", "tmpfs", where, "tmpfs", _NOSUID | _NODEV, f"size={size},mode=755")


def _bind(path: str, root: Path, flags: int) -> None:
    """Show a file or folder in the new root; what is a link stays one."""
    source, target = Path(path), root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink() and not target.exists():
        target.symlink_to(source.readlink())
    if source.is_symlink() or not source.exists():
        return
    if source.is_dir():
        target.mkdir(exist_ok=True)
    elif not target.exists():
        target.touch()
    _call("mount", source, target, None, _BIND | _RECURSIVE, None)
    _set_mount_flags(target, flags, 0x8000)  # with all that is mounted below


def _set_mount_flags(where: str | Path, flags: int, scope: int) -> None:
    _system_call(442, -100, os.fsencode(where), scope, struct.pack("QQQQ", flags, 0, 0, 0), 32)


def restrict(plan: Mapping[str, Any]) -> None:
    """Take from this process, before it becomes the guard, what a guard has no need of.

    Raises:
        OSError: If the system does not let us, and the plan's way needs it.
    """
    import resource

    limits, confined = plan["limits"], plan["way"] is not None
    for what, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits["file"]),
        # Reserved and not only used: a moment between two looks is enough to use up a machine's.
        (resource.RLIMIT_AS, 2 * limits["memory"]),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    if not confined:
        return
    for capability in range(64):  # a guard of root's is root in its namespace
        _LIBC.prctl(_DROP_CAPABILITY, capability, 0, 0, 0)
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if plan["way"] == LANDLOCK:
        _confine_files(plan["reads"], plan["work"])
    _refuse_syscalls(landlock=plan["way"] == LANDLOCK)


def _confine_files(reads: Sequence[str], work: str) -> None:
    """Landlock: only what is named is read, only the work folder changed, and no one outside is signalled."""
    if _system_call(444, None, 0, 1) < _LANDLOCK_NEEDED:
        raise OSError(errno.ENOSYS, f"landlock: older than version {_LANDLOCK_NEEDED}")
    everything, look, of_files = (1 << 16) - 1, 0b1101, 0b101
    rules = _system_call(444, struct.pack("QQQ", everything, 3, 3), 24, 0)
    permitted = dict.fromkeys(reads, look) | {work: everything}
    permitted |= {f"/dev/{device}": 0b110 for device in _DEVICES}
    for path, rights in permitted.items():
        with suppress(FileNotFoundError):
            opened = os.open(path, os.O_PATH)
            rights = rights if Path(path).is_dir() or path.startswith("/dev/") else rights & of_files
            _system_call(445, rules, 1, struct.pack("=Qi", rights, opened), 0)
            os.close(opened)
    _system_call(446, rules, 0)
    os.close(rules)


def _refuse_syscalls(*, landlock: bool) -> None:
    """No socket of any family: a network namespace hides neither a host's virtual machine port nor a path."""
    if platform.machine() not in _SYSCALLS:
        if landlock:
            raise OSError(errno.ENOSYS, f"no list of system calls for {platform.machine()}")
        return
    architecture, sockets, of_files = _SYSCALLS[platform.machine()]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    refuse, allow = 0x00050000 | errno.EACCES, 0x7FFF0000
    numbers = [*sockets, *((*of_files, *_NEWER_SYSCALLS) if landlock else ())]
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, refuse), (load, 0, 0, 0)]
    program += [(at_least, 0, 1, 0x40000000), (answer, 0, 0, refuse)]  # x86's other numbering
    for number in numbers:
        program += [(equal, 0, 1, number), (answer, 0, 0, refuse)]
    code = b"".join(struct.pack("HBBI", *one) for one in [*program, (answer, 0, 0, allow)])
    buffer = ctypes.create_string_buffer(code)
    filters = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    _call("prctl", _SET_SECCOMP, 2, filters, 0, 0)


def watch(child: int, lifeline: int, limits: Mapping[str, int], *, alone: bool) -> int:
    """Wait until the guard ends, the run ends, or the guard's processes take more than they may.

    Args:
        child: The guard.
        lifeline: Closes when the run ends.
        limits: `memory` in bytes and `processes`, of all together.
        alone: Whether all processes that can be seen are the guard's.

    Returns:
        The status to end with.
    """
    ended = os.pidfd_open(child)
    while True:
        ready = select.select([lifeline, ended], [], [], _LOOK_S)[0]
        with suppress(ChildProcessError):
            while True:
                process, status = os.waitpid(-1, os.WNOHANG)
                if process == child:
                    return _read_status(status)
                if not process:
                    break
        excess = _find_excess(limits) if alone else ""
        if excess:
            sys.stderr.write(f"ended: {excess}\n")
        if excess or lifeline in ready:
            return 128 + signal.SIGKILL


def _find_excess(limits: Mapping[str, int]) -> str:
    count = memory = 0
    with suppress(OSError):
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                memory += int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                count += 1
    if memory > limits["memory"]:
        return f"more than {limits['memory'] >> 20:,} MiB of memory"
    return f"more than {limits['processes']} processes" if count - 1 > limits["processes"] else ""


def _end_descendants() -> None:
    """Kill all children, and their children, which become ours; the end of a process namespace does it by itself."""
    with suppress(OSError):
        while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            for child in map(int, children):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _read_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def main() -> NoReturn:
    """Run the command that stands behind the plan."""
    plan, command = json.loads(sys.argv[1]), sys.argv[2:]
    if plan["way"] == NAMESPACES:
        build_root(Path(plan["root"]), plan["reads"], plan["work"])
    os.chdir(plan["work"])
    if sys.platform != "linux":  # there is nothing to watch it with, and it was agreed to
        os.close(plan["lifeline"])
        os.execvpe(command[0], command, os.environ)
    first = os.getpid() == 1
    _LIBC.prctl(_SUBREAPER, 1, 0, 0, 0)
    _LIBC.prctl(_SET_DUMPABLE, 0, 0, 0, 0)  # the guard, who is the same user, looks into nobody
    child = os.fork()
    if not child:
        os.close(plan["lifeline"])
        try:
            restrict(plan)
            os.execvpe(command[0], command, os.environ)
        except OSError as error:
            sys.stderr.write(f"{command[0]}: {error}\n")
            os._exit(127)
    status = watch(child, plan["lifeline"], plan["limits"], alone=first)
    if not first:
        _end_descendants()
    os._exit(status)


if __name__ == "__main__":
    main()
