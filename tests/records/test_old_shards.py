"""Records in shards of earlier versions get their files, each once, wherever that is stopped."""

from __future__ import annotations

import gzip
import logging
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from stored_cases import case_of, store_own

from agentsys.base.atomic_file import Process
from agentsys.errors import ConfigError
from agentsys.records import old_shards
from agentsys.records.case_reader import read_cases
from agentsys.records.old_shards import unpack_shards
from agentsys.records.stored_plan import find_unfinished
from agentsys.runs.store import Store

ENDED = "00000000-1-1-abcdef01"
"""A process of another machine, as shards are named after."""
WHEN = 1_700_000_000_000_000_000


def line(key: str, file: str = "{}", written_ns: int = WHEN, status: str = "ok") -> bytes:
    told = {"key": key, "written_ns": written_ns, "status": status, "config_hash": "c", "file": file}
    return gzip.compress(orjson.dumps(told) + b"\n", mtime=0)


def shard(logdir: Path, *lines: bytes, number: int = 0) -> Path:
    path = logdir / ".agentsys" / "shards" / f"{ENDED}-{number:04d}.jsonl.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(lines))
    path.with_name(path.name.replace(".jsonl.gz", ".index")).write_bytes(b"its index, which is not asked")
    return path


def key(number: int) -> str:
    return f"m__none__b-v1/suite/user_task_{number}/direct/injection_task_0.json"


def files(logdir: Path) -> dict[str, str]:
    return {path.relative_to(logdir).as_posix(): path.read_text() for path in logdir.rglob("*.json")}


def test_of_several_lines_of_a_record_the_newest_counts_and_one_may_take_it_back(tmp_path: Path) -> None:
    first = shard(tmp_path, line(key(0), "old"), line(key(1), "an only one"), line(key(2), "taken back"))
    shard(tmp_path, line(key(0), "new", WHEN + 5), line(key(2), "", WHEN + 1, "gone"), number=1)
    assert unpack_shards(str(tmp_path))
    assert files(tmp_path) == {key(0): "new", key(1): "an only one"}
    assert (tmp_path / key(0)).stat().st_mtime_ns == WHEN + 5
    assert not first.parent.exists()
    assert not unpack_shards(str(tmp_path))


def test_a_file_counts_before_a_shard(tmp_path: Path) -> None:
    shard(tmp_path, line(key(0), "in the shard"))
    (tmp_path / key(0)).parent.mkdir(parents=True)
    (tmp_path / key(0)).write_text("a file")
    unpack_shards(str(tmp_path))
    assert files(tmp_path) == {key(0): "a file"}


def test_a_shard_cut_off_anywhere_gives_the_whole_records_before_and_is_kept(tmp_path: Path) -> None:
    lines = [line(key(number), f"record {number}") for number in range(3)]
    ends = [sum(map(len, lines[:count])) for count in range(4)]
    for cut in range(1, ends[-1], 7):
        logdir = tmp_path / str(cut)
        shard(logdir, b"".join(lines)[:cut])
        unpack_shards(str(logdir))
        whole = sum(end <= cut for end in ends) - 1
        assert files(logdir) == {key(number): f"record {number}" for number in range(whole)}
        kept = list((logdir / ".agentsys").glob("shards-unpacked-*/*.gz"))
        assert [path.stat().st_size for path in kept] == ([] if cut in ends else [cut])


