"""scripts/rivals.py prints what docs/rivals.md shows, in the same columns, from stored runs."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from stored_cases import row

from agentsys.config_dir import shipped_config_dir

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/rivals.md").read_text(encoding="utf-8")


def script() -> Any:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("rivals_script", ROOT / "scripts" / "rivals.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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


@pytest.mark.parametrize(
    ("benign", "attacked", "utility", "asr", "risk"),
    [
        (80.0, [(60.0, 30.0), (40.0, 10.0), (20.0, 20.0)], 50.0, 15.0, (0.5 + 0.25 + 1.0) / 4),
        (50.0, [(50.0, 0.0)], 50.0, 0.0, 0.0),
        (70.0, [], 70.0, 0.0, 0.0),
        (50.0, [(0.0, 100.0)], 25.0, 50.0, math.nan),
    ],
)
def test_the_articles_averages_count_the_benign_run_as_one_more_attack(
    benign: float, attacked: list[tuple[float, float]], utility: float, asr: float, risk: float
) -> None:
    found = script().ParsingAverages.of(benign, attacked)
    assert (found.utility, found.asr) == (utility, asr)
    assert found.risk == pytest.approx(risk, nan_ok=True)


def test_the_averages_stand_in_columns_of_their_own_and_only_if_asked_for() -> None:
    cases = [
        row(attack="none", injection_task_id=None, injection_success=None, utility=True),
        row(attack="direct", utility=True, injection_success=False),
        row(attack="tool_knowledge", utility=False, injection_success=True),
    ]
    plain, more = script().table(cases), script().table(cases, parsing_averages=True)
    assert not any("with benign" in line for line in plain)
    assert rows("\n".join(more))[0][-3:] == list(script().AVERAGES)
    assert rows("\n".join(more))[2][-3:] == ["66.67", "33.33", "n/a"]
    assert [line.split(" | ")[:3] for line in plain] == [line.split(" | ")[:3] for line in more]


def test_the_page_has_a_row_for_each_defense_of_its_preset_and_no_error() -> None:
    preset = yaml.safe_load((shipped_config_dir() / "experiment/rivals.yaml").read_text(encoding="utf-8"))
    shown = {row[0].strip("`"): row for row in rows(PAGE) if row[-1] == "0"}
    assert set(shown) == set(preset["sweep"]["defense"])
    assert {row[-2] for row in shown.values()} == {"2976"}
