"""Cases on the grid of user tasks and injection tasks: counted, resampled, and how its tasks spread a rate.

Cases of one user task stand or fall together, and so do cases of one injection task. The two-way cluster
bootstrap therefore draws both sets of tasks anew, independently of each other, and a case's weight is the
product of how often its two tasks were drawn.

Sources: A. B. Owen, "The pigeonhole bootstrap", Annals of Applied Statistics 1(2), 2007: it does not
underestimate the variance (on balanced grids it counts the variance inside a cell once more per way). Of
`Spread`: the two-way analysis of variance with random effects (on a balanced grid its sum is the unbiased
estimate); A. C. Cameron, J. B. Gelbach, D. L. Miller, "Robust inference with multiway clustering", Journal of
Business & Economic Statistics 29(2), 2011, for the same sum on grids with gaps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from agentsys.analysis.statistics.case_outcomes import NO_TEXT as NO_TEXT
from agentsys.analysis.statistics.case_outcomes import CountedOutcome as CountedOutcome
from agentsys.analysis.statistics.case_outcomes import ErrorRule as ErrorRule
from agentsys.analysis.statistics.case_outcomes import Side as Side
from agentsys.analysis.statistics.case_outcomes import find_outcome as find_outcome
from agentsys.analysis.statistics.case_outcomes import list_doubts as list_doubts
from agentsys.base.grouping import group_by
from agentsys.records.case_row import CaseRow

FloatArray = npt.NDArray[np.float64]
CONFIDENCE = 95.0
"""Percent."""
REPLICATES = 2000
"""Times that tasks are drawn anew."""


class Undecided(NamedTuple):
    """Cases whose end nobody knows (see `list_doubts`)."""

    cases: int = 0
    """All of them."""
    counted: int = 0
    """Those that are in the rates."""
    solved: int = 0
    """Of those, user task solved."""
    hijacked: int = 0
    """Of those, injection task carried out."""


_ALL_DECIDED = Undecided()


class Bounds(NamedTuple):
    """A rate if no undecided case is a success, and if all are; nan where there is no case."""

    low: float
    high: float
    undecided: int
    """Undecided cases among those that it rests on."""


@dataclass(frozen=True)
class Tally:
    """Counts per (user task, injection task). Benign cases, and attacks without a goal, have one column."""

    suite: str
    """Empty where suites stand in the place of user tasks (`stack_suites`)."""
    user_tasks: tuple[str, ...]
    """Sorted. Length U."""
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
    cells: tuple[int, ...] = ()
    """Of stacked suites, the cells with a case that each has."""
    undecided: Undecided = _ALL_DECIDED
    """Cases whose end nobody knows, counted above or not."""

    @cached_property
    def n(self) -> float:
        """Counted cases."""
        return float(self.cases.sum())

    def get_hits(self, side: Side) -> FloatArray:
        """Cases with an outcome; shape (U, I)."""
        return self.solved if side is Side.SOLVED else self.hijacked


def bound_rate(suites: Sequence[Tally], side: Side) -> Bounds:
    """Bound the rate of all cases of some suites together."""
    open_cases = sum(one.undecided.cases for one in suites)
    n = sum(one.n + one.undecided.cases - one.undecided.counted for one in suites)
    hits = sum(float(one.get_hits(side).sum()) - getattr(one.undecided, side.value) for one in suites)
    return Bounds(hits / n, (hits + open_cases) / n, open_cases) if n else Bounds(math.nan, math.nan, 0)


def tally_suites(cases: Iterable[CaseRow], rule: ErrorRule) -> dict[str, Tally]:
    """Suite -> its cases of one attack (or its benign ones); suites are sorted."""
    tallies = {}
    for suite, listed in sorted(group_by(cases, lambda case: case.suite).items()):
        counted = [
            (case.user_task_id, case.injection_task_id or "", *result)
            for case in listed
            if (result := find_outcome(case, rule)) is not None
        ]
        tally = tally_outcomes(suite, counted, sum(case.status == "error" for case in listed))
        doubted = [find_outcome(case, rule) for case in listed if list_doubts(case)]
        ends = [outcome for outcome in doubted if outcome is not None]
        hits = (sum(outcome[side] for outcome in ends) for side in range(len(CountedOutcome._fields)))
        tallies[suite] = (
            replace(tally, undecided=Undecided(len(doubted), len(ends), *hits)) if doubted else tally
        )
    return tallies


def tally_outcomes(suite: str, counted: Sequence[tuple[str, str, bool, bool]], errors: int = 0) -> Tally:
    """Count outcomes: user task, injection task, whether either was carried out."""
    users = tuple(sorted({user for user, *_ in counted}))
    injections = tuple(sorted({injection for _, injection, *_ in counted}))
    row = {name: index * len(injections) for index, name in enumerate(users)}
    column = {name: index for index, name in enumerate(injections)}
    cells = np.array([row[user] + column[injection] for user, injection, *_ in counted], dtype=np.intp)

    def make_grid(weights: list[bool] | None = None) -> FloatArray:
        flat = np.bincount(cells, weights, minlength=len(users) * len(injections))
        return flat.reshape(len(users), len(injections)).astype(np.float64)

    solved, hijacked = [one[2] for one in counted], [one[3] for one in counted]
    return Tally(suite, users, injections, make_grid(), make_grid(solved), make_grid(hijacked), errors)


def widen_tally(counted: Tally, user_tasks: tuple[str, ...]) -> Tally:
    """Draw a tally's user tasks from more of them (sorted, its own among them), which have no case in it."""
    if user_tasks == counted.user_tasks:
        return counted
    rows = [user_tasks.index(task) for task in counted.user_tasks]

    def widen(grid: FloatArray) -> FloatArray:
        wide = np.zeros((len(user_tasks), grid.shape[1]))
        wide[rows] = grid
        return wide

    cases, solved, hijacked = (widen(grid) for grid in (counted.cases, counted.solved, counted.hijacked))
    return replace(counted, user_tasks=user_tasks, cases=cases, solved=solved, hijacked=hijacked)


