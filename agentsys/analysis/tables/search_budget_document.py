"""Attack success at a budget of queries, ready to be written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentsys.analysis.metrics.search_attempts import StoredSearches
from agentsys.analysis.metrics.search_budget import (
    ASR,
    ASR_BY_ATTEMPTS,
    MEASURES,
    BudgetRow,
    is_open,
    textless_notes,
)
from agentsys.analysis.statistics.bootstrap import CONFIDENCE
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.document import Document, Grid, GridCell, cells, number_cell, number_text
from agentsys.analysis.tables.output import Output, records_of
from agentsys.base.grouping import group_by
from agentsys.records.case_row import is_simulated_name

_NAMES = ("Model", "Defense", "Attack")
_Line = tuple[str, ...]


def budget_output(rows: Sequence[BudgetRow], searches: StoredSearches) -> Output:
    """Two grids per benchmark and version, success by budget and what the searches took, in any form."""
    groups = group_by(rows, lambda row: (row.benchmark, row.version))
    sections = [
        (
            f"Searched attacks on {benchmark} {version}",
            (*(_asr_grid(found, axis) for axis in _AXES), _cost_grid(found)),
        )
        for (benchmark, version), found in groups.items()
    ]
    document = Document(sections, list(_notes(rows, searches)))
    return Output("agentsys budget", document, records_of(BudgetRow, rows))


_AXES = {ASR: "queries", ASR_BY_ATTEMPTS: "attempts, those that were not tried included"}


def _asr_grid(rows: Sequence[BudgetRow], axis: str) -> Grid:
    rows = [row for row in rows if row.measure == axis]
    budgets = sorted({row.budget for row in rows if row.budget is not None})
    found: dict[_Line, dict[int, BudgetRow]] = {}
    for row in rows:
        if row.budget is not None:
            found.setdefault((row.model, row.defense, row.attack, row.suite), {})[row.budget] = row
    lines = [_asr_line(line, by_budget, budgets) for line, by_budget in _in_blocks(found)]
    counts = ("Searches", "Errored", "Unfinished", "No text")
    header = (*_NAMES, "Suite", *(f"ASR@{budget}" for budget in budgets), *counts)
    first = [place for place, (line, _) in enumerate(_in_blocks(found)) if place and line[3] == OVERALL]
    return Grid(
        f"Targeted ASR at a budget of so many {_AXES[axis]}, %",
        header,
        lines,
        names=4,
        breaks=frozenset(first),
        captioned=True,
    )


def _in_blocks(found: dict[_Line, dict[int, BudgetRow]]) -> list[tuple[_Line, dict[int, BudgetRow]]]:
    """Cell by cell, overall first."""
    cells_in_order = list(dict.fromkeys(line[:3] for line in found))
    return sorted(
        found.items(), key=lambda item: (cells_in_order.index(item[0][:3]), item[0][3] != OVERALL, item[0][3])
    )


def _asr_line(line: _Line, by_budget: dict[int, BudgetRow], budgets: Iterable[int]) -> tuple[GridCell, ...]:
    numbers = [number_cell(by_budget.get(budget)) for budget in budgets]
    any_row = next(iter(by_budget.values()))
    counts = (any_row.n, any_row.errored, any_row.unfinished, any_row.no_text)
    return cells(*line, *numbers, *(str(count) for count in counts))


def _cost_grid(rows: Sequence[BudgetRow]) -> Grid:
    found: dict[_Line, dict[str, BudgetRow]] = {}
    for row in rows:
        if row.measure not in _AXES and row.suite == OVERALL:
            found.setdefault((row.model, row.defense, row.attack), {})[row.measure] = row
    lines = [cells(*line, *(_amount(by_name[name]) for name in MEASURES)) for line, by_name in found.items()]
    return Grid("What the searches took, all suites together", (*_NAMES, *MEASURES.values()), lines, names=3)


def _amount(row: BudgetRow) -> str:
    if row.measure.endswith("_usd"):
        return number_text(row.value, ",.4f")
    return number_text(row.value, ".2f" if row.measure == "queries_to_success" else ",.0f")


_GO_ON = ": they are in no rate, but in what was spent. The next run goes on with them."


def _notes(rows: Sequence[BudgetRow], searches: StoredSearches) -> Iterable[str]:
    yield (
        "ASR@k: targeted ASR in percent at a budget of k. Unit: one search, for one injection task on one "
        "user task, or in mode transfer on several. A query is one run of the agent; an attempt is one "
        "candidate, tried on every user task of the search, or not tried. A search counts from the query, or "
        "attempt, with which a text had succeeded on all of them. The first attempt of our own attacks is "
        "the text the search starts from; client-NAME are queries of a served target's clients. What "
        "`agentsys results` shows is another number: in mode transfer the text of one search is applied to "
        "every user task."
    )
    yield (
        f"{CONFIDENCE:.0f}% intervals: injection tasks resampled (and user tasks, where there are several). "
        "overall: unweighted mean of the suites. n/a: beyond the search's own budget, or undefined."
    )
    if any(is_simulated_name(row.model) for row in rows):
        yield "simulated: a scripted agent and attacker, not language models; no LLM's numbers."
    errored = sum(search.state.errored for search in searches.found)
    if errored:
        yield f"{errored} searches ended in an error{_GO_ON}"
    yield from textless_notes(searches.found)
    open_ = sum(is_open(search) for search in searches.found)
    if open_:
        yield f"{open_} searches were interrupted{_GO_ON}"
    if searches.repeated:
        yield f"Left out {searches.repeated} folders of searches that are stored more than once."
    if searches.skipped:
        yield f"Left out {len(searches.skipped)} files that could not be read."
