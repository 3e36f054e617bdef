"""Packing and unpacking give back every byte, and lose nothing wherever they are stopped."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_cases import case_of, store_own, store_published

from agentsys.analysis.html_report.case_index import index_row
from agentsys.errors import ConfigError
from agentsys.records.listing import listed
from agentsys.records.load import load_runs
from agentsys.records.reading import read_cases
from agentsys.records.shards import pack as packing
from agentsys.records.shards.either import content_of, is_stored, stamp_of
from agentsys.records.shards.pack import pack, unpack
from agentsys.records.shards.shard_folder import SHARDS

Files = dict[str, bytes]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A log folder: records of ours of two defenses, a published one, a damaged one, an attempt."""
    logdir = tmp_path / "runs"
    for defense in ("none", "agentsys"):
        for number in range(6):
            store_own(
                logdir, case_of(defense=defense, user_task_id=f"user_task_{number}"), utility=number > 2
            )
    store_own(logdir, case_of(user_task_id="user_task_9"), notes=("non-ASCII: é ⚠ \u2028",))
    store_own(logdir, case_of(user_task_id="user_task_8"), status="error", error_kind="rate_limit")
    store_published(logdir)
    (logdir / case_of(user_task_id="user_task_7").key).parent.mkdir(parents=True)
    (logdir / case_of(user_task_id="user_task_7").key).write_text('{"agentsys": {')
    attempt = logdir / case_of().attempt_key(1)
    attempt.parent.mkdir()
    attempt.write_text("{}")
    (logdir / ".agentsys").mkdir()
    return logdir


def files(logdir: Path) -> Files:
    """Every file that is no shard, by its path."""
    inside = (path for path in sorted(logdir.rglob("*")) if path.is_file() and SHARDS.name not in path.parts)
    return {str(path.relative_to(logdir)): path.read_bytes() for path in inside}


def contents(logdir: Path, names: Files) -> Files:
    return {name: content_of(str(logdir / name)) for name in names}


def test_unpacking_gives_back_every_byte(runs: Path) -> None:
    before = files(runs)
    times = {name: stamp_of(str(runs / name)).mtime_ns for name in before}
    done = pack(runs)
    assert (done.records, done.left) == (14, 2)
    assert len(files(runs)) == len(before) - 14
    assert contents(runs, before) == before
    assert {name: stamp_of(str(runs / name)).mtime_ns for name in before} == times
    done = unpack(runs)
    assert (done.records, done.left) == (14, 0)
    assert files(runs) == before
    assert {name: stamp_of(str(runs / name)).mtime_ns for name in before} == times
    assert not (runs / SHARDS).exists()


def test_every_reader_finds_the_same(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "files")
    pipeline, suite = case_of().pipeline, f"{case_of().pipeline}/banking"
    one = case_of(user_task_id="user_task_3").key
    frame, whole = load_runs(runs), read_cases([runs])
    shown = [index_row(case) for case in whole.cases]
    parts = {name: read_cases([runs / name]).cases for name in (pipeline, suite, one)}
    assert [len(cases) for cases in parts.values()] == [8, 8, 1]
    pack(runs)
    for _ in range(2):  # with an index, and from it
        assert load_runs(runs).equals(frame)
    packed = read_cases([runs])
    assert packed == whole
    assert [index_row(case) for case in packed.cases] == shown
    assert {name: read_cases([runs / name]).cases for name in parts} == parts
    assert read_cases([tmp_path]).repeated == 15
    assert not is_stored(str(runs / one).replace("_3", "_5000"))
    with pytest.raises(ConfigError, match="No folder"):
        listed(runs / "nobody__none__b-v1")
    with pytest.raises(FileNotFoundError):
        content_of(str(runs / one).replace("_3", "_5000"))


def test_a_file_counts_before_a_shard_and_packs_over_it(runs: Path) -> None:
    pack(runs)
    failed = case_of(user_task_id="user_task_8")
    again = store_own(runs, failed)
    (found,) = read_cases([again]).cases
    assert found.status == "ok"
    assert pack(runs).records == 1
    assert not again.exists()
    (found,) = read_cases([again]).cases
    assert found.status == "ok"
    unpack(runs)
    assert b'"status": "ok"' in again.read_bytes()


class Stopped(BaseException):
    """Stands for the moment at which a process is killed."""


def stopping_at(at: int, wrapped: Callable[..., object]) -> Callable[..., object]:
    """The same function; its call number `at` is the process's last moment."""
    calls = iter(range(1000))

    def call(*args: object, **kwargs: object) -> object:
        if next(calls) == at:
            raise Stopped
        return wrapped(*args, **kwargs)

    return call


@pytest.mark.parametrize("step", ["ShardWriter.append", "Path.unlink", "_remove_empty"])
@pytest.mark.parametrize("at", [0, 2])
def test_a_packing_that_is_stopped_loses_nothing(
    runs: Path, step: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, cases = files(runs), read_cases([runs]).cases
    monkeypatch.setattr(packing, "_AT_ONCE", 5)
    owner, _, name = step.rpartition(".")
    target = {"ShardWriter": packing.ShardWriter, "Path": Path, "": packing}[owner]
    with monkeypatch.context() as patched:
        patched.setattr(target, name, stopping_at(at, getattr(target, name)))
        if step == "_remove_empty" and at:
            pack(runs)
        else:
            with pytest.raises(Stopped):
                pack(runs)
    assert contents(runs, before) == before
    assert read_cases([runs]).cases == cases
    pack(runs)
    assert contents(runs, before) == before
    unpack(runs)
    assert files(runs) == before


@pytest.mark.parametrize("step", ["write_atomically", "os.sync", "shutil.rmtree"])
def test_an_unpacking_that_is_stopped_loses_nothing(
    runs: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(runs)
    pack(runs)
    owner, _, name = step.rpartition(".")
    target = getattr(packing, owner) if owner else packing
    with monkeypatch.context() as patched:
        patched.setattr(target, name, stopping_at(3 if not owner else 0, getattr(target, name)))
        with pytest.raises(Stopped):
            unpack(runs)
    assert contents(runs, before) == before
    unpack(runs)
    assert {name: content for name, content in files(runs).items() if ".agentsys" not in name} == before


def test_a_damaged_record_is_told_and_kept_aside(runs: Path) -> None:
    pack(runs)
    (shard,) = (runs / SHARDS).glob("*.gz")
    data = bytearray(shard.read_bytes())
    data[200] ^= 0xFF
    shard.write_bytes(bytes(data))
    reading = read_cases([runs])
    assert len(reading.cases) == 14
    assert sum("damaged in shard" in skip.reason for skip in reading.skipped) == 1
    done = unpack(runs)
    assert (done.records, done.left) == (13, 1)
    assert len(list((runs / ".agentsys").glob("shards-unpacked-*/*.gz"))) == 1
