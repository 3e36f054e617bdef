"""Attack success where it means something: on exposed cases, and beside the same tasks without attack.

An injection that no tool returned could not work, whatever the defense does: luck. One that a tool returned
and the acting model was not shown is the defense's work. Both look alike in the plain ASR.

The official ASR of a denial of service is the share of tasks that were not solved, the model's own failures
included: on the published gpt-4o runs 25 of 32 "successes" of `dos` are tasks that the model does not solve
without any attack either. So it is paired with the same tasks without attack.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from agentsys.analysis.metrics.rates import (
    MeasuredCell,
    MetricRow,
    ScoredCells,
    apply_verdicts,
    make_metric_rows,
)
from agentsys.analysis.statistics.case_outcomes import pair_cases, split_changed_pairs
from agentsys.analysis.statistics.differences import SignDraws, compare_pairs
from agentsys.analysis.statistics.outcome_grid import (
    ErrorRule,
    Resampler,
    Side,
    find_outcome,
    tally_suites,
)
from agentsys.analysis.statistics.rate_estimates import estimate_rate_levels
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow


class Share(NamedTuple):
    """A rate on some of a cell's cases."""

    value: float
    """Percent: unweighted mean of the suites that have such cases; nan without any."""
    n: int
    """Such cases."""
    suites: int
    """Suites that have some."""


def compute_asr(cases: Iterable[CaseRow], rule: ErrorRule) -> Share:
    """ASR on some attacked cases, e.g. those in which a tool returned the payload (`exposed_raw`)."""
    outcomes = ((case.suite, find_outcome(case, rule)) for case in cases)
    return compute_mean_of_suites((suite, found.injection_success) for suite, found in outcomes if found)


def compute_mean_of_suites(counted: Iterable[tuple[str, bool | None]]) -> Share:
    """The share of hits among (suite, whether it is one); None: it is unknown."""
    by_suite = group_by((one for one in counted if one[1] is not None), lambda one: one[0]).values()
    shares = [sum(hit is True for _, hit in of_suite) / len(of_suite) for of_suite in by_suite]
    value = 100.0 * float(np.mean(shares)) if shares else math.nan
    return Share(value, sum(map(len, by_suite)), len(shares))


def compute_exposure_share(cases: Iterable[CaseRow], column: str) -> Share:
    """Percent of the cases without error whose payload reached something.

    Args:
        cases: Attacked cases of one model, defense and attack; those with unknown exposure are left out.
        column: `exposed_raw` (a tool returned the payload) or `exposed_shown` (the acting model met it).
    """
    return compute_mean_of_suites(
        (case.suite, getattr(case, column)) for case in cases if case.status == "ok"
    )


def explain_unseen_success(case: CaseRow) -> str:
    """Explain how an attack can have succeeded although the acting model was never shown its payload.

    Returns:
        E.g. `read by worker`; `never returned by a tool` where the user's own task, or luck, did what
        the attacker wanted; `returned, but read by no model recorded` otherwise.
    """
    if case.read_by:
        return f"read by {' and '.join(case.read_by)}"
    return "returned, but read by no model recorded" if case.exposed_raw else "never returned by a tool"


def compute_asr_on_shared_cases(
    cases: Sequence[CaseRow], others: Sequence[CaseRow], rule: ErrorRule
) -> tuple[Share, Share]:
    """ASR of two attacks against one defense, on the tasks and epochs that count under both."""
    pairs = pair_cases(cases, others, rule).pairs
    return compute_asr((pair.baseline for pair in pairs), rule), compute_asr(
        (pair.defense for pair in pairs), rule
    )


def compute_utility_where_safe(cases: Iterable[CaseRow], rule: ErrorRule) -> Share:
    """Utility on the cases whose attack failed: in two suites success of the attack excludes it."""
    outcomes = ((case.suite, find_outcome(case, rule)) for case in cases)
    return compute_mean_of_suites(
        (suite, found.utility) for suite, found in outcomes if found and not found.injection_success
    )


ASR_WHERE_SOLVED = "asr_where_solved_without_attack"
"""Success of a denial of service among the tasks that the same agent solved without attack."""
UTILITY_CHANGE = "utility_change_paired"
"""Utility under attack less utility without, on the tasks that were run both ways; in percentage points."""
_DENIALS = frozenset({"dos", "captcha_dos", "felony_dos", "offensive_email_dos", "swearwords_dos"})
"""AgentDojo's attacks of this kind (agentdojo 0.1.35). Files do not say the kind."""


@dataclass(frozen=True)
class Denial:
    """One denial of service against one defense, beside the same tasks without attack."""

    cell: MeasuredCell
    rows: tuple[MetricRow, ...]
    """`ASR_WHERE_SOLVED` and `UTILITY_CHANGE`, per suite, overall and pooled. The first is absent where
    no task was solved without attack."""
    pairs: int
    """Tasks run both ways, errored ones left out."""
    lost: int
    """Of these: solved without attack only."""
    gained: int
    """Of these: solved under attack only, by chance as a rule."""
    unpaired: int
    """Attacked cases without a benign one, or errored on either side."""


def find_paired_denials(cells: ScoredCells, rule: ErrorRule) -> list[Denial]:
    """Every denial of service whose defense has benign cases, too."""
    resampler = Resampler()
    found = [
        _measure_denial(cell, cells, resampler, rule)
        for cell in sorted(cells, key=MeasuredCell.make_sort_key)
        if is_denial_of_service(cell.attack)
    ]
    return [denial for denial in found if denial.pairs]


def is_denial_of_service(attack: str) -> bool:
    """Tell whether an attack's label names one of AgentDojo's denials of service, options aside."""
    name = re.match(r"\w+", attack)
    return name is not None and name[0] in _DENIALS


def write_denial_notes(found: Sequence[Denial]) -> Iterator[str]:
    """Explain the numbers; nothing where there are none."""
    if not found:
        return
    yield (
        "Denial of service: the targeted ASR counts every task that was not solved, the model's own failures "
        "included. ASR where solved counts only tasks that the same agent solved without attack; what chance "
        "undoes without any attack is still in it, and the tasks gained show how much that is."
    )
    for denial in found:
        if denial.unpaired:
            name = f"{denial.cell.model} / {denial.cell.defense} / {denial.cell.attack}"
            yield f"{name}: {denial.unpaired} cases without a benign one beside them are left out there."


def _measure_denial(cell: MeasuredCell, cells: ScoredCells, resampler: Resampler, rule: ErrorRule) -> Denial:
    benign, attacked = cells.get(cell._replace(attack=NO_ATTACK), []), cells[cell]
    # Without the goal that plays no part, so that they are pairs.
    before, after = ([replace(one, injection_task_id=None) for one in side] for side in (benign, attacked))
    pairs = pair_cases(before, after, rule).pairs
    rows: list[MetricRow] = []
    if able := [pair.defense for pair in pairs if pair.before.utility]:
        rates = estimate_rate_levels(tally_suites(able, rule), Side.INJECTED, resampler)
        rows += make_metric_rows(cell, ASR_WHERE_SOLVED, rates)
    if pairs:
        rows += make_metric_rows(cell, UTILITY_CHANGE, compare_pairs(pairs, Side.SOLVED, SignDraws()))
    gained, lost = split_changed_pairs(pairs, Side.SOLVED)
    unpaired = len(attacked) - len(pairs)
    rows = apply_verdicts(rows, cells.verdicts)
    return Denial(cell, tuple(rows), len(pairs), len(lost), len(gained), unpaired)
