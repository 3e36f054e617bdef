"""Attack success and utility by length: the paper's Table 1 and Figure 4.

Lengths: `trajectory_length` (tool results in the recorded run) in Table 1, `ground_truth_length` (calls
in the user task's ground truth) in Figure 4. The published gpt-4o-mini runs
give the paper's nine cells, 44.46 and 19.08, and 9.22 exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from agentsys.analysis.metrics.rates import Number, number_of
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import Side, macro, rate, totals
from agentsys.analysis.statistics.outcome_grid import Tally, tally
from agentsys.records.case_row import NO_ATTACK, CaseRow

LONGEST_SHORT = 3
"""A user task is short if its ground truth has at most this many calls."""
LAST_BUCKET = 7
"""Figure 4(b) puts ground truths of this length and longer together."""

Kept = Callable[[int], bool]
"""Whether a user task of this ground-truth length belongs to a part."""


def asr_by_round(
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
    groups: dict[tuple[int, int], list[CaseRow]] = {}
    for case in _metric_cases(cases):
        length, round_ = case.trajectory_length, case.injection_round
        if case.attack != NO_ATTACK and length in lengths and length is not None and round_ is not None:
            groups.setdefault((length, round_), []).append(case)
    return {
        pair: number_of(rate([totals(_pooled(group, errors), Side.INJECTED, resampler)]))
        for pair, group in groups.items()
    }


def utility_by_length(cases: Iterable[CaseRow], errors: ErrorRule, resampler: Resampler) -> dict[str, Number]:
    """Benign utility split into what short and long user tasks contribute.

    Each solved task weighs 1/(suites x tasks of its suite), so that `short` + `long` is the overall
    benign utility of the cases whose ground-truth length is known.

    Returns:
        `short` and `long`; empty without benign cases.
    """
    benign = [case for case in _metric_cases(cases) if case.attack == NO_ATTACK]
    parts: dict[str, Kept] = {
        "short": lambda length: length <= LONGEST_SHORT,
        "long": lambda length: length > LONGEST_SHORT,
    }
    lengths, tallies = _task_lengths(benign), _tallies(_with_length(benign), errors)
    if not tallies:
        return {}
    return {
        part: number_of(
            macro([rate([totals(_part(found, lengths, kept), Side.SOLVED, resampler)]) for found in tallies])
        )
        for part, kept in parts.items()
    }


def asr_by_length(cases: Iterable[CaseRow], errors: ErrorRule, resampler: Resampler) -> dict[int, Number]:
    """Successful attacks on user tasks of each ground-truth length, as a share of all cases.

    Returns:
        Length (the last stands for itself and beyond) -> share in percent, pooled over suites; `n` counts
        all cases, since a bucket's share refers to them. Empty without attacked cases.
    """
    attacked = [case for case in _metric_cases(cases) if case.attack != NO_ATTACK]
    lengths, tallies = _task_lengths(attacked), _tallies(_with_length(attacked), errors)
    if not tallies:
        return {}
    return {
        bucket: number_of(
            rate(
                [
                    totals(_part(found, lengths, _bucket(bucket)), Side.INJECTED, resampler)
                    for found in tallies
                ]
            )
        )
        for bucket in range(1, LAST_BUCKET + 1)
    }


def without_length(cases: Iterable[CaseRow]) -> int:
    """Count the cases that cannot be placed, because their user task's ground-truth length is unknown."""
    return sum(case.ground_truth_length is None for case in _metric_cases(cases))


def _bucket(bucket: int) -> Kept:
    return lambda length: min(length, LAST_BUCKET) == bucket


def _metric_cases(cases: Iterable[CaseRow]) -> list[CaseRow]:
    return [case for case in cases if case.is_scored]


def _with_length(cases: Iterable[CaseRow]) -> list[CaseRow]:
    return [case for case in cases if case.ground_truth_length is not None]


def _task_lengths(cases: Iterable[CaseRow]) -> dict[tuple[str, str], int]:
    return {
        (case.suite, case.user_task_id): case.ground_truth_length
        for case in cases
        if case.ground_truth_length is not None
    }


def _part(whole: Tally, lengths: Mapping[tuple[str, str], int], kept: Kept) -> Tally:
    """The same cases with only the successes of some user tasks: the denominator stays."""
    mask = np.array([float(kept(lengths[whole.suite, task])) for task in whole.user_tasks]).reshape(-1, 1)
    return replace(whole, solved=whole.solved * mask, hijacked=whole.hijacked * mask)


def _pooled(cases: Iterable[CaseRow], errors: ErrorRule) -> Tally:
    """All suites on one grid: a pair of Table 1 may have a single case of a suite, nothing to draw from."""
    named = [
        replace(
            case,
            user_task_id=f"{case.suite}/{case.user_task_id}",
            injection_task_id=f"{case.suite}/{case.injection_task_id}",
        )
        for case in cases
    ]
    return tally("all suites", named, errors)


def _tallies(cases: Iterable[CaseRow], errors: ErrorRule) -> list[Tally]:
    by_suite: dict[str, list[CaseRow]] = {}
    for case in cases:
        by_suite.setdefault(case.suite, []).append(case)
    return [tally(suite, by_suite[suite], errors) for suite in sorted(by_suite)]
