"""`agentsys audit` on the command line: formats, --strict, slips."""

from __future__ import annotations

import json
from copy import copy
from pathlib import Path

import pytest
from agentdojo.task_suite.load_suites import get_suites
from click.testing import Result
from stored_examples import published, stored
from typer.testing import CliRunner

from agentsys.audit.static.static_rows import format_expectation, load_shipped_expectation
from agentsys.cli import app
from agentsys.errors import ConfigError

BANKING = "benchmark.suites=[banking]"


def audited(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])  # type: ignore[return-value]


def expectation_file(folder: Path, *, with_noop: bool) -> Path:
    expected = load_shipped_expectation("agentdojo", "v1.2.2")
    if not with_noop:
        del expected["suites"]["banking"]["user_tasks"]["user_task_8"]["noop_utility"]
    path = folder / "expected.json"
    path.write_text(format_expectation(expected), encoding="utf-8")
    return path


def test_strict_passes_on_the_installed_package() -> None:
    result = audited(BANKING, "--strict")
    assert result.exit_code == 0
    assert "All findings are as expected." in result.stderr
    assert "solved by doing nothing" in result.stdout


def test_a_changed_package_is_told_task_by_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a release would change it: one check that nothing satisfies any more, one task more."""
    suite = get_suites("v1.2.2")["banking"]
    monkeypatch.setattr(type(suite.user_tasks["user_task_8"]), "utility", lambda *_, **__: False)
    more = copy(suite.user_tasks["user_task_1"])
    more.ID = "user_task_99"
    monkeypatch.setitem(suite._user_tasks, more.ID, {(1, 0, 0): more})
    result = audited(BANKING, "--strict")
    assert result.exit_code == 1
    assert "banking user_task_8 noop_utility: expected true, found nothing remarkable" in result.stderr
    assert "banking user_task_8 own_ground_truth: expected nothing remarkable, found false" in result.stderr
    assert "banking user_task_99: is new" in result.stderr
    assert "Expected of" not in result.stderr


def test_an_expectation_of_another_release_says_so(tmp_path: Path) -> None:
    path = expectation_file(tmp_path, with_noop=False)
    path.write_text(path.read_text(encoding="utf-8").replace("0.1.35", "0.1.34"), encoding="utf-8")
    result = audited(BANKING, "--expected", str(path))
    assert "Expected of agentdojo 0.1.34; installed is agentdojo 0.1." in result.stderr


def test_strict_fails_with_a_line_per_difference_when_a_finding_moved(tmp_path: Path) -> None:
    path = expectation_file(tmp_path, with_noop=False)
    result = audited(BANKING, "--strict", "--expected", str(path))
    assert result.exit_code == 1
    assert "banking user_task_8 noop_utility: expected nothing remarkable, found true" in result.stderr
    assert "Findings that are not as expected: 1." in result.stderr


def test_findings_that_were_written_are_the_ones_expected_next_time(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mine.json"
    assert audited(BANKING, "--write-expected", str(path), "--out", str(tmp_path / "a")).exit_code == 0
    assert audited(BANKING, "--expected", str(path), "--out", str(tmp_path / "b")).exit_code == 0


def test_json_goes_to_standard_output_alone() -> None:
    result = audited(BANKING, "--format", "json")
    data = json.loads(result.stdout)
    assert data["version"] == "v1.2.2"
    assert len(data["suites"][0]["user_tasks"]) == 16


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["model=simulated"], "no place in an audit"),
        (["benchmark.version=v9"], "Unknown version of agentdojo 'v9'"),
        (["benchmark.version=v1,v1.1"], "one benchmark in one version"),
        (["runs=/no/such/folder"], "no such folder"),
        (["--expected", "/no/such/file"], "--write-expected"),
        (["benchmark.injection=exact", "--strict"], "No expectation for agentdojo.exact"),
    ],
)
def test_a_slip_is_one_line_before_anything_is_worked_out(arguments: list[str], says: str) -> None:
    result = audited(*arguments)
    assert isinstance(result.exception, ConfigError)
    assert says.replace(".exact", "+exact") in str(result.exception)


def test_stored_runs_are_audited_without_the_checks_unless_these_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path / "runs", published())
    with monkeypatch.context() as no_checks:
        no_checks.setattr(
            "agentsys.audit.static.static_audit.audit_benchmark", lambda _: pytest.fail("audited")
        )
        alone = json.loads(audited(f"runs={tmp_path / 'runs'}", "--format", "json").stdout)
    assert (alone["version"], alone["suites"], alone["runs"]["benign"]) == ("v1.2.2", [], 1)
    assert alone["sentences"][0].startswith("The stored runs hold")
    both = audited(BANKING, f"runs={tmp_path / 'runs'}", "--strict", "--format", "json")
    found = json.loads(both.stdout)
    assert both.exit_code == 0
    assert [suite["suite"] for suite in found["suites"]] == ["banking"]
    assert found["runs"] == alone["runs"]