def test_a_damaged_record_costs_no_other_one_and_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    middle = bytearray(line(key(1), "record"))
    middle[len(middle) // 2] ^= 0xFF
    shard(tmp_path, line(key(0)), bytes(middle), line(key(2)))
    with caplog.at_level(logging.WARNING):
        unpack_shards(str(tmp_path))
    assert sorted(files(tmp_path)) == [key(0), key(2)]
    assert "no whole records; they are kept in" in caplog.text


@pytest.mark.parametrize(
    "path",
    [
        "../../../../out.json",
        "a/b/c/../out.json",
        "/a/b/c/d.json",
        "a/b/c/d.json",
        ".agentsys/b/c/d/e.json",
        "a/b/c/d/e.py",
        "link/b/c/d/e.json",
        "a/b/c/d/e\0.json",
    ],
)
def test_a_shard_that_somebody_shipped_writes_no_file_elsewhere(tmp_path: Path, path: str) -> None:
    logdir, elsewhere = tmp_path / "in" / "runs", tmp_path / "elsewhere"
    shard(logdir, line(path), line(key(0)))
    elsewhere.mkdir()
    (logdir / "link").symlink_to(elsewhere)
    unpack_shards(str(logdir))
    assert list(files(tmp_path)) == [f"in/runs/{key(0)}"]


def test_a_record_that_inflates_without_end_is_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_shards, "_LARGEST", 5000)
    shard(tmp_path, line(key(0), "x" * 9000), line(key(1)))
    unpack_shards(str(tmp_path))
    assert list(files(tmp_path)) == [key(1)]


def test_an_unpacking_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shard(tmp_path, *(line(key(number), f"record {number}") for number in range(4)))
    real, left = old_shards.write_atomically, [2]

    def stopped(path: Path, data: bytes, **how: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        real(path, data, **how)

    with monkeypatch.context() as patched:
        patched.setattr(old_shards, "write_atomically", stopped)
        with pytest.raises(KeyboardInterrupt):
            unpack_shards(str(tmp_path))
    assert len(files(tmp_path)) == 2
    unpack_shards(str(tmp_path))
    assert files(tmp_path) == {key(number): f"record {number}" for number in range(4)}


def test_a_folder_that_cannot_be_written_is_refused_with_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(tmp_path, line(key(0)))

    def refused(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(old_shards, "write_atomically", refused)
    with pytest.raises(ConfigError, match=r"in shards.*\(Read-only file system\).*give a copy") as error:
        read_cases([tmp_path])
    assert "\n" not in str(error.value)
    assert path.exists()


def test_shards_that_a_living_process_writes_to_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(tmp_path, line(key(0)))
    beat = tmp_path / ".agentsys" / "claims" / f"{ENDED}.alive"
    beat.parent.mkdir()
    beat.touch()
    with pytest.raises(ConfigError, match="Process 1 of an earlier version is at work"):
        unpack_shards(str(tmp_path))
    os.utime(beat, (1e9, 1e9))
    living = Process(Process.here().machine, os.getppid(), 7)
    path.rename(path.with_name(f"{living.mark}-abcdef01-0000.jsonl.gz"))
    monkeypatch.setattr(Process, "is_dead", property(lambda self: self != living))
    with pytest.raises(ConfigError, match=f"Process {living.pid} of an earlier version"):
        unpack_shards(str(tmp_path))
    assert files(tmp_path) == {}


@pytest.mark.parametrize("asked", ["folder", "above", "pipeline", "file"])
def test_readers_unpack_whatever_path_of_a_folder_they_are_given(tmp_path: Path, asked: str) -> None:
    logdir = tmp_path / "all" / "runs"
    record = store_own(logdir, case_of())
    name = record.relative_to(logdir).as_posix()
    shard(logdir, line(name, record.read_text()))
    record.unlink()
    (logdir / name.partition("/")[0]).rename(tmp_path / "gone")
    paths = {"folder": logdir, "above": tmp_path / "all", "file": record, "pipeline": record.parents[3]}
    assert [case.source for case in read_cases([paths[asked]]).cases] == [str(record)]


def test_a_run_finds_what_is_finished_in_shards(tmp_path: Path) -> None:
    record = store_own(tmp_path, case_of(), config_hash="c0")
    shard(tmp_path, line(case_of().key, record.read_text()))
    record.unlink()
    assert Store(tmp_path).read_case_status(case_of()).status == "ok"
    assert find_unfinished([tmp_path]) == ()
