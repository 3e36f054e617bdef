"""The index is a cache and nothing else: what it gives is what the files say, whatever became of it."""

from __future__ import annotations

import ast
import logging
import os
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
from stored_cases import case_of, store_own, store_published

from agentsys.records import index
from agentsys.records.load import COUNTS, case_rows, load_runs
from agentsys.records.reading import read_cases

LONG_AGO = time.time_ns() - 3_600_000_000_000


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were parsed, in order."""
    names: list[str] = []
    real = index.read_stored

    def noted(path: str) -> object:
        names.append(Path(path).name if path.endswith("none.json") else path.split("/")[-4])
        return real(path)

    monkeypatch.setattr(index, "read_stored", noted)
    return names


def _settled(path: Path) -> Path:
    """As if written long ago, so that the index may be trusted about it."""
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


def _runs(folder: Path, *suites: str) -> Path:
    """A log folder of ours."""
    (folder / index.OWN).mkdir(parents=True, exist_ok=True)
    for suite in suites:
        _settled(store_own(folder, case_of(suite=suite)))
    return folder


def _same_as_files(folder: Path) -> bool:
    return case_rows(load_runs(folder)) == list(read_cases([folder]).cases)


def test_a_second_load_parses_nothing_and_gives_the_same(tmp_path: Path, read: list[str]) -> None:
    _runs(tmp_path, "banking", "slack")
    first = load_runs(tmp_path)
    assert len(read) == 2
    assert index.beside(tmp_path).exists()
    second = load_runs(tmp_path)
    assert len(read) == 2
    assert first.equals(second)
    assert first.attrs == second.attrs


def test_new_lines_are_added_and_the_index_is_written_whole_now_and_then(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_AT_ONCE", 2)
    monkeypatch.setattr(index, "_MOST_PARTS", 4)
    names = [f"suite_{number}" for number in range(9)]
    parts = []
    for at in range(0, 9, 3):
        _runs(tmp_path, *names[at : at + 3])
        assert _same_as_files(tmp_path)
        parts.append(len(list((tmp_path / index.OWN).glob("*.parquet"))))
    # Whole when most of it is new and in several parts, and when there are too many of them.
    assert parts == [1, 3, 1]
    assert len(read) == 9
    (tmp_path / case_of(suite="suite_0").key).unlink()
    before = index.beside(tmp_path).read_bytes()
    assert _same_as_files(tmp_path)
    assert index.beside(tmp_path).read_bytes() == before
    for name in names[1:6]:
        (tmp_path / case_of(suite=name).key).unlink()
    assert _same_as_files(tmp_path)
    assert index.beside(tmp_path).stat().st_size < len(before)
    assert len(read) == 9


def test_only_new_and_changed_files_are_parsed_and_deleted_ones_vanish(
    tmp_path: Path, read: list[str]
) -> None:
    _runs(tmp_path, "banking", "slack", "travel")
    load_runs(tmp_path)
    read.clear()
    _runs(tmp_path, "atlas")
    changed = store_own(tmp_path, case_of(suite="slack"), utility=False)
    os.utime(changed, ns=(LONG_AGO + 1, LONG_AGO + 1))
    next(tmp_path.glob("*/travel/*/*/*.json")).unlink()
    frame = load_runs(tmp_path)
    assert sorted(read) == ["atlas", "slack"]
    assert dict(zip(frame["suite"], frame["utility"], strict=True)) == {
        "atlas": True,
        "banking": True,
        "slack": False,
    }
    assert _same_as_files(tmp_path)


def test_a_file_of_the_same_time_and_another_size_is_read_again(tmp_path: Path, read: list[str]) -> None:
    _runs(tmp_path, "banking")
    load_runs(tmp_path)
    _settled(store_own(tmp_path, case_of(), notes=("longer now",)))
    assert load_runs(tmp_path)["notes"].tolist() == [("longer now",)]
    assert len(read) == 2


def test_files_that_may_still_change_within_a_clock_tick_are_not_kept(
    tmp_path: Path, read: list[str]
) -> None:
    path = store_own(tmp_path, case_of(), utility=True)
    _runs(tmp_path, "slack")
    load_runs(tmp_path)
    stamp = path.stat()
    path.write_text(path.read_text().replace('"utility": true', '"utility":false'))
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert path.stat().st_size == stamp.st_size
    assert load_runs(tmp_path)["utility"].tolist() == [False, True]
    assert read == ["banking", "slack", "banking"]


def test_skipped_files_are_tried_anew_each_time(tmp_path: Path, read: list[str]) -> None:
    _runs(tmp_path, "banking")
    _settled(_half(tmp_path))
    assert load_runs(tmp_path).attrs[COUNTS]["skipped"] == 1
    assert load_runs(tmp_path).attrs[COUNTS]["skipped"] == 1
    assert sorted(read) == ["banking", "none.json", "none.json"]


def _half(folder: Path) -> Path:
    path = folder / "none.json"
    path.write_text("{")
    return path


@pytest.mark.parametrize("damage", ["cut", "garbage", "flipped", "empty", "old", "folder"])
def test_a_bad_index_is_made_anew_with_one_debug_line_and_no_other_sign(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _runs(tmp_path, "banking", "slack")
    load_runs(tmp_path)
    place = index.beside(tmp_path)
    content = place.read_bytes()
    if damage == "old":
        monkeypatch.setattr(index, "_fingerprint", lambda: b"another version")
    elif damage == "folder":
        place.unlink()
        place.mkdir()
    else:
        flipped = bytes(byte ^ (0x55 if at % 50 == 7 else 0) for at, byte in enumerate(content))
        damaged = {"cut": content[:-40], "garbage": b"x" * 900, "empty": b"", "flipped": flipped}
        place.write_bytes(damaged[damage])
    with caplog.at_level(logging.DEBUG, logger="agentsys"):
        assert _same_as_files(tmp_path)
    assert [line for line in caplog.messages if "made anew" in line]
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]
    caplog.clear()
    if damage != "folder":
        with caplog.at_level(logging.DEBUG, logger="agentsys"):
            assert _same_as_files(tmp_path)
        assert caplog.messages == []


def test_deleting_the_index_is_safe(tmp_path: Path) -> None:
    _runs(tmp_path, "banking")
    load_runs(tmp_path)
    index.beside(tmp_path).unlink()
    assert _same_as_files(tmp_path)


def test_a_moved_folder_keeps_its_index_and_names_the_files_where_they_are(
    tmp_path: Path, read: list[str]
) -> None:
    load_runs(_runs(tmp_path / "old", "banking"))
    (tmp_path / "old").rename(tmp_path / "new")
    frame = load_runs(tmp_path / "new")
    assert len(read) == 1
    assert frame["source"].tolist() == [str(path) for path in (tmp_path / "new").rglob("*.json")]


def test_a_folder_that_cannot_be_written_has_its_index_in_the_users_cache(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index.os, "access", lambda *_: False)
    _runs(tmp_path, "banking")
    load_runs(tmp_path)
    load_runs(tmp_path)
    assert len(read) == 1
    assert not index.beside(tmp_path).exists()
    assert list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.parquet"))


def test_a_folder_that_is_not_ours_is_never_written_to(tmp_path: Path, read: list[str]) -> None:
    _settled(store_published(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    load_runs(tmp_path)
    load_runs(tmp_path)
    assert len(read) == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.parquet"))


def test_without_any_place_for_an_index_the_files_are_read_each_time(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    monkeypatch.setattr(index.os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    _runs(tmp_path / "runs", "banking")
    assert len(load_runs(tmp_path / "runs")) == len(load_runs(tmp_path / "runs")) == 1
    assert len(read) == 2


def test_a_folder_inside_another_has_an_index_of_its_own_and_overlaps_count_once(tmp_path: Path) -> None:
    _runs(tmp_path, "banking", "slack")
    inner = next(tmp_path.glob("*/slack"))
    for _ in range(2):
        frame = load_runs([inner, tmp_path, inner])
        assert sorted(frame["suite"]) == ["banking", "slack"]
        assert frame.attrs[COUNTS]["seen"] == 2


def test_readers_and_writers_at_once_all_get_whole_tables(tmp_path: Path) -> None:
    _runs(tmp_path, *(f"suite{number}" for number in range(20)))
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(6):
            if (turn + number) % 3 == 0:
                index.beside(tmp_path).unlink(missing_ok=True)
            try:
                found = len(load_runs(tmp_path))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is what the test is about
                wrong.append(error)
            else:
                wrong.extend([found] if found != 20 else [])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize("root", ["runs", "runs/"])
def test_files_are_known_by_their_path_below_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/a.json").write_text("{}")
    stamps = index.stamps_of(["runs/a.json", "runs/gone.json"], root)
    assert (stamps.file, stamps.size) == ([b"a.json", b"gone.json"], [2, -1])


def _ours_behind(module: str, met: set[str]) -> set[str]:
    """A module of ours and every module of ours that it cannot do without."""
    if module not in met and (spec := find_spec(module)) and spec.origin:
        met.add(module)
        for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentsys."):
                _ours_behind(str(node.module), met)
    return met


def test_the_index_is_of_another_version_once_any_code_behind_its_rows_has_changed() -> None:
    behind = _ours_behind("agentsys.records.stored_file", _ours_behind("agentsys.records.columns", set()))
    assert len(behind) > 8
    elsewhere = {module for module in behind if not module.startswith("agentsys.records.")}
    assert elsewhere == {f"agentsys.{name.removesuffix('.py')}" for name in index._ELSEWHERE}
