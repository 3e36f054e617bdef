"""`agentsys export` where `inspect_ai` is not installed: one line, whatever the test machine has."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_cases import case_of, store_own
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.errors import ConfigError, Unavailable


def test_without_the_extra_its_name_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store_own(tmp_path, case_of())
    monkeypatch.setattr(
        "agentsys_plugins.inspect_logs.export_command.find_missing_packages", lambda packages: list(packages)
    )
    error = CliRunner().invoke(app, ["export", "inspect", str(tmp_path)]).exception
    assert isinstance(error, Unavailable)
    assert "agentsys-bench[inspect]" in str(error)


def test_an_unknown_program_is_told() -> None:
    error = CliRunner().invoke(app, ["export", "inspekt", "x"]).exception
    assert isinstance(error, ConfigError)
    assert "Did you mean inspect?" in str(error)
