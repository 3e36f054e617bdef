"""`Number`: a value in percent with its interval and the cases behind it."""

from __future__ import annotations

from typing import NamedTuple

from agentsys.analysis.metrics.rates import MetricRow, percent
from agentsys.analysis.statistics.estimate import Estimate
from agentsys.analysis.statistics.intervals import proportion_interval


class Number(NamedTuple):
    """One measured value, wherever it is shown."""

    value: float
    """Percent; nan where undefined."""
    ci_low: float
    """Percent: lower end of the 95% interval; nan where undefined."""
    ci_high: float
    n: int
    """Cases it rests on."""
    errors: int = 0
    """Errored cases among those that were to be counted."""


def number_of(estimate: Estimate) -> Number:
    """A proportion with its replicates -> percent with the interval."""
    interval = proportion_interval(estimate)
    return Number(
        percent(estimate.value),
        percent(interval.low),
        percent(interval.high),
        estimate.n,
        estimate.errors,
    )


def number_in(row: MetricRow) -> Number:
    """The number of a row of the long form."""
    return Number(row.value, row.ci_low, row.ci_high, row.n, row.errors)
