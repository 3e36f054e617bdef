"""Files are whole or not there, and what is stored can be read, whatever models and tools came up with."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from small_runs import Silent

from agentsys.base.atomic_file import PRIVATE, Process, lock_file, remove_stale_files, write_atomically
from agentsys.base.json_values import MAX_DEPTH, to_json_bytes, to_plain_data
from agentsys.base.ledger import Ledger
from agentsys.runs.compose import compose
from agentsys.runs.run_session import prepare_session


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


class Colour(Enum):
    RED = "\udc80"


class Item(BaseModel):
    name: str
    inner: Any = None


class Mute:
    def __str__(self) -> str:
        raise ZeroDivisionError


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(st.characters())
    | st.builds(Item, name=st.text(), inner=st.integers(2**63, 2**80))
    | st.sampled_from([Colour.RED, Mute(), datetime(2024, 5, 15, 12), {1, 2}, b"\xff", 2**3000, nested(900)]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner),
    max_leaves=12,
)


@given(ODD)
def test_anything_is_written_and_read_by_both_readers(value: Any) -> None:
    for indent in (False, True):
        written = to_json_bytes(value, indent=indent)
        orjson.loads(written)
        json.loads(written)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (10**30, 10**30),
        (-(2**80), -(2**80)),
        pytest.param(10**5000, "(a whole number of 16610 bits)", id="5000 digits"),
        ("a\udc80b\ud83d", "a\\udc80b\\ud83d"),
        (dict.fromkeys(("\ud800", "\udfff"), 1), {"\\ud800": 1, "\\udfff": 1}),
        ([float("nan"), float("inf"), 2**70], [None, None, 2**70]),
        ([Mute(), 2**70], ["(Mute without a text)", 2**70]),
        (
            Item(name="x", inner=Item(name="y", inner=2**70)),
            {"name": "x", "inner": {"name": "y", "inner": 2**70}},
        ),
    ],
)
def test_what_json_has_no_form_for_is_replaced_and_the_rest_kept(value: Any, kept: Any) -> None:
    assert json.loads(to_json_bytes(value)) == kept


def test_ordinary_data_is_written_as_orjson_writes_it() -> None:
    value = {"text": "Grüße", "n": 2**63, "f": 1.5, "when": datetime(2024, 5, 15), "list": [None, True]}
    assert to_json_bytes(value) == orjson.dumps(value)
    assert to_plain_data(value) == {**value, "when": "2024-05-15T00:00:00"}


def test_nesting_ends_where_readers_could_fail_and_says_so() -> None:
    kept, depth = json.loads(to_json_bytes(nested(5000))), 0
    while isinstance(kept, list):
        kept, depth = kept[0], depth + 1
    assert (depth, kept) == (MAX_DEPTH, "(nested too deeply to be stored)")


def test_a_value_that_contains_itself_is_written() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert b"nested too deeply" in to_json_bytes(loop)


def test_controls_that_steer_a_terminal_are_escaped_and_come_back() -> None:
    text = "\x9b31mred\x1b[0m\x85 é \xa0 漢"
    data = to_json_bytes({text: [text]})
    assert not any(mark in data for mark in (b"\x1b", "\x9b".encode(), "\x85".encode()))
    assert json.loads(data) == {text: [text]}
    assert "é \xa0 漢".encode() in data


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("usual_umask")
def test_what_is_made_in_a_folder_that_a_group_shares_is_the_groups(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2770)
    write_atomically(shared / "a/b/file", b"")
    write_atomically(shared / "cache/reply", b"", mode=PRIVATE)
    write_atomically(tmp_path / "own/file", b"")
    write_atomically(tmp_path / "own/reply", b"", mode=PRIVATE)
    with lock_file(shared / "lock"), lock_file(tmp_path / "lock"):
        pass
    Ledger(shared / "ledger")._open_file()
    Ledger(tmp_path / "ledger")._open_file()
    modes = [mode_of(shared / name) for name in ("a", "a/b", "a/b/file", "cache/reply", "lock", "ledger")]
    assert modes == [0o2775, 0o2775, 0o664, 0o660, 0o660, 0o660]
    modes = [mode_of(tmp_path / name) for name in ("own", "own/file", "own/reply", "lock", "ledger")]
    assert modes == [0o755, 0o644, 0o600, 0o600, 0o600]


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize(("mode", "folder"), [("private", 0o700), ("group", 0o2770), ("umask", 0o755)])
def test_a_log_folder_that_is_made_has_the_mode_that_was_chosen(
    tmp_path: Path, mode: str, folder: int
) -> None:
    words = ["benchmark.suites=[slack]", "user_tasks=[0]", f"store.mode={mode}"]
    prepare_session([*words, f"logdir={tmp_path / 'new/runs'}"]).execute(Silent())
    assert mode_of(tmp_path / "new/runs") == folder
    assert mode_of(tmp_path / "new") == 0o755
    record = next(path for path in (tmp_path / "new/runs").rglob("*.json") if ".agentsys" not in path.parts)
    assert mode_of(record) == (0o664 if mode == "group" else 0o644)
    there = tmp_path / "there"
    there.mkdir(mode=0o750)
    prepare_session([*words, f"logdir={there}"])
    assert mode_of(there) == 0o750
    assert compose(words)[0].config_hash == compose(words[:2])[0].config_hash
