"""`agentsys report` on the command line."""

from __future__ import annotations

from pathlib import Path

from reported_cases import store_attacked
from typer.testing import CliRunner

from agentsys.cli import app


def run(*arguments: object) -> str:
    """What the command printed; the paper's figures, which take seconds, only where they are asked for."""
    figures = [] if "--figures" in arguments else ["--no-figures"]
    result = CliRunner().invoke(app, ["report", *map(str, arguments), *figures], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_report_is_written_beside_the_runs_and_named(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    assert f"Wrote {tmp_path / 'report.html'}: 1 trajectories" in run(tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_papers_figures_are_drawn_where_they_are_asked_for(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    run(tmp_path)
    assert "The paper's figures" not in (tmp_path / "report.html").read_text(encoding="utf-8")
    run(tmp_path, "--figures")
    assert "The paper's figures" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_out_and_max_cases_are_obeyed(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    store_attacked(tmp_path, user_task_id="user_task_1")
    out = tmp_path / "elsewhere" / "mine.html"
    assert "1 trajectories left out" in run(tmp_path, "--out", out, "--max-cases", 1)
    assert "1 of 2 trajectories are left out" in out.read_text(encoding="utf-8")


def test_a_half_written_record_is_named_in_the_report(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    broken = store_attacked(tmp_path, user_task_id="user_task_1")
    broken.write_text(broken.read_text()[:200])
    run(tmp_path)
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Files that could not be used" in report
    assert "not valid JSON, perhaps cut off" in report
