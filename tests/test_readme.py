"""The README begins with what a newcomer gets: a picture, and the very screen of the quickstart."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_TIME = re.compile(r"\d+:\d\d:\d\d")
_SO_FAR = re.compile(r"^\d+/\d+ cases, .*?cost \S+\n", re.MULTILINE | re.DOTALL)
"""A line of progress, once a minute: a slow machine prints some."""


def test_it_is_short_and_begins_with_the_picture_of_a_result() -> None:
    assert len(README.splitlines()) <= 120
    picture = re.search(r"!\[[^\]]*simulated[^\]]*\]\(([^)]+)\)", README)
    assert picture and (ROOT / picture[1]).is_file()
    first = README[: README.index("## Two commands")]
    assert "The agent is a script, no LLM" in first


@pytest.mark.slow
def test_its_screen_is_what_the_quickstart_prints_at_80_columns(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentsys", "run", "experiment=quickstart"],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "80", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    screen = _SO_FAR.sub("", done.stdout)
    shown = next(block for block in re.findall(r"^```\n(.*?)^```", README, re.M | re.S) if "ASR" in block)
    assert _TIME.sub("0:00:00", shown) == _TIME.sub("0:00:00", screen)
    assert max(map(len, screen.splitlines())) <= 80


def path_of_commands() -> list[tuple[str, str]]:
    """Each command of the path, and what it prints among other things."""
    block = README.split("## A path of twelve commands")[1].split("```\n")[1]
    found = []
    for line in block.splitlines():
        command, said = line.split("  # ", maxsplit=1)
        found.append((command.strip(), said.strip()))
    return found


@pytest.mark.slow
def test_the_path_of_twelve_commands_prints_what_stands_behind_each(tmp_path: Path) -> None:
    commands = path_of_commands()
    assert len(commands) == 12
    for command, said in commands:
        done = subprocess.run(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=tmp_path,
            env=os.environ | {"COLUMNS": "100", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert said in " ".join(done.stdout.split()), f"{command}: {done.stdout}"
