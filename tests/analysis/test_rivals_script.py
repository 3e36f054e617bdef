"""scripts/rivals.py prints what docs/rivals.md shows, in the same columns, from stored runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from agentsys.config_dir import shipped_config_dir

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/rivals.md").read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of the lines of tables."""
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "|" in line
    ]


def test_the_script_prints_a_row_per_defense_with_what_it_takes_beside_none(
    run_cases: Any, tmp_path: Path
) -> None:
    run_cases(
        [
            "model=simulated",
            "defense=none,firewall_sanitizer",
            "attack=none,important_instructions",
            "benchmark.suites=[banking]",
            "user_tasks=[1]",
            "injection_tasks=[1]",
        ],
        tmp_path,
    )
    done = subprocess.run(
        [sys.executable, "scripts/rivals.py", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    header, _, none, firewall = rows(done.stdout)
    assert "simulated" in done.stdout.splitlines()[0]
    assert header == ["Defense", "Benign", "important_instructions", *header[3:]]
    assert none[0] == "`none`" and none[2].endswith("/ 100") and none[3:5] == ["1.0x", "+0.0"]
    assert firewall[2].endswith("/ 0") and firewall[4] == "+1.0" and firewall[-2:] == ["2", "0"]


def test_the_page_has_a_row_for_each_defense_of_its_preset_and_no_error() -> None:
    preset = yaml.safe_load((shipped_config_dir() / "experiment/rivals.yaml").read_text(encoding="utf-8"))
    shown = {row[0].strip("`"): row for row in rows(PAGE) if row[-1] == "0"}
    assert set(shown) == set(preset["sweep"]["defense"])
    assert {row[-2] for row in shown.values()} == {"80"}
