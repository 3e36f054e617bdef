"""One case, from the command to its table, passes few files and functions (docs/architecture.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MOST_FILES, MOST_FUNCTIONS = 90, 650


@pytest.mark.slow
def test_one_case_passes_few_files_and_functions(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "perf/trace_case.py"
    told = subprocess.run(
        [sys.executable, script, tmp_path / "runs"], capture_output=True, text=True, check=True
    )
    files, functions = re.findall(r"^(\d+) files, (\d+) functions$", told.stdout, re.MULTILINE)[0]
    assert (int(files) <= MOST_FILES, int(functions) <= MOST_FUNCTIONS) == (True, True), told.stdout
