"""The README begins with what a newcomer gets: a picture, and the very screen of the quickstart."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_TIME = re.compile(r"\d+:\d\d:\d\d")


def test_it_is_short_and_begins_with_the_picture_of_a_result() -> None:
    assert len(README.splitlines()) <= 120
    picture = re.search(r"!\[[^\]]*simulated[^\]]*\]\(([^)]+)\)", README)
    assert picture and (ROOT / picture[1]).is_file()
    first = README[: README.index("## Two commands")]
    assert "agentsys, phrase_detector: ASR 50.0 -> 0.0" in first and "simulated" in first


@pytest.mark.slow
def test_its_screen_is_what_the_quickstart_prints(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "agentsys", "run", "experiment=quickstart"],
        cwd=tmp_path,
        env=os.environ | {"COLUMNS": "100", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    shown = next(block for block in re.findall(r"^```\n(.*?)^```", README, re.M | re.S) if "ASR" in block)
    assert _TIME.sub("0:00:00", shown) == _TIME.sub("0:00:00", done.stdout)
