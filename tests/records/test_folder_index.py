"""The index is a cache and nothing else: what it gives is what the files say, whatever became of it."""

from __future__ import annotations

import ast
import io
import logging
import os
import re
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from stored_cases import case_of, store_own
from typer.testing import CliRunner

from agentsys.base.user_seal import add_seal
from agentsys.cli import app
from agentsys.records import case_reader, folder_index
from agentsys.records.case_reader import list_case_rows, load_runs

LONG_AGO = time.time_ns() - 3_600_000_000_000


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _for_every_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_reader, "WORTH_AN_INDEX", 1)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were parsed, in order."""
    names: list[str] = []
    real = folder_index.read_case_columns

    def noted(path: str) -> object:
        names.append(Path(path).name if path.endswith("none.json") else path.split("/")[-4])
        return real(path)

    monkeypatch.setattr(folder_index, "read_case_columns", noted)
    return names


def _settled(path: Path) -> Path:
    """As if written long ago, so that the index may be trusted about it."""
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    return path


def _runs(folder: Path, *suites: str) -> Path:
    """A log folder of ours."""
    (folder / folder_index.LOGDIR_OWN_FOLDER).mkdir(parents=True, exist_ok=True)
    for suite in suites:
        _settled(store_own(folder, case_of(suite=suite)))
    return folder


def _same_as_files(folder: Path) -> bool:
    """What an index says is what the files say, one by one."""
    files = [
        path for path in sorted(folder.rglob("*.json")) if folder_index.LOGDIR_OWN_FOLDER not in path.parts
    ]
    return list_case_rows(load_runs(folder)) == list_case_rows(load_runs(files))


def test_a_second_load_parses_nothing_and_gives_the_same(tmp_path: Path, read: list[str]) -> None:
    _runs(tmp_path, "banking", "slack")
    first = load_runs(tmp_path)
    assert len(read) == 2
    assert folder_index.make_logdir_index_path(tmp_path).exists()
    second = load_runs(tmp_path)
    assert len(read) == 2
    assert first.equals(second)
    assert first.attrs == second.attrs


def _stored(folder: Path) -> dict[str, Any]:
    """The members of a log folder's index; what is JSON in it under `about`'s and `values`' own names."""
    with np.load(folder_index.make_logdir_index_path(folder)) as stored:
        members = {name: stored[name] for name in stored.files}
    return members | {name: orjson.loads(members[name].tobytes()) for name in ("about", "values")}


def test_what_is_gone_leaves_the_index(tmp_path: Path, read: list[str]) -> None:
    names = [f"suite_{number}" for number in range(9)]
    _runs(tmp_path, *names)
    assert len(load_runs(tmp_path)) == len(_stored(tmp_path)["about"]["paths"]) == 9
    read.clear()
    for name in names[1:6]:
        (tmp_path / case_of(suite=name).key).unlink()
    assert len(load_runs(tmp_path)) == len(_stored(tmp_path)["about"]["paths"]) == 4
    assert read == []


def test_a_folder_is_listed_again_only_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    real = os.scandir

    def noted(folder: str) -> Any:
        listed.append(Path(folder).name)
        return real(folder)

    _runs(tmp_path, "banking", "slack")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "more").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    for folder in [path for path in tmp_path.rglob("*") if path.is_dir() and not path.is_symlink()]:
        _settled(folder)
    load_runs(tmp_path)
    monkeypatch.setattr(folder_index.os, "scandir", noted)
    load_runs(tmp_path)
    # Our own folder and links say nothing of their change by the time of the folder they lie in.
    assert sorted(listed) == ["links", tmp_path.name]
    _runs(tmp_path, "travel")
    listed.clear()
    assert len(load_runs(tmp_path)) == 3 and "banking" not in listed


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


@pytest.mark.parametrize("damage", ["cut", "garbage", "flipped", "empty", "old", "folder"])
def test_a_bad_index_is_made_anew_with_one_debug_line_and_no_other_sign(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _runs(tmp_path, "banking", "slack")
    load_runs(tmp_path)
    place = folder_index.make_logdir_index_path(tmp_path)
    content = place.read_bytes()
    if damage == "old":
        monkeypatch.setattr(folder_index, "_compute_fingerprint", lambda: "another_version")
    elif damage == "folder":
        place.unlink()
        place.mkdir()
    else:
        flipped = bytes(byte ^ (0x55 if at % 50 == 7 else 0) for at, byte in enumerate(content))
        damaged = {"cut": content[:-40], "garbage": b"x" * 900, "empty": b"", "flipped": flipped}
        place.write_bytes(damaged[damage])
    with caplog.at_level(logging.DEBUG, logger="agentsys"):
        assert _same_as_files(tmp_path)
    assert [line for line in caplog.messages if "made anew" in line or "files read, " in line]
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG]
    caplog.clear()
    if damage != "folder":
        load_runs(tmp_path)
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="agentsys"):
            assert _same_as_files(tmp_path)
        assert caplog.messages == []