def stack_suites(suites: Sequence[Tally], shares: Sequence[float]) -> Tally:
    """Put suites in the place of user tasks, where each has a single one (or none): see `rate_estimates`.

    Args:
        suites: At least one of them has a case.
        shares: What each suite weighs; it counts as many cases as give it that share, its rates stay.
    """
    order = sorted(range(len(suites)), key=lambda at: suites[at].suite)
    total = sum(one.n for one in suites)
    factors = [share * total / one.n if one.n else 0.0 for one, share in zip(suites, shares, strict=True)]

    def make_column(name: str) -> FloatArray:
        return np.array([[factors[at] * getattr(suites[at], name).sum()] for at in order])

    return Tally(
        "",
        tuple(suites[at].suite for at in order),
        ("",),
        make_column("cases"),
        make_column("solved"),
        make_column("hijacked"),
        sum(one.errors for one in suites),
        cells=tuple(max(int(np.count_nonzero(suites[at].cases)), 1) for at in order),
    )


@dataclass(frozen=True)
class Interval:
    """Bounds in the unit of the values given; nan where undefined."""

    low: float
    high: float


@dataclass(frozen=True)
class Resampler:
    """Draws tasks. The same tasks of a suite get the same draws everywhere.

    So a cell's interval does not depend on what else is in the folder, and benign and attacked cases
    of the same user tasks move together, as they must in the defense quality.
    """

    replicates: int = REPLICATES
    seed: int = 0
    _totals: dict[Hashable, FloatArray] = field(default_factory=dict, repr=False)
    made: dict[Hashable, Any] = field(default_factory=dict, repr=False)
    """What was worked out of suites already: many cells have the same outcomes in one."""

    def draw_weights(self, suite: str, way: str, tasks: tuple[str, ...]) -> FloatArray:
        """Draw tasks: how often each one.

        Args:
            suite: The suite's name.
            way: `user`, `injection` or `suite`, drawn independently even where ids coincide.
            tasks: Length k, sorted.

        Returns:
            Shape (replicates, k); each row sums to k. All ones for a single task: nothing to draw from.
        """
        return _draw_weights(self.replicates, self.seed, (suite, way, *tasks))

    def compute_totals(self, grid: FloatArray, counted: Tally) -> FloatArray:
        """A grid's total in each replicate: made once for all cells that have the same one.

        Args:
            grid: Shape (U, I), one of the tally's grids.
            counted: The tally, for its task names.

        Returns:
            Shape (replicates,); nan where neither way has two tasks to draw from.
        """
        users, injections = counted.user_tasks, counted.injection_tasks
        key = (counted.suite, users, injections, grid.tobytes())
        if key not in self._totals:
            if not grid.size:
                total = np.zeros(self.replicates)
            elif len(users) < 2 and len(injections) < 2:
                total = np.full(self.replicates, np.nan)
            else:
                by_user = self.draw_weights(counted.suite, "user" if counted.suite else "suite", users)
                by_injection = self.draw_weights(counted.suite, "injection", injections)
                total = np.einsum("ri,ri->r", by_user @ grid, by_injection)
            self._totals[key] = total
        return self._totals[key]


