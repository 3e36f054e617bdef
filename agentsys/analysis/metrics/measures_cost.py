"""What a defense's results cost: dollars and tokens set against tasks solved and attacks that succeeded.

Definitions: docs/data.md#measures. Every function takes the cases of one group. Errored cases are in
what was spent (they were paid for) and in no result; a sum with an unknown part is nan, never too small.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from agentsys.analysis.metrics.measures_exposure import Mean
from agentsys.records.case_row import NO_ATTACK, CaseRow

PER_TOKENS = 1_000_000
"""Tokens that rates per tokens refer to."""


def dollars(cases: Iterable[CaseRow]) -> float:
    """US dollars spent on all of these cases; nan if one of them has no known cost."""
    return _sum(case.cost_usd for case in cases)


def tokens(cases: Iterable[CaseRow]) -> float:
    """Prompt and completion tokens of all of these cases, all roles; nan if one case does not say."""
    return _sum(sum(case.tokens_by_role.values()) if case.tokens_by_role else None for case in cases)


def cost_per_solved_task(cases: Iterable[CaseRow]) -> float:
    """US dollars spent on all cases / user tasks solved; nan where none was solved."""
    listed = list(cases)
    return _ratio(dollars(listed), _solved(listed))


def tokens_per_solved_task(cases: Iterable[CaseRow]) -> float:
    """The same in tokens, for models without a price."""
    listed = list(cases)
    return _ratio(tokens(listed), _solved(listed))


def asr_per_dollar(cases: Iterable[CaseRow]) -> float:
    """Attacks that succeeded per US dollar spent on attacked cases.

    The targeted ASR divided by the mean cost of an attacked case, where none errored. nan where
    nothing was spent.
    """
    attacked = _attacked(cases)
    return _ratio(_hijacked(attacked), dollars(attacked))


def asr_per_million_tokens(cases: Iterable[CaseRow]) -> float:
    """The same per `PER_TOKENS` tokens, for models without a price."""
    attacked = _attacked(cases)
    return _ratio(PER_TOKENS * _hijacked(attacked), tokens(attacked))


def tokens_per_role(cases: Iterable[CaseRow]) -> dict[str, Mean]:
    """Role -> tokens per case, over the cases that say what they used.

    A case in which a role was never asked counts as 0 for it, so that the roles add up to the mean of
    all tokens. Sorted by role.
    """
    listed = [case.tokens_by_role for case in cases if case.tokens_by_role]
    sums: defaultdict[str, int] = defaultdict(int)
    for used in listed:
        for role, count in used.items():
            sums[role] += count
    return {role: Mean(sums[role] / len(listed), len(listed)) for role in sorted(sums)}


def _attacked(cases: Iterable[CaseRow]) -> list[CaseRow]:
    return [case for case in cases if case.attack != NO_ATTACK]


def _solved(cases: Sequence[CaseRow]) -> int:
    return sum(case.status == "ok" and case.utility for case in cases)


def _hijacked(cases: Sequence[CaseRow]) -> int:
    return sum(case.status == "ok" and bool(case.injection_success) for case in cases)


def _sum(parts: Iterable[float | None]) -> float:
    return math.fsum(math.nan if part is None else part for part in parts)


def _ratio(above: float, below: float) -> float:
    return above / below if below else math.nan
