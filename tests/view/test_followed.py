"""Following folders: what comes, changes and goes, in the order of a report and under its names."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from asb_files import Made, write_results
from reported_cases import store, store_attacked

from agentsys.analysis.html_report.case_index import in_reading_order, index_row
from agentsys.records.names_file import Names
from agentsys.records.reading import read_cases
from agentsys.view import followed
from agentsys.view.followed import FollowedRuns


def rewritten(path: Path, text: str) -> None:
    """Write a file anew, at a later moment even where the clock of the file system stands still."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))


def ids(runs: FollowedRuns) -> list[str]:
    return [row["id"] for row in runs.rows()[1]]


def test_what_comes_changes_and_goes_is_told_once(tmp_path: Path) -> None:
    runs = FollowedRuns([tmp_path / "later"])
    runs.look()
    assert runs.rows() == (0, [])
    first = store_attacked(tmp_path / "later")
    runs.look()
    news = runs.changes(0)
    assert [row["user_task"] for row in news.rows] == ["user_task_0"]
    assert runs.changes(news.version).rows == ()
    second = store_attacked(tmp_path / "later", user_task_id="user_task_1")
    runs.look()
    assert [row["user_task"] for row in runs.changes(news.version).rows] == ["user_task_1"]
    before, version = ids(runs), runs.version
    runs.look()
    assert runs.version == version
    store_attacked(tmp_path / "later", security=True)
    runs.look()
    (changed,) = runs.changes(version).rows
    assert (changed["outcome"], changed["id"]) == ("attack_succeeded", before[0])
    stored = runs.version
    rewritten(first, first.read_text().replace("The bill is paid.", "The bill is lost."))
    runs.look()
    assert [row["id"] for row in runs.changes(stored).rows] == before[:1]
    second.unlink()
    runs.look()
    assert runs.changes(version).gone == (before[1],)
    assert ids(runs) == before[:1]
    assert runs.case(before[1]) is None
    assert runs.case(before[0]) is not None
    shutil.rmtree(first.parents[3])
    runs.look()
    assert ids(runs) == []


def test_a_case_that_comes_back_is_not_gone(tmp_path: Path) -> None:
    path = store_attacked(tmp_path)
    runs = FollowedRuns([tmp_path])
    runs.look()
    content = path.read_text()
    path.unlink()
    runs.look()
    version = runs.version
    path.write_text(content)
    runs.look()
    news = runs.changes(0)
    assert (news.version, len(news.rows), news.gone) == (version + 1, 1, ())


def test_a_file_that_is_written_in_two_steps_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = store_attacked(tmp_path)
    whole = path.read_text()
    path.write_text(whole[:300])
    runs = FollowedRuns([tmp_path])
    runs.look()
    assert ids(runs) == []
    assert [str(skip.path) for skip in runs.reading.skipped] == [str(path)]
    path.write_text(whole)
    runs.look()
    assert len(ids(runs)) == 1
    assert runs.reading.skipped == ()


def test_the_cases_are_those_of_a_report_whenever_they_came(tmp_path: Path) -> None:
    runs = FollowedRuns([tmp_path / "b", tmp_path / "a"])
    for task in (10, 2, 1):
        for folder in ("a", "b"):
            for defense in ("agentsys", "none"):
                store(
                    tmp_path / folder,
                    user_task_id=f"user_task_{task}",
                    defense=defense,
                    utility=folder == "a",
                )
        runs.look()
    store(tmp_path / "a", user_task_id="user_task_3", model="m" * 100)
    write_results(tmp_path / "a", [Made("A"), Made("B")])
    runs.look()
    reading = read_cases([tmp_path / "b", tmp_path / "a"])
    assert runs.reading.repeated == reading.repeated == 6
    rows = [index_row(case) for case in in_reading_order(reading.cases)]
    told = [{**row, "model": "", "written": 0} for row in runs.rows()[1]]
    assert told == [{**row, "model": "", "written": 0} for row in rows]
    assert any(len(row["model"]) == 60 for row in runs.rows()[1])


def test_many_files_are_shown_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in range(3):
        store(tmp_path, user_task_id=f"user_task_{task}")
    monkeypatch.setattr(followed, "_PUBLISHED_AFTER_S", -1.0)
    runs = FollowedRuns([tmp_path])
    runs.look()
    assert runs.version == 3
    assert len(ids(runs)) == 3


def test_a_thread_follows_until_it_is_stopped_and_wakes_whoever_waits(tmp_path: Path) -> None:
    runs = FollowedRuns([tmp_path], Names())
    runs.start()
    try:
        store(tmp_path)
        news = runs.changes(0, seconds=60)
        while not news.rows:  # seen half written: news too, of a file that cannot be read yet
            news = runs.changes(news.version, seconds=60)
        assert len(news.rows) == 1
    finally:
        runs.stop()
    assert runs.changes(runs.version, seconds=3600).rows == ()


def test_the_same_run_elsewhere_has_the_same_ids(tmp_path: Path) -> None:
    found = []
    for name in ("here", "there"):
        path = store_attacked(tmp_path / name)
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"duration": 9.0}))
        runs = FollowedRuns([tmp_path / name])
        runs.look()
        found.append(ids(runs))
    assert found[0] == found[1]
    assert all(len(one) == 10 for one in found[0])


def test_of_many_cases_the_newest_come_first_and_all_later(tmp_path: Path) -> None:
    for task in range(5):
        path = store(tmp_path, user_task_id=f"user_task_{task}")
        os.utime(path, (100, 1000 if task == 3 else 10 * task))
    runs = FollowedRuns([tmp_path])
    runs.look()
    version, rows = runs.rows(2)
    assert [row["user_task"] for row in rows] == ["user_task_3", "user_task_4"]
    assert len(runs.changes(version).rows) == 5
    assert len(runs.rows(5).rows) == 5
    assert runs.changes(runs.rows(5).version).rows == ()
