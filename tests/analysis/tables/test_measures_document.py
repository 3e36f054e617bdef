"""`agentsys results --by cost`: one line per cell, nothing undefined shown as a number, hostile names inert."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import pytest

from agentsys.analysis.metrics.case_measures import MeasureRow
from agentsys.analysis.tables.cost_documents import TITLES, make_measures_output
from agentsys.analysis.tables.table_document import OutputFormat
from agentsys.cli.cli_output import render_output


def row(measure: str, value: float, suite: str = "pooled", defense: str = "agentsys") -> MeasureRow:
    return MeasureRow(
        "agentdojo",
        "v1.2.2",
        "m (simulated)",
        defense,
        "direct",
        suite,
        measure,
        "",
        value,
        math.nan,
        math.nan,
        3,
    )


def test_a_cell_is_one_line_with_its_pooled_values() -> None:
    rows = [
        row("untrusted_tokens", 59.44),
        row("untrusted_tokens", 1.0, suite="slack"),
        row("tokens_per_case:main", 24456),
    ]
    grids = make_measures_output(rows).document.sections[0][1]
    first, roles = grids
    assert len(first.rows) == 1
    shown = dict(zip(first.header[4:], (cell.text for cell in first.rows[0][4:]), strict=True))
    assert first.rows[0][0].text == "m (simulated)"
    assert shown["Untrusted tokens"] == "59.4"
    assert roles.header[-1] == "main"
    assert roles.rows[0][-1].text == "24,456"


@pytest.mark.parametrize("cached", [0.0, 5.0])
def test_uncached_tokens_have_a_column_where_a_provider_read_some_from_its_cache(cached: float) -> None:
    rows = [row("uncached_tokens", 7.0), row("cached_tokens_per_case:main", cached)]
    header = make_measures_output(rows).document.sections[0][1][0].header
    assert ("Uncached tokens" in header) is (cached > 0)


@pytest.mark.parametrize("value", [math.nan, None])
def test_what_is_undefined_or_absent_is_no_number(value: float | None) -> None:
    rows = [row("exposure_rounds", 1.0)] + ([row("untrusted_tokens", value)] if value is not None else [])
    grid = make_measures_output(rows).document.sections[0][1][0]
    assert grid.rows[0][4 + list(TITLES).index("untrusted_tokens")].text == "n/a"


def test_csv_has_every_row_and_no_formula() -> None:
    rows = [row("untrusted_tokens", 2.0, defense='=cmd|"x"'), row("exposure_rounds", math.nan, suite="slack")]
    first, second = csv.DictReader(
        io.StringIO(render_output(make_measures_output(rows), OutputFormat.CSV).decode())
    )
    assert not first["defense"].startswith("=")
    assert (second["suite"], second["value"], second["n"]) == ("slack", "", "3")


def test_a_guards_percent_is_a_fraction_in_data_and_says_so() -> None:
    rate = replace(row("guard_fnr:g", 12.5), unit="percent", ci_low=9.6, ci_high=15.2)
    written = render_output(make_measures_output([rate, row("seconds", 2.0)]), OutputFormat.CSV).decode()
    first, second = csv.DictReader(io.StringIO(written))
    assert [first[name] for name in ("unit", "value", "ci_low", "ci_high")] == [
        "fraction",
        "0.125",
        "0.096",
        "0.152",
    ]
    assert second["value"] == "2.0"


def test_guards_and_gates_have_tables_of_their_own_where_there_are_some() -> None:
    rate = replace(row("guard_fnr:g", 12.5), n=1227, ci_low=9.6, ci_high=15.2)
    calls = [row(f"gate_calls:attriguard/denied: absent/tool_{n}", 10 - n) for n in range(7)]
    sections = make_measures_output([row("seconds", 1.0), rate, *calls]).document.sections
    (_, _), (_, (guards,)), (_, (gates,)) = sections
    assert [cell.in_one for cell in guards.rows[0]][4:6] == ["g", "12.5 10-15 (1,227)"]
    shown = [cell.in_one for cell in gates.rows[0]][4:]
    assert shown[:3] == ["attriguard", "denied: absent", "49"]
    assert shown[3] == "tool_0 10, tool_1 9, tool_2 8, tool_3 7, tool_4 6 and 2 more"
    assert len(make_measures_output([row("seconds", 1.0)]).document.sections) == 1
