"""perf/tokens.py: the command as its page gives it, on few cases."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None, reason="the tokenizer's data come with litellm"
)
def test_tokens_are_printed_per_role_beside_the_papers() -> None:
    command = [sys.executable, "perf/tokens.py", "--limit", "1", "--defenses", "agentsys", "tool_filter"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()[2:]}
    assert list(rows) == ["none", "agentsys", "tool_filter"]
    assert rows["none"][2] == "1.00" and rows["none"][5] == "4/4"
    assert float(rows["agentsys"][2]) > 1.0 > float(rows["tool_filter"][2])
    assert rows["agentsys"][3:5] == ["3.25", "3.96"]
    assert {"main", "worker"} <= set(rows["agentsys"])
