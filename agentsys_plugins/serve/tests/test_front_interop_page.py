"""Every piece of code in docs/interop.md and examples/guarded_agent runs as it stands there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from front_clients import served_desk
from interop_page import ANSWER, TOOLS, Clerk, at, block

from agentsys.defense.agentsys import AgentSys
from agentsys_plugins.serve.served_model import Server
from baselines.none import NoDefense


@pytest.fixture(params=[NoDefense, AgentSys])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with served_desk(Clerk(), request.param()) as running:
        yield running


def test_openais_sdk_runs_both_tools_and_prints_the_answer(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    exec(TOOLS, names)
    exec(at(server, block("import openai\n")), names)
    assert capsys.readouterr().out == f"{ANSWER}\n"


def test_guard_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bill.txt").write_text("It comes to 98.70.")
    code = block("agent = guard([read_file]")
    assert '"gpt-4o"' in code
    exec(code.replace('"gpt-4o"', '"simulated"'), {"__name__": "page"})
    [printed] = capsys.readouterr().out.splitlines()
    trace = printed.split()[-1]
    assert list((tmp_path / "results" / "served").rglob(f"{trace}/none/none.json"))


@pytest.mark.slow
def test_a_defense_in_agentdojos_own_runner_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = block("import load_defense")
    for shown, here in (
        ('load_model("gpt-4o")', 'load_model("simulated")'),
        ('Path("runs"), False)', 'Path("runs"), False, ["user_task_0"], ["injection_task_4"])'),
    ):
        assert shown in code
        code = code.replace(shown, here)
    exec(code, {"__name__": "page"})
    assert list(tmp_path.rglob("user_task_0/important_instructions/injection_task_4.json"))


EXAMPLE = Path(__file__).parents[3] / "examples" / "guarded_agent"


@pytest.mark.slow
def test_the_example_prints_what_its_readme_says(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "guarded_agent.py")], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert done.stdout.strip() in readme
    none, defended = done.stdout.strip().splitlines()
    assert "update_password" in none
    assert "update_password" not in defended
