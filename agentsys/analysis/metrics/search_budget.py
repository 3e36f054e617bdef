"""`budget_rows`: attack success as a function of the queries an attacker may make, and what they cost.

Unit: one search (one injection task, on one user task or on several, under one model, defense, attack and
epoch). At a budget of k queries it counts as a success if a text had succeeded after k runs of the agent; at
one of k attempts, if one of its first k candidates did, those that were not tried included. Overall is the
unweighted mean of the suites.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentsys.analysis.metrics.rates import CellRow, MeasuredCell, Number, number_of
from agentsys.analysis.metrics.search_attempts import Search, SearchSpending
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Side, levels
from agentsys.analysis.statistics.outcome_grid import tally
from agentsys.base.grouping import group_by
from agentsys.records.case_row import CaseRow

ASR = "asr_at_budget"
"""The budget counts queries: runs of the agent."""
ASR_BY_ATTEMPTS = "asr_at_attempts"
"""The budget counts attempts: candidates, those that were not tried included."""
MEASURES = {
    "queries_to_success": "Mean queries to success",
    "queries": "Queries",
    "attempts": "Attempts",
    "refused": "Refused",
    "by_start_text": "Start text sufficed",
    "attacker_tokens": "Attacker tokens",
    "target_tokens": "Target tokens",
    "attacker_cost_usd": "Attacker USD",
    "target_cost_usd": "Target USD",
}
"""What is told of the searches of a cell besides `ASR`, a mean over successes and then sums -> heading."""


@dataclass(frozen=True, slots=True)
class BudgetRow(CellRow):
    """One number, of a suite or overall (for `MEASURES`: all searches together)."""

    measure: str
    """`asr_at_budget` or `asr_at_attempts` in percent, or one of `MEASURES`."""
    budget: int | None
    """Queries or attempts allowed; None for `MEASURES`."""
    value: float
    """nan where undefined or unknown."""
    ci_low: float
    """95% interval; nan where there is none."""
    ci_high: float
    n: int
    """Searches it rests on."""
    errored: int
    """Searches ended by an error and not successful: in no rate."""
    unfinished: int
    """Searches that were interrupted before a success: in no rate."""
    no_text: int
    """Searches whose attacker gave no text: in no rate."""


def budget_rows(
    searches: Iterable[Search], budgets: Sequence[int] | None = None, *, replicates: int = 2000
) -> list[BudgetRow]:
    """The long form.

    Args:
        searches: Searches in any order.
        budgets: Which to tabulate, up to each cell's own; by default 1, 2, 5, 10, 20, ... and the cells' own.
        replicates: Number of bootstrap replicates. Injection tasks are drawn, and user tasks
            where a search was made on several; see `agentsys.analysis.statistics.bootstrap`.

    Returns:
        Rows sorted by cell (`none` before other defenses), then suite with `overall` last.
    """
    resampler = Resampler(replicates)
    cells = group_by(searches, _cell)
    wanted = _usual_of(cells.values()) if budgets is None else budgets
    return [row for cell in sorted(cells, key=_order) for row in _of(cell, cells[cell], wanted, resampler)]


def _cell(search: Search) -> MeasuredCell:
    case = search.case
    return MeasuredCell(case.benchmark, case.version, search.model, case.defense, case.attack)


def usual_budgets(most: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, ... below a search's own budget, and that."""
    steps = (factor * 10**power for power in range(len(str(most))) for factor in (1, 2, 5))
    return [*(step for step in steps if step < most), most]


def _usual_of(cells: Iterable[Sequence[Search]]) -> list[int]:
    """The usual budgets of all cells, so that every column has every cell that went so far."""
    most = [max(search.budget * search.tried_on for search in found) for found in cells]
    return sorted({budget for one in most for budget in usual_budgets(one)})


def _order(cell: MeasuredCell) -> tuple[str, str, str, str, bool, str]:
    return cell.benchmark, cell.version, cell.model, cell.attack, cell.defense != "none", cell.defense


def _of(
    cell: MeasuredCell, searches: Sequence[Search], budgets: Sequence[int], resampler: Resampler
) -> Iterator[BudgetRow]:
    suites = group_by(searches, lambda search: search.case.suite)
    by_suite = {suite: suites[suite] for suite in sorted(suites)}
    for measure, most in _axes(searches).items():
        for budget in (budget for budget in budgets if budget <= most):
            for suite, number in _asr(by_suite, measure, budget, resampler).items():
                yield _row(cell, by_suite.get(suite, searches), suite, (measure, budget), number)
    for suite, part in {**by_suite, OVERALL: searches}.items():
        for measure, number in _measures(part).items():
            yield _row(cell, part, suite, (measure, None), number)