def test_a_folder_that_cannot_be_written_has_its_index_in_the_users_cache(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_index.os, "access", lambda *_: False)
    _runs(tmp_path, "banking")
    load_runs(tmp_path)
    load_runs(tmp_path)
    assert len(read) == 1
    assert not folder_index.make_logdir_index_path(tmp_path).exists()
    assert list(Path(os.environ["XDG_CACHE_HOME"]).rglob("*.npz"))


def test_without_any_place_for_an_index_the_files_are_read_each_time(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    monkeypatch.setattr(folder_index.os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(nowhere))
    _runs(tmp_path / "runs", "banking")
    assert len(load_runs(tmp_path / "runs")) == len(load_runs(tmp_path / "runs")) == 1
    assert len(read) == 2


def test_readers_and_writers_at_once_all_get_whole_tables(tmp_path: Path) -> None:
    _runs(tmp_path, *(f"suite{number}" for number in range(20)))
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(6):
            if (turn + number) % 3 == 0:
                folder_index.make_logdir_index_path(tmp_path).unlink(missing_ok=True)
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


def _hand_on(folder: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Make a folder somebody else's: its index says the opposite of its files, and its sizes and times fit them."""
    load_runs(folder)
    values = _stored(folder)["values"]
    members = _stored(folder) | {"values": values | {"utility": [not one for one in values["utility"]]}}
    members |= {
        name: np.frombuffer(orjson.dumps(members[name]), dtype=np.uint8) for name in ("about", "values")
    }
    content = io.BytesIO()
    np.savez(content, **members)
    folder_index.make_logdir_index_path(folder).write_bytes(add_seal(content.getvalue()))
    assert not _same_as_files(folder), "whoever wrote an index is shown what it says"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))


@pytest.mark.parametrize("may_write", [True, False])
@pytest.mark.parametrize("first", ["check", "results", "report"])
def test_an_index_that_came_with_a_folder_is_believed_by_nobody(
    tmp_path: Path, first: str, may_write: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = _runs(tmp_path / "runs", "banking", "slack")
    _hand_on(runs, monkeypatch, tmp_path / "other_cache")
    if not may_write:  # Then it cannot be removed.
        monkeypatch.setattr(folder_index, "find_index_path", lambda _: tmp_path / "elsewhere" / "index.npz")
        monkeypatch.setattr("agentsys.cli.check_command.remove_index", lambda _: None)
    CliRunner().invoke(app, [first, str(runs)])
    assert _same_as_files(runs)


@pytest.mark.parametrize("key", [None, b"", b"short"])
def test_without_a_key_an_index_is_made_anew(tmp_path: Path, read: list[str], key: bytes | None) -> None:
    _runs(tmp_path, "banking")
    load_runs(tmp_path)
    place = Path(os.environ["XDG_CACHE_HOME"]) / "agentsys" / "index" / "key"
    assert place.stat().st_mode & 0o777 == 0o600
    place.unlink()
    if key is not None:
        place.write_bytes(key)
    for _ in range(2):
        assert len(load_runs(tmp_path)) == 1
    assert len(read) == 2


def test_check_reads_the_files_though_sizes_and_times_are_those_of_ones_own_index(tmp_path: Path) -> None:
    _runs(tmp_path, "banking", "slack")
    load_runs(tmp_path)
    [record, _] = tmp_path.glob("*__*/*/*/*/*.json")
    content = record.read_text()
    record.write_text(re.sub(r'"utility": ?true', lambda match: match[0].replace("true", "null"), content))
    assert record.read_text() != content
    _settled(record)
    assert not _same_as_files(tmp_path)
    CliRunner().invoke(app, ["check", str(tmp_path)])
    assert _same_as_files(tmp_path)


def test_a_link_in_place_of_our_folder_is_not_followed(tmp_path: Path) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    _runs(runs, "banking")
    load_runs(runs)
    (runs / ".agentsys").rename(elsewhere)
    (elsewhere / "index.json").write_text("of another program")
    (runs / ".agentsys").symlink_to(elsewhere)
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir()}
    assert "index.npz" in before
    store_own(runs, case_of(suite="slack"))
    CliRunner().invoke(app, ["check", str(runs)])
    assert _same_as_files(runs)
    assert {path.name: path.read_bytes() for path in elsewhere.iterdir()} == before


def test_a_link_in_the_place_of_an_index_is_not_followed(tmp_path: Path) -> None:
    _runs(tmp_path / "runs", "banking")
    other = tmp_path / "other"
    other.write_text("mine")
    folder_index.make_logdir_index_path(tmp_path / "runs").symlink_to(other)
    for _ in range(2):
        assert _same_as_files(tmp_path / "runs")
    assert other.read_text() == "mine"
    assert not folder_index.make_logdir_index_path(tmp_path / "runs").is_symlink()


@pytest.mark.parametrize("name", ["index.sqlite", "index.json"])
def test_the_index_of_an_earlier_version_goes(tmp_path: Path, name: str) -> None:
    old = _runs(tmp_path, "banking") / ".agentsys" / name
    old.write_text("large")
    load_runs(tmp_path)
    assert not old.exists()


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
    named = (name.removesuffix(".py").replace("/", ".") for name in folder_index._OTHER_SOURCES)
    assert elsewhere == {f"agentsys.{name}" for name in named}
