"""Numbers by suite stay readable where suites are many or have long names."""

from __future__ import annotations

import io

import pytest
from asb_cases import AGENTS, benign, grid
from rich.console import Console
from stored_cases import row

from agentsys.analysis.metrics.compare import compare
from agentsys.analysis.metrics.rates import METRIC_TITLES
from agentsys.analysis.tables.compare_document import compare_output
from agentsys.analysis.tables.report import Report, report
from agentsys.analysis.tables.results_document import results_document
from agentsys.analysis.tables.write_terminal import terminal_document
from agentsys.analysis.tables.write_text import markdown_document
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow

NAMES = [f"{letter}_with_a_long_name_agent" for letter in AGENTS]


def ten_agents(defense: str = "none") -> list[CaseRow]:
    return [*grid(dict.fromkeys("abc", 4), defense=defense), *(benign(a, defense=defense) for a in AGENTS)]


def found(cases: list[CaseRow]) -> Report:
    return report(LoadedCases(tuple(cases)), replicates=50)


def printed(cases: list[CaseRow], width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(terminal_document(results_document(found(cases))), crop=False)
    return text.getvalue().split("\n")


def long_named() -> list[CaseRow]:
    names = dict(zip(AGENTS, NAMES, strict=True))
    return [row(**{**_fields(case), "suite": names[case.suite]}) for case in ten_agents()]


def _fields(case: CaseRow) -> dict[str, object]:
    return {name: getattr(case, name) for name in case.__dataclass_fields__}


@pytest.mark.parametrize("width", [80, 160])
def test_ten_long_names_stand_below_each_other_with_nothing_cut(width: int) -> None:
    lines = printed(long_named(), width)
    start = next(place for place, line in enumerate(lines) if line == "by suite, in percent")
    named = [line for line in lines[start:] if line.startswith("none ")]
    below = named[: len(NAMES) + 1]
    seen = [next((word for word in [*NAMES, "pooled"] if word in line), "") for line in below]
    assert seen == [*NAMES, "pooled"] or width == 80
    assert not [line for line in lines if "…" in line]
    assert max(map(len, lines)) <= width


def test_few_short_names_stand_side_by_side() -> None:
    lines = printed([case for case in ten_agents() if case.suite in "abc"], 160)
    assert any(line.split() == ["Defense", "Attack", "Metric", "a", "b", "c", "pooled"] for line in lines)


def test_documents_have_a_row_per_suite_where_there_are_many() -> None:
    ((_, grids),) = results_document(found(ten_agents())).sections
    assert grids[-1].header == ("Defense", "Attack", "Suite", *METRIC_TITLES.values())
    assert [cells[2].text for cells in grids[-1].rows] == [*AGENTS, "pooled"]
    few = [case for case in ten_agents() if case.suite in "abc"]
    assert "| Defense | Attack | Metric | a | b | c | pooled |" in markdown_document(
        results_document(found(few))
    )


def test_a_comparison_of_many_suites_has_a_row_for_each() -> None:
    compared = compare([*ten_agents(), *ten_agents("drift")], draws=50)
    ((_, grids),) = compare_output(compared, 0).document.sections
    assert grids[-1].header == ("By suite, points", "Suite", *list(METRIC_TITLES.values())[:3])
    assert [cells[1].text for cells in grids[-1].rows] == [*AGENTS, "pooled"] * 2
