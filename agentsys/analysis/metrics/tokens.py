"""Tokens per case, with an interval that knows that cases share user tasks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from agentsys.analysis.metrics.rates import Number
from agentsys.analysis.statistics.bootstrap import Resampler, percentile_interval
from agentsys.records.case_row import CaseRow

ACTING_ROLES = frozenset({"agent", "main"})
"""Roles whose context carries the conversation with the user, in plain agents and in AgentSys."""

TokensOf = Callable[[CaseRow], int | None]


def acting_tokens(case: CaseRow) -> int | None:
    """The same of the agent that talks to the user alone; None where roles are not recorded."""
    found = [tokens for role, tokens in case.tokens_by_role.items() if role in ACTING_ROLES]
    return sum(found) if found else None


def mean_tokens(cases: Iterable[CaseRow], tokens_of: TokensOf, resampler: Resampler) -> Number | None:
    """Mean tokens per case; cases that errored, or whose tokens are not recorded, are left out.

    Returns:
        Tokens (not percent); the interval is the percentile one. None if no case has tokens.
    """
    known = [
        (f"{case.suite}/{case.user_task_id}", tokens)
        for case in cases
        if case.status == "ok" and (tokens := tokens_of(case)) is not None
    ]
    if not known:
        return None
    tasks = tuple(sorted({task for task, _ in known}))
    place = {task: index for index, task in enumerate(tasks)}
    total, count = np.zeros(len(tasks)), np.zeros(len(tasks))
    for task, tokens in known:
        total[place[task]] += tokens
        count[place[task]] += 1
    value = float(total.sum() / count.sum())
    if len(tasks) < 2:
        return Number(value, math.nan, math.nan, len(known))
    weights = resampler.weights("all suites", "user", tasks)
    interval = percentile_interval((weights @ total) / (weights @ count))
    return Number(value, interval.low, interval.high, len(known))
