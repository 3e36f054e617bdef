"""Rates by length (the paper's Table 1 and Figure 4), and mean tokens per case.

`trajectory_length` (tool results in the recorded run) in Table 1, `ground_truth_length` (calls in the user
task's ground truth) in Figure 4. The published gpt-4o-mini runs give the paper's nine cells, 44.46 and 19.08,
and 9.22 exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from agentsys.analysis.metrics.rates import Number, make_number
from agentsys.analysis.statistics.outcome_grid import (
    ErrorRule,
    Resampler,
    Side,
    Tally,
    compute_percentile_interval,
    tally_suites,
)
from agentsys.analysis.statistics.rate_estimates import estimate_mean_rate, estimate_pooled_rate
from agentsys.base.grouping import group_by
from agentsys.records.case_row import ACTING_ROLES, NO_ATTACK, CaseRow

LONGEST_SHORT = 3
"""A user task is short if its ground truth has at most this many calls."""
LAST_BUCKET = 7
"""Figure 4(b) puts ground truths of this length and longer together."""
_P = TypeVar("_P", str, int)
"""What parts are called."""


def compute_asr_by_round(
    cases: Iterable[CaseRow], lengths: Sequence[int], errors: ErrorRule, resampler: Resampler
) -> dict[tuple[int, int], Number]:
    """Targeted ASR by trajectory length and by the tool result that first held the injection.

    Args:
        cases: Cases of one model, defense and attack; those in which the injection never appeared, or whose
            messages are not recorded, are left out.
        lengths: Trajectory lengths to tell apart.
        errors: What errored cases count as.
        resampler: Draws the tasks.

    Returns:
        (length, round from 1) -> ASR pooled over suites; a pair that no case has is absent.
    """
    groups = group_by(
        (case for case in cases if case.is_scored and case.attack != NO_ATTACK),
        lambda case: (case.trajectory_length, case.injection_round),
    )
    return {
        (length, round_): make_number(
            estimate_pooled_rate(_put_on_one_grid(group, errors), Side.INJECTED, resampler)
        )
        for (length, round_), group in groups.items()
        if length is not None and length in lengths and round_ is not None
    }


def compute_utility_by_length(
    cases: Iterable[CaseRow], errors: ErrorRule, resampler: Resampler
) -> dict[str, Number]:
    """Benign utility split into what short and long user tasks contribute.

    Each solved task weighs 1/(suites x tasks of its suite), so that `short` + `long` is the overall
    benign utility of the cases whose ground-truth length is known.

    Returns:
        `short` and `long`; empty without benign cases.
    """
    benign = [case for case in cases if case.attack == NO_ATTACK]
    names = ("short", "long")
    parts = _split_by_length(benign, names, lambda length: names[length > LONGEST_SHORT], errors)
    return {
        name: make_number(estimate_mean_rate(tallies, Side.SOLVED, resampler))
        for name, tallies in parts.items()
    }


def compute_asr_by_length(
    cases: Iterable[CaseRow], errors: ErrorRule, resampler: Resampler
) -> dict[int, Number]:
    """Successful attacks on user tasks of each ground-truth length, as a share of all cases.

    Returns:
        Length (the last stands for itself and beyond) -> share in percent, pooled over suites; `n` counts
        all cases, since a bucket's share refers to them. Empty without attacked cases.
    """
    attacked = [case for case in cases if case.attack != NO_ATTACK]
    buckets = range(1, LAST_BUCKET + 1)
    parts = _split_by_length(attacked, buckets, lambda length: min(length, LAST_BUCKET), errors)
    return {
        bucket: make_number(estimate_pooled_rate(tallies, Side.INJECTED, resampler))
        for bucket, tallies in parts.items()
    }


def count_without_length(cases: Iterable[CaseRow]) -> int:
    """Count the cases that cannot be placed, because their user task's ground-truth length is unknown."""
    return sum(case.is_scored and case.ground_truth_length is None for case in cases)


def _split_by_length(
    cases: Iterable[CaseRow], parts: Iterable[_P], part_of: Callable[[int], _P], errors: ErrorRule
) -> dict[_P, list[Tally]]:
    """Part -> every suite's cases with only its own user tasks' successes; nothing without known lengths."""
    placed = [
        (case, part_of(case.ground_truth_length))
        for case in cases
        if case.is_scored and case.ground_truth_length is not None
    ]
    tasks = {(case.suite, case.user_task_id): part for case, part in placed}
    suites = tally_suites([case for case, _ in placed], errors).values()

    def mask_to_part(part: _P, whole: Tally) -> Tally:
        mask = np.array([[float(tasks[whole.suite, task] == part)] for task in whole.user_tasks])
        return replace(whole, solved=whole.solved * mask, hijacked=whole.hijacked * mask)

    return {part: [mask_to_part(part, whole) for whole in suites] for part in parts if placed}


def _put_on_one_grid(cases: Iterable[CaseRow], errors: ErrorRule) -> Iterable[Tally]:
    """Count all suites together: a pair of Table 1 may have a single case of a suite."""
    named = (
        replace(
            case,
            suite="all suites",
            user_task_id=f"{case.suite}/{case.user_task_id}",
            injection_task_id=f"{case.suite}/{case.injection_task_id}",
        )
        for case in cases
    )
    return tally_suites(named, errors).values()


TokensOf = Callable[[CaseRow], int | None]


def count_acting_tokens(case: CaseRow) -> int | None:
    """Tokens of the agent that talks to the user alone; None where roles are not recorded."""
    counts = [tokens for role, tokens in case.tokens_by_role.items() if role in ACTING_ROLES]
    return sum(counts) if counts else None


def compute_mean_tokens(cases: Iterable[CaseRow], tokens_of: TokensOf, resampler: Resampler) -> Number | None:
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
    row_of = {task: index for index, task in enumerate(tasks)}
    total, count = np.zeros(len(tasks)), np.zeros(len(tasks))
    for task, tokens in known:
        total[row_of[task]] += tokens
        count[row_of[task]] += 1
    value = float(total.sum() / count.sum())
    if len(tasks) < 2:
        return Number(value, math.nan, math.nan, len(known))
    weights = resampler.draw_weights("all suites", "user", tasks)
    interval = compute_percentile_interval((weights @ total) / (weights @ count))
    return Number(value, interval.low, interval.high, len(known))
