"""`Tally`: one suite's cases counted on the grid of user tasks and injection tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from agentsys.analysis.statistics.error_rule import CountedOutcome, ErrorRule, outcome
from agentsys.base.grouping import group_by
from agentsys.records.case_row import CaseRow

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tally:
    """Counts per (user task, injection task). Benign cases, and attacks without a goal, have one column."""

    suite: str
    user_tasks: tuple[str, ...]
    """Sorted; those with a counted case. Length U."""
    injection_tasks: tuple[str, ...]
    """Sorted likewise; `""` stands for no injection task. Length I."""
    cases: FloatArray
    """Shape (U, I): counted cases, epochs added up."""
    solved: FloatArray
    """Shape (U, I): of these, user task solved."""
    hijacked: FloatArray
    """Shape (U, I): of these, injection task carried out."""
    errors: int
    """Errored cases, counted above or not."""


def tallies(cases: Iterable[CaseRow], rule: ErrorRule) -> dict[str, Tally]:
    """Suite -> its cases of one attack (or its benign ones); suites are sorted."""
    by_suite = group_by(cases, attrgetter("suite"))
    return {suite: tally(suite, by_suite[suite], rule) for suite in sorted(by_suite)}


def tally(suite: str, cases: Iterable[CaseRow], rule: ErrorRule) -> Tally:
    """Counts one suite's cases of one attack (or its benign ones)."""
    listed = list(cases)
    counted = [(case, result) for case in listed if (result := outcome(case, rule)) is not None]
    users = tuple(sorted({case.user_task_id for case, _ in counted}))
    injections = tuple(sorted({case.injection_task_id or "" for case, _ in counted}))
    return Tally(
        suite,
        users,
        injections,
        *_counts(counted, users, injections),
        errors=sum(case.status == "error" for case in listed),
    )


def _counts(
    counted: Sequence[tuple[CaseRow, CountedOutcome]], users: tuple[str, ...], injections: tuple[str, ...]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    row = {name: index * len(injections) for index, name in enumerate(users)}
    column = {name: index for index, name in enumerate(injections)}
    cells = [row[case.user_task_id] + column[case.injection_task_id or ""] for case, _ in counted]
    places = np.array(cells, dtype=np.intp)

    def grid(weights: Sequence[bool] | None = None) -> FloatArray:
        flat = np.bincount(places, weights, minlength=len(users) * len(injections))
        return flat.reshape(len(users), len(injections)).astype(np.float64)

    solved, hijacked = zip(*(result for _, result in counted), strict=True) if counted else ((), ())
    return grid(), grid(solved), grid(hijacked)
