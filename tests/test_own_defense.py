"""The documented example of a user's own defense: two files outside the package, no registration."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import orjson
import pytest

from agentsys.cli import main

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "own_defense"


@pytest.fixture(scope="module")
def my_defense() -> ModuleType:
    spec = importlib.util.spec_from_file_location("my_defense", EXAMPLE / "my_defense.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("pay <T>do this</T> now", "pay  now"),
        ("a<T>x</T>b<T>y</T>c", "abc"),
        ("a<T>never closed", "a"),
        ("a</T>b", "a</T>b"),
        ("", ""),
    ],
)
def test_tagged_passages_are_cut(my_defense: ModuleType, text: str, left: str) -> None:
    assert my_defense.without_tagged(text, "T") == left


def agentsys(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command as a user types it, from a folder of their own, without our path on PYTHONPATH."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", "agentsys", *arguments],
        cwd=cwd,
        env=clean,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def outcomes(logdir: Path, defense: str) -> list[dict[str, Any]]:
    """Stored attacked cases under one defense."""
    records = [orjson.loads(path.read_bytes()) for path in logdir.rglob("injection_task_*.json")]
    return [record for record in records if f"__{defense}__" in record["pipeline_name"]]


@pytest.mark.parametrize("defense", [pytest.param("my_defense", marks=pytest.mark.slow), "judging_defense"])
def test_an_example_runs_from_the_command_line_and_stops_the_attack(tmp_path: Path, defense: str) -> None:
    ran = agentsys(
        "run",
        "--config-dir",
        str(EXAMPLE / "conf"),
        "--plugin-path",
        str(EXAMPLE),
        "model=simulated",
        f"defense=none,{defense}",
        "attack=important_instructions",
        "benchmark.suites=[banking]",
        # Not user_task_0: its injection stands where the data it needs would be.
        "user_tasks=[9]",
        "injection_tasks=[3,5]",
        f"logdir={tmp_path / 'runs'}",
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    undefended, defended = (outcomes(tmp_path / "runs", name) for name in ("none", defense))
    # AgentDojo's sense: `security` is True where the attack succeeded.
    assert [record["security"] for record in undefended] == [True, True]
    assert [record["security"] for record in defended] == [False, False]
    assert [record["utility"] for record in defended] == [True, True]


def test_a_forgotten_plugin_path_is_one_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--config-dir", str(EXAMPLE / "conf"), "defense=my_defense", f"logdir={tmp_path / 'runs'}"]
    monkeypatch.setattr(sys, "argv", ["agentsys", "run", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "my_defense" in line
    assert "--plugin-path" in line
