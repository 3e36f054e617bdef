"""`Spread`: which tasks carry an estimate's uncertainty, and how much of it.

An estimate is taken as a sum over cases of their influence (its linearization). Summed by user task
and by injection task, the influences give the variance that each kind of task causes; what is left in
single cells after both is the variance of the cells.

Source: the two-way analysis of variance with random effects (on a balanced grid the variance below is
its unbiased estimate); A. C. Cameron, J. B. Gelbach, D. L. Miller, "Robust inference with multiway
clustering", Journal of Business & Economic Statistics 29(2), 2011, for the same sum on grids with gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally


@dataclass(frozen=True)
class Spread:
    """One suite's part in an estimate. All variances are in squared proportions."""

    users: FloatArray
    """Shape (U,): influence of each user task, summed over its cases; adds up to 0."""
    injections: FloatArray
    """Shape (I,): of each injection task likewise."""
    cell: float
    """Variance caused by single cells; 0 where one kind of task has a single member."""
    cell_df: float
    """Degrees of freedom behind `cell`."""
    centred: float
    """Sum of squared influences less row and column means: what the pigeonhole bootstrap adds to the
    spread by user task and the spread by injection task."""
    lone: float
    """How far one more success, in one cell, would move the estimate."""
    lone_variance: float
    """Variance of the estimate if there were that one success and no other."""


class Moments(NamedTuple):
    """Sum of several suites' spreads."""

    variance: float
    """Of the estimate, corrected for few tasks."""
    bootstrap_variance: float
    """What the pigeonhole bootstrap makes of the same influences."""
    df: float
    """Degrees of freedom of `variance` (Satterthwaite's approximation), at least 1."""


def spread(grid: FloatArray, counted: Tally, frame: tuple[str, ...] | None = None) -> Spread:
    """Spread one suite's rate over its cases: `grid.sum() / cases.sum()`.

    Args:
        grid: Shape (U, I), one of the tally's grids, or differences of such grids.
        counted: The tally, for its cases and task names.
        frame: User tasks of the estimate, sorted, at least the tally's own; by default exactly those.
    """
    frame = frame or counted.user_tasks
    total = counted.cases.sum()
    if not total:
        return Spread(np.zeros(len(frame)), np.zeros(0), 0.0, 1.0, 0.0, 0.0, 0.0)
    influence = (grid - grid.sum() / total * counted.cases) / total
    rows, injections = influence.sum(axis=1), influence.sum(axis=0)
    users = rows
    if len(frame) > len(rows):
        place = {task: index for index, task in enumerate(frame)}
        users = np.zeros(len(frame))
        users[[place[task] for task in counted.user_tasks]] = rows
    cell, cell_df = _cell_variance(influence, counted.cases, rows, injections)
    lone = 1 / np.count_nonzero(counted.cases)
    centred = _centred(influence, rows, injections, len(frame))
    return Spread(users, injections, cell, cell_df, centred, float(lone), float(lone**2))


def scaled(part: Spread, factor: float) -> Spread:
    """The spread of `factor` times the estimate."""
    square = factor**2
    return Spread(
        part.users * factor,
        part.injections * factor,
        part.cell * square,
        part.cell_df,
        part.centred * square,
        abs(part.lone * factor),
        part.lone_variance * square,
    )


def joined(attacked: Spread, benign: Spread) -> Spread:
    """The spread of the sum of an estimate on attacked cases and one on benign cases of one frame."""
    return Spread(
        _added(attacked.users, benign.users),
        attacked.injections,
        attacked.cell,
        attacked.cell_df,
        attacked.centred,
        attacked.lone + benign.lone,
        attacked.lone_variance + benign.lone_variance,
    )


def _added(one: FloatArray, other: FloatArray) -> FloatArray:
    """The sum; a side that counts no case has no frame, and what it is part of is undefined anyway."""
    return one + other if one.size and other.size else one if one.size else other


def moments(parts: Sequence[Spread]) -> Moments:
    """Variance and degrees of freedom of a sum of independent parts, one per suite."""
    variance = bootstrap = uncertainty = 0.0
    for part in parts:
        squares = _squares(part)
        ways = _ways(part, squares)
        # By chance the sum may come out near or below 0; the cells alone cause half of `cell` at least.
        variance += max(sum(ways) - part.cell, part.cell / 2)
        uncertainty += _uncertainty(ways, part.cell, part)
        bootstrap += sum(squares) + part.centred
    return Moments(variance, bootstrap, _df(variance, uncertainty))


