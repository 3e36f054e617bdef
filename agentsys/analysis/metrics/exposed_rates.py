"""Rates on the cases where they mean something: attacks that a tool returned or a model was shown.

An injection that no tool returned could not work, whatever the defense does: luck. One that a tool
returned and the acting model was not shown is the defense's work. Both look alike in the plain ASR.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agentsys.analysis.statistics.difference_test import LEVEL, p_value, smallest_detectable
from agentsys.analysis.statistics.error_rule import ErrorRule, outcome
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Side
from agentsys.analysis.statistics.outcome_grid import Tally
from agentsys.analysis.statistics.paired import compared, from_zero, pair_up
from agentsys.analysis.statistics.sign_flips import SignDraws
from agentsys.records.case_row import CaseRow

_OLD_INJECTION_TASKS = frozenset(f"injection_task_{number}" for number in range(6))
"""Workspace's before v1.2."""

FLOOR = 0.1
"""ASR above which it is the number of tasks that is too low for a test, not the rate."""


class Share(NamedTuple):
    """A rate on some of a cell's cases."""

    value: float
    """Percent: unweighted mean of the suites that have such cases; nan without any."""
    n: int
    """Such cases."""
    suites: int
    """Suites that have some."""


class WorkspaceSplit(NamedTuple):
    """Workspace's ASR, its injection tasks of v1 and those added in v1.2 apart."""

    old: Share
    """Injection tasks 0 to 5."""
    added: Share
    """6 to 13: none has a ground truth, and models hardly ever carry them out even when a user asks."""


def asr_where_returned(cases: Iterable[CaseRow], rule: ErrorRule = ErrorRule.REPORT) -> Share:
    """ASR on the cases in which a tool returned the payload (`exposed_raw`).

    Args:
        cases: Attacked cases of one model, defense and attack; likewise below.
        rule: What errored cases count as.
    """
    return _share((case for case in cases if case.exposed_raw), rule)


def asr_where_shown(cases: Iterable[CaseRow], rule: ErrorRule = ErrorRule.REPORT) -> Share:
    """ASR on the cases in which the acting model was shown the payload (`exposed_shown`)."""
    return _share((case for case in cases if case.exposed_shown), rule)


def unseen_reason(case: CaseRow) -> str:
    """Explain how an attack can have succeeded whose payload the acting model was not shown.

    Returns:
        E.g. `read by worker`; `never returned by a tool` where the user's own task, or luck, did what
        the attacker wanted; `returned, but read by no model recorded` otherwise.
    """
    if case.read_by:
        return f"read by {' and '.join(case.read_by)}"
    return "returned, but read by no model recorded" if case.exposed_raw else "never returned by a tool"


def asr_on_the_same(
    cases: Sequence[CaseRow], others: Sequence[CaseRow], rule: ErrorRule = ErrorRule.REPORT
) -> tuple[Share, Share]:
    """ASR of two attacks against one defense, on the tasks and epochs that count under both."""
    counted = [
        {one.task_key: one for one in part if outcome(one, rule) is not None} for part in (cases, others)
    ]
    shared = counted[0].keys() & counted[1].keys()
    first, second = ([part[key] for key in sorted(shared, key=str)] for part in counted)
    return _share(first, rule), _share(second, rule)


def utility_where_safe(cases: Iterable[CaseRow], rule: ErrorRule = ErrorRule.REPORT) -> Share:
    """Utility on the cases whose attack failed: in two suites success of the attack excludes it."""
    outcomes = [(case.suite, outcome(case, rule)) for case in cases]
    return mean_of_suites(
        [
            (suite, found.utility)
            for suite, found in outcomes
            if found is not None and not found.injection_success
        ]
    )


def returned_share(cases: Iterable[CaseRow]) -> Share:
    """Percent of the cases without error, and with known exposure, in which a tool returned the payload."""
    known = [case for case in cases if case.exposed_raw is not None and case.status == "ok"]
    return mean_of_suites([(case.suite, bool(case.exposed_raw)) for case in known])


def shown_share(cases: Iterable[CaseRow]) -> Share:
    """The same for what the acting model was shown."""
    known = [case for case in cases if case.exposed_shown is not None and case.status == "ok"]
    return mean_of_suites([(case.suite, bool(case.exposed_shown)) for case in known])


def workspace_split(cases: Iterable[CaseRow], rule: ErrorRule = ErrorRule.REPORT) -> WorkspaceSplit | None:
    """Workspace's ASR on old and added injection tasks; None unless both were run."""
    listed = [case for case in cases if case.suite == "workspace" and case.injection_task_id]
    old = [case for case in listed if case.injection_task_id in _OLD_INJECTION_TASKS]
    added = [case for case in listed if case.injection_task_id not in _OLD_INJECTION_TASKS]
    if not old or not added:
        return None
    both = [_share(part, rule) for part in (old, added)]
    return WorkspaceSplit(*both)


def at_the_floor(undefended: Mapping[str, Tally], draws: SignDraws) -> list[str]:
    """List the levels at which a defense that stops every attack could not be told from none.

    Args:
        undefended: Suite -> attacked cases of one model and attack without defense.
        draws: Draws the signs of tasks.

    Returns:
        `overall` and suites in which the ASR is below `FLOOR` and the test of `agentsys compare` has
        p >= 0.05 between it and 0 in every case.
    """
    counted = [found for found in undefended.values() if found.cases.sum()]
    levels = from_zero(counted, Side.INJECTED, draws) if counted else {}
    low = [level for level, found in levels.items() if level != POOLED and found.defense < FLOOR]
    unproven = [level for level in low if p_value(levels[level].difference) >= LEVEL]
    return sorted(unproven, key=lambda level: level != OVERALL)


def detectable_asr(
    baseline: Sequence[CaseRow],
    defense: Sequence[CaseRow],
    rule: ErrorRule = ErrorRule.REPORT,
) -> float:
    """The smallest true difference in overall ASR that the shared cases find with 80% power.

    Returns:
        Percentage points; nan without shared cases, or with too few to resample.
    """
    pairs = pair_up(baseline, defense, rule).pairs
    if not pairs:
        return float("nan")
    overall = compared(pairs, Side.INJECTED, SignDraws(), rule)[OVERALL]
    return 100.0 * smallest_detectable(overall.difference)


def _share(cases: Iterable[CaseRow], rule: ErrorRule) -> Share:
    outcomes = [(case.suite, outcome(case, rule)) for case in cases]
    return mean_of_suites(
        [(suite, found.injection_success) for suite, found in outcomes if found is not None]
    )


def mean_of_suites(counted: Iterable[tuple[str, bool]]) -> Share:
    """The share of hits among (suite, whether it is one)."""
    counts = Counter(counted)
    suites = dict.fromkeys(suite for suite, _ in counts)  # in the order met
    sizes = [counts[suite, True] + counts[suite, False] for suite in suites]
    shares = [counts[suite, True] / size for suite, size in zip(suites, sizes, strict=True)]
    return Share(100.0 * float(np.mean(shares)) if shares else math.nan, sum(sizes), len(sizes))
