"""Files are whole or not there; what a killed process left is removed, what a live one writes is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentsys.base.atomic_file import Process, remove_stale_files, write_atomically


def ended() -> Process:
    """A process that has ended, as a file of its would name it."""
    child = subprocess.run(
        [sys.executable, "-c", "from agentsys.base.atomic_file import Process; print(Process.here().mark)"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = Process.from_mark(child.stdout.strip())
    assert found is not None
    return found


def test_a_file_and_then_its_name_are_flushed_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    sync = os.fsync

    def noted(file: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        sync(file)

    monkeypatch.setattr(os, "fsync", noted)
    write_atomically(tmp_path / "a", b"1")
    write_atomically(tmp_path / "b", b"2", durable=False)
    assert [Path(name).suffix for name in flushed] == [".tmp", ""] and flushed[1] == str(tmp_path)


def test_a_process_is_known_by_its_number_and_its_start() -> None:
    here = Process.here()
    assert (here.pid, here.is_dead) == (os.getpid(), False)
    assert Process.from_mark(here.mark) == here
    assert here._replace(started=here.started + 1).is_dead, "another process that has the number now"
    assert here._replace(machine="0" * 8).is_dead is None
    assert here._replace(started=0).is_dead is None
    assert ended().is_dead
    assert Process.from_mark("12-ab-3") is None


def test_an_ended_process_that_nobody_has_waited_for_is_dead() -> None:
    code = "import agentsys.base.atomic_file as a; print(a.Process.here().mark, flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        mark = child.stdout.readline().strip()
        assert child.stdout.read() == ""  # its end of the pipe is closed: it has ended, or is about to
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        process = Process.from_mark(mark)
        assert process is not None
        assert process.is_dead


def test_only_what_is_left_behind_is_removed(tmp_path: Path) -> None:
    here, dead = Process.here(), ended()
    away = here._replace(machine="0" * 8)
    names = {f"deep/er/.a.json.{dead.mark}-7.tmp": False, f".a.json.{here.mark}-7.tmp": True}
    names |= {f".b.json.{away.mark}-7.tmp": True, ".c.json.12-7.tmp": True, "a.tmp": True, ".a.json": True}
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{")
    old = [f".old.{away.mark}-7.tmp", ".old.12-7.tmp"]
    for name in old:
        (tmp_path / name).write_bytes(b"{")
        os.utime(tmp_path / name, (1e9, 1e9))
    assert remove_stale_files(tmp_path) == 3
    assert [name for name in [*names, *old] if (tmp_path / name).exists()] == [
        n for n, kept in names.items() if kept
    ]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a" / "b.json"
    write_atomically(path, b"long" * 1000)
    write_atomically(path, b"short", durable=False)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("agentsys.base.atomic_file.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"never")
    assert path.read_bytes() == b"short"
    assert list(path.parent.iterdir()) == [path]
