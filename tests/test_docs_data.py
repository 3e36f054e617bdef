"""docs/data.md is what the code has: columns in order, the record's fields, the kinds of errors."""

from __future__ import annotations

import re
from pathlib import Path

from agentsys.models.chat import ErrorKind
from agentsys.records.case_row import COLUMNS
from agentsys.records.published_facts import _DEFENSES
from agentsys.records.schema import CaseRecord

DOCS = Path(__file__).parents[1] / "docs"
DATA = (DOCS / "data.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    return DATA.split(f"## {title}\n")[1].split("\n## ")[0]


def named(text: str) -> list[str]:
    """The names in the first column of a table."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_the_columns_are_those_of_the_frame_in_its_order() -> None:
    assert tuple(named(section("Columns"))) == COLUMNS


def test_every_field_of_the_records_block_is_explained() -> None:
    assert sorted(named(section("The record's own block"))) == sorted(CaseRecord.model_fields)


def test_every_kind_of_error_is_explained() -> None:
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert {f"`{kind.value}`" for kind in ErrorKind} <= set(re.findall(r"`\w+`", page))
    source = Path(__file__).parents[1] / "agentsys" / "runs" / "run_case.py"
    raised = set(re.findall(r'_mark_(?:failed|broken)\(run, "(\w+)"', source.read_text(encoding="utf-8")))
    assert len(raised) > 3
    assert {f"`{kind}`" for kind in raised} <= set(re.findall(r"`\w+`", page))


def test_every_ending_that_tells_a_defense_is_named() -> None:
    assert {ending for ending in _DEFENSES if f"-{ending}" not in section("Whose run it is")} == set()
