"""Differences between published runs are those of the table in docs/statistics.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from agentsys.analysis.statistics.case_outcomes import Pair, pair_cases
from agentsys.analysis.statistics.difference_test import compute_difference_interval, compute_p_value
from agentsys.analysis.statistics.differences import Difference, SignDraws, compare_pairs
from agentsys.analysis.statistics.outcome_grid import Side
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.comparison_document import write_p
from agentsys.records.case_reader import read_cases
from agentsys.records.case_row import CaseRow

_DOCS = Path(__file__).parents[2] / "docs" / "statistics.md"
_MINI, _FILTER = "agentdojo-gpt-4o-mini-2024-07-18", "agentdojo-gpt-4o-2024-05-13-tool_filter"
_NONE = "agentdyn-gpt-4o-mini-2024-07-18"
_RUNS = {
    "gpt-4o-mini, stopped": (_MINI, None),
    "gpt-4o with Tool Filter, stopped": (_FILTER, None),
    "Progent, stopped": (f"{_NONE}-progent", None),
    "DRIFT, stopped": (f"{_NONE}-drift", None),
    "gpt-4o-mini, gpt-4o with Tool Filter": (_MINI, _FILTER),
    "none, DRIFT": (_NONE, f"{_NONE}-drift"),
    "Progent, DRIFT": (f"{_NONE}-progent", f"{_NONE}-drift"),
}
"""First cell of the table -> the two runs; without a second one, the first with every attack stopped."""


class _Line(NamedTuple):
    runs: str
    metric: str
    rates: str
    p: str
    interval: str


def _documented() -> Iterator[_Line]:
    section = _DOCS.read_text(encoding="utf-8").split("### On published runs")[1].split("\n## ")[0]
    runs = ""
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if (len(cells) == 5 and "," in cells[0]) or cells[0] == "the same":
            runs = runs if cells[0] == "the same" else cells[0]
            yield _Line(runs, *cells[1:])


def _told(line: _Line, found: Difference) -> _Line:
    interval = compute_difference_interval(found)
    return line._replace(
        rates=f"{100 * found.rate_before:.2f}, {100 * found.rate_after:.2f}",
        p=write_p(compute_p_value(found)),
        interval=f"{100 * interval.low:+.1f} to {100 * interval.high:+.1f}",
    )


def _pairs(first: list[CaseRow], second: list[CaseRow], attack: str) -> tuple[Pair, ...]:
    before, after = ([case for case in side if case.attack == attack] for side in (first, second))
    return pair_cases(before, after).pairs


@pytest.fixture(scope="module")
def read(published: Callable[[str], Path]) -> Callable[[str], list[CaseRow]]:
    kept: dict[str, list[CaseRow]] = {}

    def cases(name: str) -> list[CaseRow]:
        if name not in kept:
            found = read_cases([published(name)]).cases
            kept[name] = [case for case in found if not case.is_injection_task_alone]
        return kept[name]

    return cases


def test_the_table_names_runs_that_are_here() -> None:
    assert {line.runs for line in _documented()} == set(_RUNS)
    assert len(list(_documented())) == 9


@pytest.mark.slow
@pytest.mark.parametrize("line", _documented(), ids=lambda line: f"{line.runs}: {line.metric}")
def test_published_runs_differ_as_documented(line: _Line, read: Callable[[str], list[CaseRow]]) -> None:
    first, second = _RUNS[line.runs]
    baseline = read(first)
    other = read(second) if second else [replace(case, injection_success=False) for case in baseline]
    attack = "none" if line.metric == "benign utility" else "important_instructions"
    side = Side.INJECTED if line.metric == "targeted ASR" else Side.SOLVED
    found = compare_pairs(_pairs(baseline, other, attack), side, SignDraws())[OVERALL]
    assert _told(line, found) == line
