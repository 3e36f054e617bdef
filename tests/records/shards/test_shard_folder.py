"""Shards lose no record that was written, wherever the process that wrote it was stopped."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records_for_shards import line

from agentsys.records.shards import shard_folder
from agentsys.records.shards.pack import set_torn_aside
from agentsys.records.shards.shard_folder import INDEX, SHARDS, SUFFIX, ShardFolder
from agentsys.records.shards.shard_writer import ShardWriter
from agentsys.records.unreadable import UnreadableRecord

ROUNDS = int(os.environ.get("SHARD_KILLS", "2"))
"""Processes that are killed."""


def written(logdir: Path, count: int) -> ShardWriter:
    writer = ShardWriter(logdir)
    for number in range(count):
        writer.append([line(number)])
    writer.close()
    return writer


def found(logdir: Path) -> dict[str, str]:
    folder = ShardFolder(logdir).refresh()
    return {key: folder.read(entry).file for key, entry in folder}


def wanted(count: int) -> dict[str, str]:
    return {one.key: one.file for one in map(line, range(count))}


def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_folder, "_has_ended", lambda name: True)


def test_records_are_found_in_order_and_the_file_is_lines_of_json(tmp_path: Path) -> None:
    shard = written(tmp_path, 12).shard
    assert list(found(tmp_path).items()) == list(wanted(12).items())
    lines = gzip.decompress(shard.read_bytes()).splitlines()
    assert [json.loads(one)["key"] for one in lines] == list(wanted(12))


def test_a_shard_cut_off_anywhere_gives_the_whole_records_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = written(tmp_path, 3).shard
    whole, dead_at = shard.read_bytes(), [0]
    folder = ShardFolder(tmp_path).refresh()
    dead_at += [entry.offset + entry.length for _, entry in folder]
    index = shard.with_name(shard.name.removesuffix(SUFFIX) + INDEX)
    index.unlink()
    dead(monkeypatch)
    for cut in range(0, len(whole) + 1, 3):
        shard.write_bytes(whole[:cut])
        left = sum(end <= cut for end in dead_at) - 1
        assert found(tmp_path) == wanted(left)
        folder = ShardFolder(tmp_path).refresh()
        assert sum(part.size for part in folder.damaged) == cut - dead_at[left]
    aside = [*set_torn_aside(tmp_path), *set_torn_aside(tmp_path)]
    assert found(tmp_path) == wanted(len(dead_at) - 1 if cut == len(whole) else 2)
    assert sum(path.stat().st_size for path in aside) == cut - dead_at[-1 if cut == len(whole) else -2]


@given(cut=st.integers(0, 700), damage=st.integers(0, 699))
def test_an_index_that_is_cut_off_or_damaged_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, cut: int, damage: int
) -> None:
    logdir = tmp_path_factory.mktemp("runs")
    shard = written(logdir, 5).shard
    index = shard.with_name(shard.name.removesuffix(SUFFIX) + INDEX)
    data = bytearray(index.read_bytes()[:cut])
    index.write_bytes(bytes(data))
    assert found(logdir) == wanted(5)
    if damage < len(data):
        data[damage : damage + 1] = b"["
        index.write_bytes(bytes(data))
    assert found(logdir) == wanted(5)


def test_a_damaged_record_costs_no_other_one(tmp_path: Path) -> None:
    shard = written(tmp_path, 3).shard
    second = [entry for _, entry in ShardFolder(tmp_path).refresh()][1]
    data = bytearray(shard.read_bytes())
    data[second.offset + second.length // 2] ^= 0xFF
    shard.write_bytes(bytes(data))
    folder = ShardFolder(tmp_path).refresh()
    entries = [entry for _, entry in folder]
    assert [folder.read(entries[at]).file for at in (0, 2)] == [line(0).file, line(2).file]
    with pytest.raises(UnreadableRecord, match=r"damaged in shard .*agentsys unpack"):
        folder.read(entries[1])


def test_what_is_written_later_counts_and_may_be_taken_back(tmp_path: Path) -> None:
    reader = ShardFolder(tmp_path)
    assert list(reader.refresh()) == []
    first, second = ShardWriter(tmp_path), ShardWriter(tmp_path)
    first.append([line(1, "an error", "error"), line(2)])
    assert [entry.status for _, entry in reader.refresh()] == ["error", "ok"]
    second.append([line(1, "mended")])
    found_now = reader.refresh().find(line(1).key)
    assert found_now is not None
    assert (found_now.status, reader.read(found_now).file) == ("ok", "mended")
    second.take_back(line(1).key)
    assert [key for key, _ in reader.refresh()] == [line(2).key]
    assert reader.tree["m__none__b-v1/suite/user_task_0/direct"][1] == ["injection_task_2.json"]
    assert list(found(tmp_path)) == [line(2).key]


def test_a_full_shard_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentsys.records.shards.shard_writer._LARGEST", 200)
    reader = ShardFolder(tmp_path)
    writer = ShardWriter(tmp_path)
    for number in range(9):
        writer.append([line(number)])
        assert [key for key, _ in reader.refresh()] == list(wanted(number + 1))
    writer.close()
    names = sorted(path.name.rpartition("-")[2] for path in (tmp_path / SHARDS).glob(f"*{SUFFIX}"))
    assert names[:2] == ["0000.jsonl.gz", "0001.jsonl.gz"]
    assert found(tmp_path) == wanted(9)
    assert reader.damaged == []


def test_a_full_disk_leaves_the_shard_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = ShardWriter(tmp_path)
    writer.append([line(0)])
    before, real = writer.shard.read_bytes(), os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return real(file, data[: len(data) // 2])

    with monkeypatch.context() as patched:
        patched.setattr("agentsys.records.shards.shard_writer.os.write", half)
        with pytest.raises(OSError, match="No space"):
            writer.append([line(1)])
    assert writer.shard.read_bytes() == before
    writer.append([line(1)])
    assert found(tmp_path) == wanted(2)


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_a_killed_process_loses_no_record_that_it_reported(tmp_path: Path, round_: int) -> None:
    support = Path(__file__).parents[2] / "support" / "records_for_shards.py"
    process = subprocess.Popen(
        [sys.executable, str(support), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    reported = [int(process.stdout.readline()) for _ in range(20 + 7 * round_)]
    process.send_signal(signal.SIGKILL)
    reported += [int(one) for one in process.stdout.read().splitlines(keepends=True) if one.endswith("\n")]
    process.wait(60)
    set_torn_aside(tmp_path)
    kept = found(tmp_path)
    assert {line(number).key: line(number).file for number in reported}.items() <= kept.items()
    assert ShardFolder(tmp_path).refresh().damaged == []
    (shard,) = (tmp_path / SHARDS).glob(f"*{SUFFIX}")
    assert len(gzip.decompress(shard.read_bytes()).splitlines()) == len(kept)
