"""What `.ci/run` does with `make`: fast tests always, slow tests in the time that is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".ci" / "run"


def ci(folder: Path, make: str, budget: int = 600) -> tuple[int, list[str], str]:
    """Exit status, targets made, and output, where `make` is this shell text (`$1`: the target)."""
    program = folder / "make"
    program.write_text(f'#!/bin/sh\necho "$1" >> {folder}/made\n{make}\n')
    program.chmod(0o755)
    done = subprocess.run(
        [str(SCRIPT)],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "CI_BUDGET_S": str(budget)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, (folder / "made").read_text().split(), done.stdout


def test_fast_tests_come_first_then_the_slow_ones_and_what_they_print_is_seen(tmp_path: Path) -> None:
    assert ci(tmp_path, 'echo "7 passed in 1.0s"') == (0, ["test", "test-slow"], "7 passed in 1.0s\n" * 2)


def test_failing_fast_tests_fail_at_once(tmp_path: Path) -> None:
    assert ci(tmp_path, "exit 2")[:2] == (2, ["test"])


def test_failing_slow_tests_fail_too(tmp_path: Path) -> None:
    assert ci(tmp_path, '[ "$1" = test ]')[:2] == (1, ["test", "test-slow"])


def test_without_time_left_the_slow_tests_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    status, made, output = ci(tmp_path, "true", budget=10)
    assert (status, made) == (0, ["test"])
    assert "left out" in output


def test_slow_tests_that_run_out_of_time_are_told_apart_from_failed_ones(tmp_path: Path) -> None:
    status, _, output = ci(tmp_path, 'if [ "$1" = test-slow ]; then exit 124; fi')
    assert status == 0
    assert "out of time" in output
