"""`agentsys run` twice into one folder: what it says of finished, replaced and missing cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.records import case_reader
from agentsys.runs import plan

SMALL = ["benchmark.suites=[slack]", "user_tasks=[0,1]", "executor.workers=1"]


def said(logdir: Path, *arguments: str) -> str:
    shown = CliRunner().invoke(app, ["run", *SMALL, f"logdir={logdir}", *arguments])
    assert shown.exit_code == 0, shown.output
    return " ".join(shown.output.split())


def test_again_says_where_the_old_records_are_and_a_plain_run_finds_nothing_to_do(tmp_path: Path) -> None:
    logdir = tmp_path / "runs"
    assert "kept in" not in said(logdir)
    assert "2 finished before, 0 to run" in said(logdir)
    again = said(logdir, "--again")
    assert "0 finished before, 2 to run" in again
    assert f"2 of them have a record: it is kept in {logdir}/.agentsys/aside" in again
    assert "2 finished before, 0 to run" in said(logdir)


def test_a_run_looks_into_its_folder_again_for_the_table_only_after_it_has_run_a_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = list[Path]()

    def noted(root: Path) -> case_reader.Listing:
        looks.append(root)
        return listed(root)

    listed = case_reader.list_files
    for place in (plan, case_reader):
        monkeypatch.setattr(place, "WORTH_AN_INDEX", 1)
        monkeypatch.setattr(place, "list_files", noted)
    table = said(tmp_path)
    again = said(tmp_path)
    assert "2 finished before, 0 to run" in again and table.partition("Benign")[2][:200] in again
    assert len(looks) == 2  # one each: the first time there was nothing to be finished before
    assert "2 finished before, 2 to run" in said(tmp_path, "epochs=2")
    assert len(looks) == 4
    assert "4 cases" in said(tmp_path, "epochs=2")


def test_a_dry_run_with_again_moves_nothing(tmp_path: Path) -> None:
    said(tmp_path / "runs")
    said(tmp_path / "runs", "--again", "--dry-run")
    assert not (tmp_path / "runs/.agentsys/aside").exists()


def test_an_interrupted_run_says_what_it_did_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(self: object, record: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agentsys.cli.run_progress.PlainProgress.finished", stops)
    shown = CliRunner().invoke(
        app, ["run", *SMALL, f"logdir={tmp_path / 'runs'}", "defense=none,prompt_sandwiching"]
    )
    assert shown.exit_code == 130
    assert "unfinished: 3 of 4 missing (prompt_sandwiching not begun; none lacks 1)." in " ".join(
        shown.output.split()
    )
