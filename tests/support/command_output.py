"""Commands: run in the test's own process for what they print, or in a clean one of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner

from agentsys.cli import app


def command_output(*words: object, columns: int | None = None) -> str:
    """Run `agentsys WORDS` to a good end, on a terminal of this width where one is given."""
    env = {"COLUMNS": str(columns)} if columns else None
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, env=env)
    assert done.exit_code == 0, done.output
    return done.stdout


def run_program(
    command: Sequence[str | Path], folder: Path, timeout: float = 120, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a folder, without what this Python and its environment are told."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    words = [str(part) for part in command]
    return subprocess.run(
        words, cwd=folder, env=clean | more, capture_output=True, text=True, timeout=timeout
    )
