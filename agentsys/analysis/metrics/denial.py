"""Denial of service, paired: of the tasks that were solved without attack, how many the attack prevented.

The official ASR of a denial of service is the share of tasks that were not solved, the model's own failures
included: on the published gpt-4o runs 25 of 32 "successes" of `dos` are tasks that the model does not solve
without any attack either.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentsys.analysis.metrics.rates import MeasuredCell, MetricRow, metric_rows, scored_cells
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule, outcome
from agentsys.analysis.statistics.estimate import Side, levels
from agentsys.analysis.statistics.outcome_grid import tallies
from agentsys.analysis.statistics.paired import Pair, compared, pair_up
from agentsys.analysis.statistics.sign_flips import SignDraws
from agentsys.records.case_row import NO_ATTACK, CaseRow

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


def denials(
    cases: Iterable[CaseRow], rule: ErrorRule = ErrorRule.REPORT, *, replicates: int = 2000
) -> list[Denial]:
    """Every denial of service whose defense has benign cases, too."""
    listed = list(cases)
    if not any(map(denies_service, {case.attack for case in listed})):
        return []
    resampler = Resampler(replicates)
    cells = scored_cells(listed)
    found = []
    for cell in sorted(cells, key=MeasuredCell.order):
        benign = cells.get(cell._replace(attack=NO_ATTACK), [])
        if benign and denies_service(cell.attack):
            found.append(_denial(cell, benign, cells[cell], resampler, rule))
    return [denial for denial in found if denial.pairs]


def denies_service(attack: str) -> bool:
    """Tell whether an attack's label names one of AgentDojo's denials of service, options aside."""
    name = re.match(r"\w+", attack)
    return name is not None and name[0] in _DENIALS


def denial_notes(found: Sequence[Denial]) -> Iterator[str]:
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
            name = f"{denial.cell.defense} / {denial.cell.attack}"
            yield f"{name}: {denial.unpaired} cases without a benign one beside them are left out there."


def _denial(
    cell: MeasuredCell,
    benign: Sequence[CaseRow],
    attacked: Sequence[CaseRow],
    resampler: Resampler,
    rule: ErrorRule,
) -> Denial:
    # Both under one label, without the goal that plays no part, so that they are pairs.
    pairs = pair_up(_aligned(benign), _aligned(attacked), rule).pairs
    solved = [(_solved(pair.baseline, rule), _solved(pair.defense, rule)) for pair in pairs]
    return Denial(
        cell,
        tuple(_rows(cell, pairs, resampler, rule)),
        len(pairs),
        solved.count((True, False)),
        solved.count((False, True)),
        len(attacked) - len(pairs),
    )


def _aligned(cases: Iterable[CaseRow]) -> list[CaseRow]:
    return [replace(case, attack="", injection_task_id=None) for case in cases]


def _rows(
    cell: MeasuredCell, pairs: Sequence[Pair], resampler: Resampler, rule: ErrorRule
) -> Iterator[MetricRow]:
    solved = [pair.defense for pair in pairs if _solved(pair.baseline, rule)]
    if solved:
        yield from metric_rows(
            cell, ASR_WHERE_SOLVED, levels(tallies(solved, rule), Side.INJECTED, resampler)
        )
    if pairs:
        found = compared(pairs, Side.SOLVED, SignDraws(), rule)
        yield from metric_rows(cell, UTILITY_CHANGE, {level: of.difference for level, of in found.items()})


def _solved(case: CaseRow, rule: ErrorRule) -> bool:
    found = outcome(case, rule)
    return found is not None and found.utility
