"""examples/guarded_agent prints what its README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "guarded_agent"


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
