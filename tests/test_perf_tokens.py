"""perf/tokens.py: the command as its page gives it, on few cases."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("litellm") is None, reason="the tokenizer's data come with litellm"
    ),
]


def printed(*options: str) -> dict[str, list[str]]:
    """The rows that the command prints: defense -> its columns."""
    command = [sys.executable, "perf/tokens.py", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line.split()[0]: line.split() for line in done.stdout.splitlines()[2:]}


def test_tokens_are_printed_per_role_beside_the_papers() -> None:
    rows = printed("--limit", "1", "--defenses", "agentsys", "tool_filter")
    assert list(rows) == ["none", "agentsys", "tool_filter"]
    assert rows["none"][2] == "1.00" and rows["none"][5] == "4/4"
    assert float(rows["agentsys"][2]) > 1.0 > float(rows["tool_filter"][2])
    assert rows["agentsys"][3:5] == ["3.25", "3.96"]
    assert {"main", "worker"} <= set(rows["agentsys"])


def test_agentsys_takes_at_most_twice_the_undefended_tokens_and_lean_a_third_more() -> None:
    rows = printed("--defenses", "agentsys", "agentsys_lean")
    assert float(rows["agentsys"][2]) <= 2.0
    assert float(rows["agentsys_lean"][2]) <= 1.3
    assert {rows[name][5] for name in rows} == {"96/97"}  # Nothing is saved by not doing the task.