@lru_cache(maxsize=64)  # for all who resample the same suites; most take 0.1 to 0.6 MB each way
def _draw_weights(replicates: int, seed: int, key: tuple[str, ...]) -> FloatArray:
    count = len(key) - 2
    if count < 2:
        return np.ones((replicates, count))
    generator = make_generator(str(seed), *key)
    return generator.multinomial(count, [1 / count] * count, size=replicates).astype(np.float64)


def make_generator(*key: str) -> np.random.Generator:
    """A generator of random numbers that are the same for the same key everywhere."""
    digest = hashlib.sha256("\0".join(key).encode("utf-8", "replace")).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "big"))


def compute_percentile_interval(draws: FloatArray) -> Interval:
    """The central 95% of the replicates that are defined; nan if none is.

    Args:
        draws: Shape (replicates,).
    """
    defined = draws[~np.isnan(draws)]
    if not len(defined):
        return Interval(np.nan, np.nan)
    tail = (100.0 - CONFIDENCE) / 2
    low, high = np.percentile(defined, [tail, 100.0 - tail])
    return Interval(float(low), float(high))


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

    @property
    def squares(self) -> tuple[float, float]:
        """Sum of squared influences by user task and by injection task."""
        return float((self.users**2).sum()), float((self.injections**2).sum())

    @property
    def ways(self) -> tuple[float, ...]:
        """Variance by user task and by injection task, each with its cells'; 0 for a single task."""
        counts = len(self.users), len(self.injections)
        both = zip(self.squares, counts, strict=True)
        return tuple(square * (count / (count - 1)) if count > 1 else 0.0 for square, count in both)

    def compute_uncertainty(self, ways: Sequence[float], cell: float) -> float:
        """Sum of such variances, squared, over their degrees of freedom."""
        counts = len(self.users), len(self.injections)
        variance = sum(way**2 / (count - 1) for way, count in zip(ways, counts, strict=True) if count > 1)
        return variance + (cell**2 / self.cell_df if min(counts) > 1 else 0.0)


class Moments(NamedTuple):
    """Sum of several suites' spreads."""

    variance: float
    """Of the estimate, corrected for few tasks."""
    bootstrap_variance: float
    """What the pigeonhole bootstrap makes of the same influences."""
    df: float
    """Degrees of freedom of `variance` (Satterthwaite's approximation), at least 1."""


