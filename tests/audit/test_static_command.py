"""`agentsys audit` on the command line: formats, stored runs, slips."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from stored_examples import published, stored
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError

BANKING = "benchmark.suites=[banking]"


def audited(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["audit", *arguments])  # type: ignore[return-value]


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
    ],
)
def test_a_slip_is_one_line_before_anything_is_worked_out(arguments: list[str], says: str) -> None:
    result = audited(*arguments)
    assert isinstance(result.exception, ConfigError)
    assert says in str(result.exception)


def test_stored_runs_are_audited_without_the_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(tmp_path / "runs", published())
    monkeypatch.setattr(
        "agentsys.audit.static.static_audit.audit_benchmark", lambda _: pytest.fail("audited")
    )
    found = json.loads(audited(f"runs={tmp_path / 'runs'}", "--format", "json").stdout)
    assert (found["version"], found["suites"], found["runs"]["benign"]) == ("v1.2.2", [], 1)
    assert found["sentences"][0].startswith("The stored runs hold")