def _axes(searches: Sequence[Search]) -> dict[str, int]:
    """The two ways to count a budget, and how far each goes."""
    attempts = max(search.budget for search in searches)
    return {ASR: max(search.budget * search.tried_on for search in searches), ASR_BY_ATTEMPTS: attempts}


def _row(
    cell: MeasuredCell, part: Sequence[Search], suite: str, what: tuple[str, int | None], number: Number
) -> BudgetRow:
    errored = sum(search.state.errored for search in part)
    none = sum(search.state.none is not None for search in part)
    open_ = sum(is_open(search) for search in part)
    value, low, high, n, _ = number
    return BudgetRow(*cell, suite, *what, value, low, high, n, errored, open_, none)


def is_open(search: Search) -> bool:
    """Tell whether a search was interrupted."""
    return not search.state.ended and not search.state.errored and search.state.none is None


def _asr(
    by_suite: dict[str, list[Search]], measure: str, budget: int, resampler: Resampler
) -> dict[str, Number]:
    """Each suite's rate, and overall. Errored, unfinished and textless searches are in none of them."""
    counted = {
        suite: tally(
            suite,
            [_as_case(search, measure, budget) for search in searches if search.state.ended],
            ErrorRule.REPORT,
        )
        for suite, searches in by_suite.items()
    }
    rates = levels(counted, Side.INJECTED, resampler)
    return {level: number_of(found) for level, found in rates.items() if level != POOLED}


def _as_case(search: Search, measure: str, budget: int) -> CaseRow:
    """The search as the case it was made on, for the machinery that counts and resamples cases."""
    case = search.case
    found = search.found_query if measure == ASR else search.found_at
    # Injection tasks take the place of user tasks: there may be a single user task (mode transfer), and
    # rates over suites that have one user task each are taken for samples of suites, which these are not.
    swapped = {"user_task_id": case.injection_task_id or "", "injection_task_id": case.user_task_id}
    return CaseRow(
        **{**case.model_dump(), **swapped},
        utility=False,
        injection_success=found is not None and found <= budget,
        status="ok",
        error_kind=None,
        simulated=search.simulated,
        exposed_raw=None,
        exposed_shown=None,
        raw_round=None,
        shown_round=None,
        duration_s=None,
        prompt_tokens=None,
        completion_tokens=None,
        cost_usd=None,
        source="",
        foreign=False,
    )


def _measures(searches: Sequence[Search]) -> dict[str, Number]:
    """Sum up what searches used. All that was paid for counts, errored searches included."""
    found = [search.found_query for search in searches if search.found_query is not None]
    attacker = sum((search.attacker for search in searches), SearchSpending())
    target = sum((search.target for search in searches), SearchSpending())
    values = (
        math.fsum(found) / len(found) if found else math.nan,
        sum(search.queries for search in searches),
        sum(search.attempts for search in searches),
        sum(search.refused for search in searches),
        sum(search.by_start for search in searches),
        math.nan if attacker.tokens is None else attacker.tokens,
        math.nan if target.tokens is None else target.tokens,
        math.nan if attacker.cost_usd is None else attacker.cost_usd,
        math.nan if target.cost_usd is None else target.cost_usd,
    )
    counts = (len(found), *(len(searches) for _ in values[1:]))
    return {
        name: Number(float(value), math.nan, math.nan, n)
        for name, value, n in zip(MEASURES, values, counts, strict=True)
    }


def textless_notes(found: Iterable[Search]) -> Iterable[str]:
    """A line per cell in which an attacker gave no text to try."""
    cells = group_by(found, lambda search: (search.model, search.case.defense, search.case.attack))
    for (model, defense, attack), searches in cells.items():
        none = [search for search in searches if search.state.none is not None]
        if none:
            why = Counter(str(search.state.none) for search in none)
            listed = ", ".join(f"{kind} {count}" for kind, count in sorted(why.items()))
            yield (
                f"{model} / {defense} / {attack}: {len(none)} of {len(searches)} searches tried no text, "
                f"because their attacker gave none ({listed}): they are in no rate, and nothing is known of "
                "this attack there."
            )
