"""What `agentsys run` says: of finished, replaced and missing cases, with -q, -v and --log-level."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.extensions import OUR_PACKAGES
from agentsys.records import case_reader, folder_index
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

    monkeypatch.setattr("agentsys.cli.run_progress.PlainProgress.on_case_stored", stops)
    shown = CliRunner().invoke(
        app, ["run", *SMALL, f"logdir={tmp_path / 'runs'}", "defense=none,prompt_sandwiching"]
    )
    assert shown.exit_code == 130
    assert "unfinished: 3 of 4 missing (prompt_sandwiching not begun; none lacks 1)." in " ".join(
        shown.output.split()
    )


TWO_CASES = [
    "run",
    "model=simulated",
    "benchmark.suites=banking",
    "user_tasks=0",
    "injection_tasks=0",
    "attack=none,important_instructions",
    "logdir=r",
]
CASES = (
    "simulated / none / none: banking user_task_0: user task solved",
    "simulated / none / important_instructions: banking user_task_0/injection_task_0:",
)
_TIME = re.compile(r"\d+:\d\d:\d\d")


@pytest.fixture(autouse=True)
def levels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Every run in a folder of its own, and the loggers as they were."""
    monkeypatch.chdir(tmp_path)
    before = {name: logging.getLogger(name).level for name in OUR_PACKAGES}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def logged(*more: str, width: int = 80) -> list[str]:
    """Lines of a run whose output goes to a file."""
    done = CliRunner().invoke(app, [*TWO_CASES, *more], env={"COLUMNS": str(width)}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout
    return done.stdout.splitlines()


def test_quiet_leaves_the_results_and_the_last_lines_alone() -> None:
    plain, quiet = logged(), logged("-q", "--again")
    assert plain[0] == "2 cases in 2 cells; 0 finished before, 2 to run. Records: r"
    assert "simulated on agentdojo" in quiet[0]
    rest = plain[next(at for at, line in enumerate(plain) if line.startswith("simulated on agentdojo")) :]
    assert [_TIME.sub("", line) for line in quiet] == [_TIME.sub("", line) for line in rest]
    assert quiet[-2].startswith("2 cases, ") and quiet[-1].startswith("Next: agentsys report r")


@pytest.mark.parametrize("width", [60, 200])
def test_verbose_tells_what_became_of_each_case_before_the_results(width: int) -> None:
    lines = logged("-v", width=width)
    assert [line for line in lines if cell_len(line) > width] == []
    text = " ".join(" ".join(lines).split())
    results = text.index("simulated on agentdojo")
    for case in CASES:
        assert text.index(case) < results
    assert text.count("user task ") == len(CASES) and "injection carried out" in text


@pytest.mark.parametrize(
    ("level", "begun", "warned"),
    [("debug", 1, True), ("info", 0, True), ("warning", 0, True), ("error", 0, False)],
)
def test_the_level_chooses_what_our_modules_log(
    level: str, begun: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    logged("--log-level", level)
    (record,) = Path("r").rglob("user_task_0/none/none.json")
    record.write_text("{torn", encoding="utf-8")
    caplog.clear()
    said = logged("--log-level", level)
    logs = [entry for entry in caplog.records if entry.name.startswith("agentsys")]
    assert sum("begins: " in entry.getMessage() for entry in logs) == begun
    assert any("did not parse" in entry.getMessage() for entry in logs) is warned
    assert not any("begins: " in line for line in said)


def test_a_small_run_tabulates_what_it_holds_and_reads_only_the_cases_of_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[str]()

    def noted(path: str) -> object:
        read.append(path)
        return real(path)

    real = folder_index.read_case_columns
    monkeypatch.setattr(folder_index, "read_case_columns", noted)
    table = said(tmp_path).partition("Benign")[2][:200]
    assert table and not read
    assert table in said(tmp_path)
    earlier, read[:] = sorted(read), []
    assert len(earlier) == 2
    assert "4 cases" in said(tmp_path, "epochs=2")
    assert sorted(read) == earlier
