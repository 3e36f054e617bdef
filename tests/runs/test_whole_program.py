"""A defense that runs a program of its own is refused where the benchmark leads the conversation."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from agentsys.errors import ConfigError
from agentsys.runs.session import prepare

MODULE = """
from baselines.none import NoDefense

class Program(NoDefense):
    name = "program"
    whole_program = True
"""


def planned(tmp_path: Path, mode: str) -> int:
    """Cases planned for such a defense in a mode."""
    (tmp_path / "own_program.py").write_text(MODULE)
    folder = tmp_path / "configs" / "defense"
    folder.mkdir(parents=True)
    yaml = """
    # A defense for this test
    _target_: own_program.Program
    """
    (folder / "program.yaml").write_text(textwrap.dedent(yaml))
    session = prepare(
        [
            "benchmark=asb",
            f"benchmark.mode={mode}",
            "defense=program",
            "model=simulated",
            "attack=none",
            f"logdir={tmp_path}",
        ],
        config_dirs=[tmp_path / "configs"],
        plugin_paths=[tmp_path],
    )
    return len(session.plan.todo)


@pytest.mark.parametrize("mode", ["faithful", "clean_plan", "hidden_tool"])
def test_it_is_refused_before_anything_runs_and_told_what_to_do(tmp_path: Path, mode: str) -> None:
    with pytest.raises(ConfigError, match=rf"'program'.*several turns of asb-{mode}.*benchmark\.mode=react"):
        planned(tmp_path, mode)


def test_it_runs_where_the_conversation_is_one_turn(tmp_path: Path) -> None:
    assert planned(tmp_path, "react") > 0