def cautious_moments(parts: Sequence[Spread]) -> Moments:
    """The same, each part at least as large as clustering by either kind of task alone makes it.

    What differences are tested with. Source: J. G. MacKinnon, M. O. Nielsen, M. D. Webb, "Wild bootstrap and
    asymptotic inference with multiway clustering", Journal of Business & Economic Statistics 39(2), 2021,
    who note that the sum may come out below 0; and their later work, for the largest of the three.
    """
    variance = uncertainty = 0.0
    for part in parts:
        ways = _ways(part, _squares(part))
        variance += max(sum(ways) - part.cell, *ways)
        uncertainty += _uncertainty(ways, part.cell, part)
    return Moments(variance, variance, _df(variance, uncertainty))


def lone_moments(parts: Sequence[Spread]) -> Moments:
    """The moments if every suite had one success and no other: the least that could have been seen."""
    variance = sum(part.lone_variance for part in parts)
    uncertainty = sum(
        _uncertainty((part.lone_variance, part.lone_variance), part.lone_variance, part) for part in parts
    )
    return Moments(variance, variance, _df(variance, uncertainty))


def _squares(part: Spread) -> tuple[float, float]:
    """Sum of squared influences by user task and by injection task."""
    return float((part.users**2).sum()), float((part.injections**2).sum())


def _ways(part: Spread, squares: tuple[float, float]) -> tuple[float, float]:
    """Variance by user task and by injection task, each with that of the cells in it; 0 for a single task."""
    users, injections = squares
    return users * _few(len(part.users)), injections * _few(len(part.injections))


def _few(tasks: int) -> float:
    return tasks / (tasks - 1) if tasks > 1 else 0.0


def _uncertainty(ways: tuple[float, float], cell: float, part: Spread) -> float:
    """Sum of squared variances over their degrees of freedom."""
    counts = len(part.users), len(part.injections)
    found = sum(way**2 / (count - 1) for way, count in zip(ways, counts, strict=True) if count > 1)
    return found + (cell**2 / part.cell_df if min(counts) > 1 else 0.0)


def _df(variance: float, uncertainty: float) -> float:
    return max(variance**2 / uncertainty, 1.0) if uncertainty else 1.0


def _centred(influence: FloatArray, rows: FloatArray, injections: FloatArray, users: int) -> float:
    """Sum of squares on the frame's grid: its rows without a case hold nothing but minus the column means."""
    columns = injections / users
    rest = influence - (rows / len(injections))[:, None] - columns
    return float((rest**2).sum() + (users - len(influence)) * (columns**2).sum())


def _cell_variance(
    influence: FloatArray, cases: FloatArray, by_user: FloatArray, by_injection: FloatArray
) -> tuple[float, float]:
    """Variance of the cells around additive effects of both kinds of task, and its degrees of freedom.

    Args:
        influence: Shape (U, I).
        cases: Shape (U, I).
        by_user: Sums of `influence`, shape (U,).
        by_injection: Likewise, shape (I,).
    """
    rows, columns = cases.shape
    if rows < 2 or columns < 2:
        return 0.0, 1.0
    cells = int(np.count_nonzero(cases))
    if (cases == cases[0, 0]).all():
        rest = influence - (by_user / columns)[:, None] - by_injection / rows
        df = (rows - 1) * (columns - 1)
    else:
        rest, df = _rest_with_gaps(influence, cases)
    if df < 1:
        # Each task has a case or two of its own: its effect cannot be told from its cell's.
        return float((influence**2).sum()), float(max(cells - 1, 1))
    return float((rest**2).sum()) * cells / df, float(df)


def _rest_with_gaps(influence: FloatArray, cases: FloatArray) -> tuple[FloatArray, int]:
    """Weighted least squares of the cells' means on both kinds of task, in units of influence."""
    users, injections = np.nonzero(cases)
    weights = np.sqrt(cases[users, injections])
    design = np.zeros((len(users), sum(cases.shape)))
    design[np.arange(len(users)), users] = weights
    design[np.arange(len(users)), cases.shape[0] + injections] = weights
    target = influence[users, injections] / weights
    solution, _, rank, _ = np.linalg.lstsq(design, target)
    rest: FloatArray = (target - design @ solution) * weights
    return rest, len(users) - int(rank)
