"""`agentsys report` on the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from reported_cases import store_attacked
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError


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


def test_without_figures_nothing_heavy_is_imported(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    script = (
        "import sys; from agentsys.cli import app\n"
        f"try: app(['report', {str(tmp_path)!r}, '--no-figures'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'agentdojo', 'openai', 'hydra', 'matplotlib', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_out_and_max_cases_are_obeyed(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    store_attacked(tmp_path, user_task_id="user_task_1")
    out = tmp_path / "elsewhere" / "mine.html"
    assert "1 trajectories left out" in run(tmp_path, "--out", out, "--max-cases", 1)
    assert "1 of 2 trajectories are left out" in out.read_text(encoding="utf-8")


def test_a_second_report_replaces_the_first_and_is_no_case(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    run(tmp_path)
    store_attacked(tmp_path, user_task_id="user_task_1")
    assert "2 trajectories" in run(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["report.html"]


def test_a_half_written_record_is_named_in_the_report(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    broken = store_attacked(tmp_path, user_task_id="user_task_1")
    broken.write_text(broken.read_text()[:200])
    run(tmp_path)
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Files that could not be used" in report
    assert "not valid JSON, perhaps cut off" in report


def test_a_folder_as_out_is_a_slip_with_the_mend(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    with pytest.raises(ConfigError, match=r"is a folder\. Name a file: --out .*report\.html"):
        run(tmp_path, "--out", tmp_path)


def test_an_empty_folder_is_a_slip(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No stored cases"):
        run(tmp_path)
