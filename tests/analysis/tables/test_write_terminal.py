"""Grids in a terminal: suites side by side or below each other, and links."""

from __future__ import annotations

import io
import re

import pytest
from asb_cases import AGENTS, benign, grid
from rich.console import Console
from stored_cases import row

from agentsys.analysis.metrics.comparison import compare_sides
from agentsys.analysis.metrics.rates import METRIC_TITLES
from agentsys.analysis.tables.comparison_document import compare_output
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.results_document import make_results_document
from agentsys.analysis.tables.table_document import Document, Grid, GridCell, write_markdown_document
from agentsys.analysis.tables.write_terminal import arrange_for_terminal, write_terminal_text
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow

NAMES = [f"{letter}_with_a_long_name_agent" for letter in AGENTS]


def ten_agents(defense: str = "none") -> list[CaseRow]:
    return [*grid(dict.fromkeys("abc", 4), defense=defense), *(benign(a, defense=defense) for a in AGENTS)]


def found(cases: list[CaseRow]) -> ResultFrame:
    return ResultFrame(LoadedCases(tuple(cases)))


def printed(cases: list[CaseRow], width: int) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(
        arrange_for_terminal(make_results_document(found(cases))), crop=False
    )
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


def test_documents_have_a_row_per_suite_where_there_are_many() -> None:
    ((_, grids),) = make_results_document(found(ten_agents())).sections
    assert grids[-1].header == ("Defense", "Attack", "Suite", *METRIC_TITLES.values())
    assert [cells[2].text for cells in grids[-1].rows] == [*AGENTS, "pooled"]
    few = [case for case in ten_agents() if case.suite in "abc"]
    assert "| Defense | Attack | Metric | a | b | c | pooled |" in write_markdown_document(
        make_results_document(found(few))
    )


def test_a_comparison_of_many_suites_has_a_row_for_each() -> None:
    compared = compare_sides([*ten_agents(), *ten_agents("drift")], draws=50)
    ((_, grids),) = compare_output(compared, 0).document.sections
    assert grids[-1].header == ("By suite, points", "Suite", *list(METRIC_TITLES.values())[:3])
    assert [cells[1].text for cells in grids[-1].rows] == [*AGENTS, "pooled"] * 2


_LINK = re.compile(r"\x1b\]8;([^;]*);([^\x1b]*)\x1b\\(.*?)\x1b\]8;;\x1b\\", re.DOTALL)


def written(cell: GridCell, *, terminal: bool) -> str:
    grid = Grid("flips", ("Case", "n"), [(cell, GridCell("1"))], names=1)
    text = io.StringIO()
    console = Console(
        file=text, width=80, force_terminal=terminal, color_system="standard" if terminal else None
    )
    console.print(arrange_for_terminal(Document([("h", [grid])], ())))
    return text.getvalue()


def test_a_linked_cell_is_a_hyperlink_in_a_terminal_and_plain_text_in_a_file() -> None:
    cell = GridCell("abcdefghij", link="file:///runs/report.html#case=abcdefghij")
    ((_, address, shown),) = _LINK.findall(written(cell, terminal=True))
    assert address == cell.link
    assert "abcdefghij" in shown
    assert "\x1b" not in written(cell, terminal=False)
    assert "abcdefghij" in written(cell, terminal=False)


def test_a_name_with_a_link_of_its_own_in_it_makes_no_link() -> None:
    hostile = "\x1b]8;;http://attacker.example\x1b\\click\x1b]8;;\x1b\\"
    for terminal in (True, False):
        found = written(GridCell(hostile), terminal=terminal)
        assert "\x1b]8;" not in found
        assert "click" in found


def test_a_file_has_no_colours_even_where_they_are_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in write_terminal_text(Document([], ["a note"], title="a title"), 80)
