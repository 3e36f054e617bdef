"""Measuring followed runs: numbers of what was read so far, and the process that measures many cases."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from reported_cases import store_attacked

from agentsys.view import measured
from agentsys.view.followed import FollowedRuns
from agentsys.view.measured import MeasuredRuns, MeasuringProcess, shown_numbers


def followed(folder: Path) -> FollowedRuns:
    store_attacked(folder)
    runs = FollowedRuns([folder])
    runs.look()
    return runs


def test_numbers_of_files_still_being_read_say_so(tmp_path: Path) -> None:
    reading = followed(tmp_path).reading
    note = "Files are still being read: these are the numbers of the first 1 case."
    assert shown_numbers(reading, [tmp_path], so_far=True).numbers.notes[0] == note
    assert note in shown_numbers(reading, [tmp_path], so_far=True).html
    assert "still being read" not in shown_numbers(reading, [tmp_path], so_far=False).html


def test_what_was_measured_too_early_is_measured_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def noted(self: MeasuringProcess, *question: object) -> measured.ShownNumbers:
        asked.append(True)
        runs.reading_files = False
        return shown_numbers(runs.reading, runs.folders, so_far=True)

    monkeypatch.setattr(MeasuringProcess, "measure", noted)
    monkeypatch.setattr(measured, "PAUSE_S", 3600.0)
    runs = followed(tmp_path)
    found = MeasuredRuns(runs)
    found.start()
    try:
        while found.version < 2:  # does not wait for the pause, which is for later cases
            time.sleep(0.01)
        assert asked == [True]
        assert found.shown is not None
        assert "still being read" not in found.shown.html
    finally:
        found.stop()


@pytest.mark.slow
def test_the_process_measures_what_we_would_and_another_takes_over_from_one_that_ended(
    tmp_path: Path,
) -> None:
    runs = followed(tmp_path)
    process = MeasuringProcess()
    try:
        here = shown_numbers(runs.reading, [tmp_path], so_far=False)
        assert process.measure(runs.reading, [tmp_path], so_far=False) == here
        assert process._process is not None
        process._process.kill()
        process._process.join()
        assert process.measure(runs.reading, [tmp_path], so_far=False) == here
    finally:
        process.stop()
    with pytest.raises(EOFError):
        process.measure(runs.reading, [tmp_path], so_far=False)
    assert not process._process.is_alive()
