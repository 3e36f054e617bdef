"""`measures`: cost and untrusted text, for every cell and suite, as one long form.

Definitions: docs/data.md#measures. Every function takes the cases of one group. How much untrusted text
reached an agent that can act, and for how long, are means over cases: those that errored and those whose
value is unknown are left out, and the mean is nan where none is left. Cost sets dollars and tokens against
tasks solved and attacks that succeeded: errored cases are in what was spent (they were paid for) and in no
result; a sum with an unknown part is nan, never too small.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentsys.analysis.metrics.guard_errors import guard_measures
from agentsys.analysis.metrics.rates import CellRow, scored_cells
from agentsys.analysis.statistics.estimate import POOLED
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow

PER_TOKENS = 1_000_000
"""Tokens that rates per tokens refer to."""


class Mean(NamedTuple):
    """A mean and what it rests on."""

    value: float
    """nan where `n` is 0."""
    n: int
    """Cases with a known value."""


def mean_of(measure: str, cases: Iterable[CaseRow]) -> Mean:
    """One of `MEANS` over the cases without an error whose value is known."""
    known = [one for case in cases if case.status == "ok" and (one := MEANS[measure](case)) is not None]
    return Mean(sum(known) / len(known) if known else math.nan, len(known))


MEANS: dict[str, Callable[[CaseRow], float | None]] = {
    "untrusted_tokens": lambda case: case.untrusted_tokens,
    "untrusted_tokens_workers": lambda case: case.untrusted_tokens_workers,
    "exposure_rounds": lambda case: None if case.attack == NO_ATTACK else case.exposure_rounds,
    "exposure_rounds_workers": lambda case: (
        None if case.attack == NO_ATTACK else case.exposure_rounds_workers
    ),
    "model_calls": lambda case: sum(case.replies_by_role.values()) if case.replies_by_role else None,
    "seconds": lambda case: case.duration_s,
}
"""Measures that are means over cases -> the value of one case; None where it is unknown, or none is meant."""


def dollars(cases: Iterable[CaseRow]) -> float:
    """US dollars spent on all of these cases; nan if one of them has no known cost."""
    return _sum(case.cost_usd for case in cases)


def tokens(cases: Iterable[CaseRow]) -> float:
    """Prompt and completion tokens of all of these cases, all roles; nan if one case does not say."""
    return _sum(sum(case.tokens_by_role.values()) if case.tokens_by_role else None for case in cases)


RATIOS: dict[str, Callable[[Sequence[CaseRow]], float]] = {
    "cost_per_solved_task": lambda cases: _ratio(dollars(cases), _solved(cases)),
    "tokens_per_solved_task": lambda cases: _ratio(tokens(cases), _solved(cases)),
    "asr_per_dollar": lambda cases: _ratio(_hijacked(cases), dollars(_attacked(cases))),
    "asr_per_million_tokens": lambda cases: _ratio(PER_TOKENS * _hijacked(cases), tokens(_attacked(cases))),
}
"""Measures that are one sum over another; nan where the other is 0, or either is unknown.

Attacks that succeeded are set against what attacked cases cost.
"""


def tokens_per_role(cases: Iterable[CaseRow]) -> dict[str, Mean]:
    """Role -> tokens per case, over the cases that say what they used.

    A case in which a role was never asked counts as 0 for it, so that the roles add up to the mean of
    all tokens. Sorted by role.
    """
    return _per_role(case.tokens_by_role for case in cases if case.tokens_by_role)


def calls_at_gates(cases: Iterable[CaseRow]) -> dict[str, int]:
    """`filter/outcome/tool` -> calls of all of these cases that a filter ruled on before they ran."""
    found: Counter[str] = Counter()
    for case in cases:
        if case.status == "ok":
            found.update(case.gates)
    return dict(sorted(found.items()))


def cached_tokens_per_role(cases: Iterable[CaseRow]) -> dict[str, Mean]:
    """Role -> tokens per case that the provider read from its prompt cache; the same cases."""
    return _per_role(
        dict.fromkeys(case.tokens_by_role, 0) | dict(case.cached_by_role)
        for case in cases
        if case.tokens_by_role
    )


def dollars_per_role(cases: Iterable[CaseRow]) -> dict[str, Mean]:
    """Role -> US dollars per case, over the cases in which no role's cost is unknown."""
    known = (case.cost_by_role for case in cases if case.cost_by_role)
    return _per_role(
        {role: cost for role, cost in costs.items() if cost is not None}
        for costs in known
        if None not in costs.values()
    )


def _per_role(used_in_cases: Iterable[Mapping[str, float]]) -> dict[str, Mean]:
    listed = list(used_in_cases)
    sums: defaultdict[str, float] = defaultdict(float)
    for used in listed:
        for role, count in used.items():
            sums[role] += count
    return {role: Mean(sums[role] / len(listed), len(listed)) for role in sorted(sums)}


def _attacked(cases: Iterable[CaseRow]) -> list[CaseRow]:
    return [case for case in cases if case.attack != NO_ATTACK]


def _solved(cases: Sequence[CaseRow]) -> int:
    return sum(case.status == "ok" and case.utility for case in cases)


def _hijacked(cases: Sequence[CaseRow]) -> int:
    return sum(case.status == "ok" and bool(case.injection_success) for case in _attacked(cases))


def _sum(parts: Iterable[float | None]) -> float:
    return math.fsum(math.nan if part is None else part for part in parts)


def _ratio(above: float, below: float) -> float:
    return above / below if below else math.nan


OF_ROLES: dict[str, Callable[[Iterable[CaseRow]], dict[str, Mean]]] = {
    "tokens_per_case": tokens_per_role,
    "cached_tokens_per_case": cached_tokens_per_role,
    "usd_per_case": dollars_per_role,
}
"""Measures per role; the role is appended to the name after a colon."""


@dataclass(frozen=True, slots=True)
class MeasureRow(CellRow):
    """One number, of a suite or pooled."""

    measure: str
    value: float
    """nan where undefined or unknown."""
    n: int
    """Cases it rests on; of a guard's errors, the results (or characters) where it is not cases."""
    ci_low: float = math.nan
    """Lower end of the 95% interval; nan where there is none."""
    ci_high: float = math.nan


def measures(cases: Iterable[CaseRow]) -> list[MeasureRow]:
    """Every measure of every cell, per suite and pooled; without injection tasks run as user tasks.

    Returns:
        Rows sorted by cell, then suite with `pooled` last. Definitions: docs/data.md#measures.
    """
    cells = scored_cells(cases)
    rows: list[MeasureRow] = []
    for cell in sorted(cells):
        suites = group_by(cells[cell], lambda case: case.suite)
        for suite, some in (*sorted(suites.items()), (POOLED, cells[cell])):
            rows += [MeasureRow(*cell, suite, *found) for found in _of(some)]
    return rows


def _of(cases: Sequence[CaseRow]) -> Iterator[tuple[str, float, int] | tuple[str, float, int, float, float]]:
    for name in MEANS:
        yield name, *mean_of(name, cases)
    for name, ratio in RATIOS.items():
        yield name, ratio(cases), len(cases)
    for measure, per_role in OF_ROLES.items():
        for role, found in per_role(cases).items():
            yield f"{measure}:{role}", *found
    for ruling, calls in calls_at_gates(cases).items():
        yield f"gate_calls:{ruling}", calls, len(cases)
    for name, number in guard_measures(cases):
        yield name, number.value, number.n, number.ci_low, number.ci_high
