"""scripts/sloppiness.py and scripts/slip_rates.py, and the page that shows what they print."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentsys.models.simulated.sloppiness import PARTS, sloppiness_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sloppiness.md"


def script(name: str, *args: str) -> str:
    command = [sys.executable, f"scripts/{name}.py", *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def rows(text: str) -> dict[str, list[str]]:
    """First cell -> the others, of every table line."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_the_page_says_of_each_slip_what_the_model_does() -> None:
    found = rows(PAGE.read_text("utf-8"))
    assert {part: found[part][0] for part in PARTS} == dict(PARTS)


def test_the_pages_table_has_a_row_per_defense_and_a_column_per_slip() -> None:
    found = rows(PAGE.read_text("utf-8"))
    assert found["defense"] == ["neat", *(part.replace("_", " ") for part in PARTS), "all, 0.3"]
    table = {name: row for name, row in found.items() if len(row) == len(PARTS) + 2 and name != "defense"}
    shipped = {path.stem for path in (ROOT / "configs/defense").glob("*.yaml")}
    assert table.keys() <= shipped
    # A preset may be younger than the table; these are what it is read for.
    assert {"none", "agentsys", "agentsys_strict", "drift", "melon", "tool_filter"} <= table.keys()


@pytest.mark.slow
def test_the_tables_command_prints_a_row_per_defense() -> None:
    command = ("--defenses", "none", "agentsys_no_validator", "--parts", "refusals", "fenced_json", "all")
    found = rows(script("sloppiness", *command, "--limit", "1"))
    assert found["defense"] == ["neat", "refusals", "fenced json", "all, 0.3"]
    assert found["none"][2] == "·"  # No reply of the undefended agent is read by a program.
    for name in ("none", "agentsys_no_validator"):
        assert re.fullmatch(r"\d+ / \d+ / \d+", found[name][0])


def _run(folder: Path, name: str, record: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record))


def _said(text: str | None, *calls: str, intent: Any = None) -> dict[str, Any]:
    args = {} if intent is None else {"intent": intent}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"function": c, "args": args} for c in calls],
    }


def test_rates_are_counted_from_recorded_runs(tmp_path: Path) -> None:
    acting = [
        _said("", "pay", "pay"),
        _said("Reading.", "read_mail", intent={"a": ["str"]}),
        _said('{"name": "pay", "arguments": {}}'),
        _said(""),
        _said("I'm sorry, but no."),
        _said("Paid."),
    ]
    judged = {"kind": "validator", "messages": [_said("False"), _said("True, as asked.")]}
    worked = {
        "kind": "worker",
        "messages": [_said('```json\n{"a": 1,}\n```'), _said('{"a": 1}'), _said("no")],
    }
    _run(tmp_path / "runs", "none", {"messages": acting, "agentsys": {"spans": [judged, worked]}})
    _run(tmp_path / "runs", "other", {"messages": [_said([{"type": "text", "content": "read_mail(1)"}])]})  # type: ignore[arg-type]
    _run(tmp_path / "runs", "broken", {"messages": None})
    printed = script("slip_rates", str(tmp_path / "runs"))
    counted = {line.split()[0]: line.split()[1:4:2] for line in printed.splitlines()[1:-1]}
    assert counted == {
        "several_calls": ["1", "2"],
        "trailing_commas": ["1", "2"],
        "fenced_json": ["1", "2"],
        "explained_verdicts": ["1", "2"],
        "type_aliases": ["1", "1"],
        "calls_as_text": ["2", "4"],
        "refusals": ["1", "7"],
        "empty_replies": ["1", "7"],
    }
    given = dict(pair.split(":") for pair in re.findall(r"\w+:[\d.]+", printed.splitlines()[-1]))
    assert (
        sloppiness_of("m", {part: float(rate) for part, rate in given.items()}).rates.keys() == counted.keys()
    )


def test_the_pages_rates_are_those_of_the_published_runs(published: Any) -> None:
    printed = script("slip_rates", str(published("agentdojo-gpt-4o-mini-2024-07-18")))
    found = {line.split()[0]: (line.split()[1], line.split()[3]) for line in printed.splitlines()[1:-1]}
    assert found["several_calls"] == ("688", "2421")
    assert {found[part][0] for part in ("calls_as_text", "refusals", "empty_replies")} == {"0"}
    assert "688 of 2421" in PAGE.read_text("utf-8")
