"""`measures`: all measures of cost and of untrusted text, for every cell and suite, as one long form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from agentsys.analysis.metrics import measures_cost, measures_exposure
from agentsys.analysis.metrics.measures_exposure import Mean
from agentsys.analysis.metrics.rates import Cell
from agentsys.analysis.statistics.estimate import POOLED
from agentsys.records.case_row import CaseRow

MEANS: dict[str, Callable[[Iterable[CaseRow]], Mean]] = {
    "untrusted_tokens": measures_exposure.untrusted_tokens,
    "untrusted_tokens_workers": measures_exposure.untrusted_tokens_workers,
    "exposure_rounds": measures_exposure.exposure_rounds,
    "exposure_rounds_workers": measures_exposure.exposure_rounds_workers,
}
"""Measures that are means over cases."""

RATIOS: dict[str, Callable[[Iterable[CaseRow]], float]] = {
    "cost_per_solved_task": measures_cost.cost_per_solved_task,
    "tokens_per_solved_task": measures_cost.tokens_per_solved_task,
    "asr_per_dollar": measures_cost.asr_per_dollar,
    "asr_per_million_tokens": measures_cost.asr_per_million_tokens,
}
"""Measures that are one sum over another."""

TOKENS_OF_ROLE = "tokens_per_case"
"""The name of the tokens per role; the role is appended after a colon."""


class MeasureRow(NamedTuple):
    """One number. The model's name is the marked one, as in `agentsys.analysis.metrics.rates.MetricRow`."""

    benchmark: str
    version: str
    model: str
    defense: str
    attack: str
    suite: str
    """A suite, or `pooled`: all cases of the cell together."""
    measure: str
    value: float
    """nan where undefined or unknown."""
    n: int
    """Cases it rests on."""


def measures(cases: Iterable[CaseRow]) -> list[MeasureRow]:
    """Every measure of every cell, per suite and pooled.

    Args:
        cases: In any order. Injection tasks run as user tasks are left out.

    Returns:
        Rows sorted by cell, then suite with `pooled` last. Definitions: docs/data.md#measures.
    """
    groups: defaultdict[tuple[Cell, bool, str], list[CaseRow]] = defaultdict(list)
    for case in cases:
        if not case.is_injection_task_alone:
            cell = Cell(case.benchmark, case.version, case.shown_model, case.defense, case.attack)
            groups[cell, False, case.suite].append(case)
            groups[cell, True, POOLED].append(case)
    return [
        MeasureRow(*cell, suite, name, value, n)
        for cell, pooled, suite in sorted(groups)
        for name, value, n in _of(groups[cell, pooled, suite])
    ]


def _of(cases: Sequence[CaseRow]) -> Iterator[tuple[str, float, int]]:
    for name, mean in MEANS.items():
        yield name, *mean(cases)
    for name, ratio in RATIOS.items():
        yield name, ratio(cases), len(cases)
    for role, found in measures_cost.tokens_per_role(cases).items():
        yield f"{TOKENS_OF_ROLE}:{role}", *found
