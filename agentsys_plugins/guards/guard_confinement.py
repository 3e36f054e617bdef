"""How a guard is shut in on this system: bubblewrap, namespaces of our own, Landlock, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentsys.errors import Unavailable
from agentsys_plugins.guards import guard_launcher, guard_worker
from agentsys_plugins.guards.guard_launcher import LANDLOCK, NAMESPACES

BUBBLEWRAP, UNCONFINED, SERVICE = "bubblewrap", "unconfined", "a service"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix")
_SYSTEM_FACTS = "/sys/devices/system"
_LAUNCHER = Path(str(guard_launcher.__file__)).resolve()
WORKER = Path(str(guard_worker.__file__)).resolve()
_MOST_FILE_BYTES = 256 << 20


WAYS = {
    BUBBLEWRAP: "the folders of the system and of its Python, read-only, and an empty one of its own; no process of"
    " others; no network; limits on memory, processes and file size, by bwrap",
    NAMESPACES: "the same without bwrap, by user, mount, process and network namespaces of our own",
    LANDLOCK: "the same files and no network, by Landlock (version 6) and seccomp; it shares the system's"
    " processes, and the limits hold for each process alone",
}
"""Way -> what a guard has then. The first that works is taken."""
_STARTED_BY = {
    BUBBLEWRAP: ("bwrap", "--unshare-all", "--as-pid-1", "--cap-drop", "ALL"),
    NAMESPACES: (
        *("unshare", "--user", "--map-current-user", "--mount", "--pid", "--fork", "--kill-child"),
        *("--net", "--ipc", "--uts", "--cgroup"),
    ),
}
"""Way -> the program that starts the launcher in namespaces. It needs no right that a user has not."""


def start_shut_in(
    way: str | None,
    command: Sequence[str],
    reads: Iterable[str],
    work: Path,
    limits: Mapping[str, int],
    **streams: Any,
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a command shut in.

    Args:
        way: One of `WAYS`; None: with the limits alone.
        command: What to run.
        reads: Files and folders that it may read besides the system's.
        work: Its own folder.
        limits: `memory` in bytes and `processes`, of all its processes together.
        streams: What `subprocess.Popen` takes besides.

    Returns:
        The process, and a descriptor: all that the command has started ends when it is closed.

    Raises:
        OSError: If it does not start.
    """
    root = work.with_name("root")
    for folder in (work, root):
        folder.mkdir(exist_ok=True)
    prefixes = [sys.base_prefix, sys.base_exec_prefix, str(_LAUNCHER), str(WORKER)]
    shown = _sort_outer_first([*_SYSTEM, _SYSTEM_FACTS, *prefixes, *reads])
    lifeline, ours = os.pipe()
    plan = {"way": way, "reads": shown, "work": str(work), "root": str(root), "lifeline": lifeline}
    plan_text = json.dumps({**plan, "limits": {**limits, "file": _MOST_FILE_BYTES}})
    launcher = (os.path.realpath(sys.executable), "-I", "-S", str(_LAUNCHER), plan_text, *command)
    mounts = _list_bubblewrap_mounts(shown, str(work)) if way == BUBBLEWRAP else []
    shut_in = (*_STARTED_BY.get(way or "", ()), *mounts, *launcher)
    try:
        process = subprocess.Popen(shut_in, cwd=work, start_new_session=True, pass_fds=(lifeline,), **streams)
    except OSError:
        os.close(ours)
        raise
    finally:
        os.close(lifeline)
    return process, ours


def _list_bubblewrap_mounts(reads: Sequence[str], work: str) -> list[str]:
    memory = ("--size", str(64 << 20), "--tmpfs")
    words = ["--dev", "/dev", "--proc", "/proc", *memory, "/dev/shm", *memory, "/tmp"]
    for path in map(Path, reads):
        words += ("--symlink", str(path.readlink())) if path.is_symlink() else ("--ro-bind-try", str(path))
        words.append(str(path))
    read_only = [word for path in ("/dev", "/proc", "/") for word in ("--remount-ro", path)]
    return [*words, "--bind", work, work, *read_only, "--"]


def _sort_outer_first(paths: Iterable[str]) -> list[str]:
    """Paths and what they lead to, each once; what lies in another of them is there with it."""
    whole = {one for path in paths for one in (Path(path).absolute(), Path(path).resolve()) if one.exists()}
    found: list[Path] = []
    for path in sorted(whole - {Path("/")}):
        if not any(outer in path.parents and not outer.is_symlink() for outer in found):
            found.append(path)
    return [str(path) for path in found]


@lru_cache(maxsize=8)
def explain_refusal(way: str) -> str:
    """Explain why this system cannot confine a guard in the given way; empty if it can."""
    if way in _STARTED_BY and shutil.which(_STARTED_BY[way][0]) is None:
        return f"{_STARTED_BY[way][0]} is not installed"
    if sys.platform != "linux":
        return "only Linux has it"
    with tempfile.TemporaryDirectory(prefix="agentsys-guard-") as folder:
        limits = {"memory": 1 << 30, "processes": 8}
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": {"PATH": os.defpath}}
        try:
            process, lifeline = start_shut_in(way, ["true"], (), Path(folder) / "work", limits, **streams)
        except OSError as error:
            return str(error)
        with process:
            try:
                said = process.communicate(timeout=10)[1]
            except subprocess.TimeoutExpired as error:
                process.kill()
                return str(error)
            finally:
                os.close(lifeline)
    lines = said.decode(errors="replace").strip().splitlines()
    return (lines or [f"status {process.returncode}"])[-1][:200] if process.returncode else ""


def find_confinement() -> str | None:
    """The first of `WAYS` that this system has."""
    return next((way for way in WAYS if not explain_refusal(way)), None)


def require_confinement(*, unconfined: bool) -> str | None:
    """How a guard is to be shut in; None: not at all, which has been agreed to.

    Raises:
        Unavailable: If this system has no way and `unconfined` is not set.
    """
    way = find_confinement()
    if way is None and not unconfined:
        raise Unavailable(
            "A guard runs shut in, and this system has neither bubblewrap nor namespaces nor Landlock for it"
            " (agentsys guards doctor says why): install bubblewrap, or add --unconfined (unconfined: true in its"
            " YAML) to run it with your files and your network.",
            needs="bwrap",
        )
    return way