def make_spread(grid: FloatArray, counted: Tally) -> Spread:
    """Spread one suite's rate over its cases: `grid.sum() / cases.sum()`.

    Args:
        grid: Shape (U, I), one of the tally's grids, or differences of such grids.
        counted: The tally, for its cases.
    """
    if not counted.n:
        return Spread(np.zeros(len(grid)), np.zeros(0), 0.0, 1.0, 0.0, 0.0, 0.0)
    influence = (grid - grid.sum() / counted.n * counted.cases) / counted.n
    users, injections = influence.sum(axis=1), influence.sum(axis=0)
    centred = influence - (users / len(injections))[:, None] - injections / len(users)
    cells = np.array(counted.cells or [np.count_nonzero(counted.cases)])
    lone = 1 / (len(cells) * cells)
    return Spread(
        users,
        injections,
        *_compute_cell_variance(influence, counted.cases),
        centred=float((centred**2).sum()),
        lone=float(lone.sum()),
        lone_variance=float((lone**2).sum()),
    )


def scale_spread(part: Spread, factor: float) -> Spread:
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


def add_spreads(attacked: Spread, benign: Spread) -> Spread:
    """The spread of a sum: an estimate on attacked cases and one on benign cases of the same user tasks."""
    return replace(
        attacked,
        # A side that counts no case has no tasks, and what it is part of is undefined anyway.
        users=attacked.users + benign.users if attacked.users.size == benign.users.size else np.zeros(0),
        lone=attacked.lone + benign.lone,
        lone_variance=attacked.lone_variance + benign.lone_variance,
    )


def sum_moments(parts: Sequence[Spread], *, cautious: bool = False) -> Moments:
    """Variance and degrees of freedom of a sum of independent parts, one per suite.

    Args:
        parts: The parts.
        cautious: Whether each is at least as large as clustering by either kind of task alone makes it: what
            differences are tested with. Source: J. G. MacKinnon, M. O. Nielsen, M. D. Webb, "Wild bootstrap and
            asymptotic inference with multiway clustering", Journal of Business & Economic Statistics 39(2),
            2021, who note that the sum may come out below 0; and their later work, for the largest of the three.
    """
    variance = bootstrap = uncertainty = 0.0
    for part in parts:
        ways = part.ways
        # By chance the sum may come out near or below 0; the cells alone cause half of `cell` at least.
        variance += max(sum(ways) - part.cell, *(ways if cautious else (part.cell / 2,)))
        uncertainty += part.compute_uncertainty(ways, part.cell)
        bootstrap += sum(part.squares) + part.centred
    return Moments(variance, bootstrap, _compute_df(variance, uncertainty))


def compute_lone_moments(parts: Sequence[Spread]) -> Moments:
    """The moments if every suite had one success and no other: the least that could have been seen."""
    variance = sum(part.lone_variance for part in parts)
    uncertainty = sum(
        part.compute_uncertainty((part.lone_variance,) * 2, part.lone_variance) for part in parts
    )
    return Moments(variance, variance, _compute_df(variance, uncertainty))


def _compute_df(variance: float, uncertainty: float) -> float:
    return max(variance**2 / uncertainty, 1.0) if uncertainty else 1.0


def _compute_cell_variance(influence: FloatArray, cases: FloatArray) -> tuple[float, float]:
    """Variance of the cells around additive effects of both kinds of task, and its degrees of freedom."""
    run = cases.any(axis=1)
    if not run.all():
        influence, cases = influence[run], cases[run]
    rows, columns = cases.shape
    if rows < 2 or columns < 2:
        return 0.0, 1.0
    cells = int(np.count_nonzero(cases))
    if (cases == cases[0, 0]).all():
        by_user, by_injection = influence.sum(axis=1), influence.sum(axis=0)
        rest = influence - (by_user / columns)[:, None] - by_injection / rows
        df = (rows - 1) * (columns - 1)
    else:
        rest, df = _fit_rest_with_gaps(influence, cases)
    if df < 1:
        # Each task has a case or two of its own: its effect cannot be told from its cell's.
        return float((influence**2).sum()), float(max(cells - 1, 1))
    return float((rest**2).sum()) * cells / df, float(df)


def _fit_rest_with_gaps(influence: FloatArray, cases: FloatArray) -> tuple[FloatArray, int]:
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
