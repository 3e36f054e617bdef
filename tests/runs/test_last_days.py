"""A run says of each model that its vendor has switched off, or will soon, which takes its place."""

from __future__ import annotations

import importlib.util
import json
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentsys.base.config_catalog import list_config_names
from agentsys.cli import app
from agentsys.models.pricing import describe_last_days
from agentsys.runs.compose import compose

TABLE: dict[str, Any] = json.loads((files("agentsys.models") / "last_days.json").read_text(encoding="utf-8"))
DAY, SUCCESSOR = TABLE["models"]["gpt-4o-2024-05-13"]


def lines(today: str, *overrides: str) -> list[str]:
    settings = compose(["logdir=x", *overrides], [])
    configs = [config for one in settings for config in (one.model, *one.others.values())]
    return describe_last_days(configs, date.fromisoformat(today))


def test_a_model_past_its_end_is_named_with_day_source_and_successor() -> None:
    (line,) = lines("2026-11-28", "model=gpt-4o,gpt-5.6", "attack=none,direct")
    assert line == (
        f"Model 'gpt-4o': gpt-4o-2024-05-13 had its last day on {DAY}, by litellm's table ({TABLE['litellm']});"
        f" take model={SUCCESSOR} in its place."
    )


def test_nothing_is_said_long_before_or_of_another_server() -> None:
    assert lines("2026-09-01", "model=gpt-4o") == []
    assert "gpt-4o-2024-05-13 has its last day on" in lines("2026-10-01", "model=gpt-4o")[0]
    assert lines("2026-11-28", "model=gpt-4o", "model.base_url=http://127.0.0.1:9/v1") == []
    assert lines("2026-11-28", "model=simulated") == []


def test_a_model_of_a_role_is_named_too() -> None:
    assert len(lines("2026-12-28", "model=gpt-5.6", "model.roles.worker=gemini-2.5-flash")) == 1


def test_every_successor_is_a_preset_that_has_no_end_yet() -> None:
    successors = {successor for _, successor in TABLE["models"].values() if successor}
    assert len(successors) > 4 and successors <= set(list_config_names("model", []))
    for name in successors:
        assert lines(str(date(2026, 11, 28)), f"model={name}") == [], name


def test_a_dry_run_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    shown = CliRunner().invoke(
        app,
        [
            "run",
            "--dry-run",
            "model=gpt-4o",
            "limit_per_suite=1",
            "benchmark.suites=banking",
            f"logdir={tmp_path}",
        ],
    )
    assert shown.exit_code == 0, shown.output
    assert "its last day on 20" in " ".join(shown.output.split())


def test_the_table_is_litellms() -> None:
    try:
        installed = version("litellm")
    except PackageNotFoundError:
        pytest.skip("litellm is not installed")
    if installed != TABLE["litellm"]:
        pytest.skip(f"the table is of litellm {TABLE['litellm']}, {installed} is installed")
    path = Path(__file__).parents[2] / "scripts" / "last_days.py"
    spec = importlib.util.spec_from_file_location("last_days", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["last_days"] = module
    spec.loader.exec_module(module)
    assert module.collect_last_days(module.read_table()) == TABLE["models"]
