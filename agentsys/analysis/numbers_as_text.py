"""How values and intervals are written in tables."""

from __future__ import annotations

import math

from agentsys.analysis.metrics import MetricRow

MISSING = "n/a"
"""Where a value is undefined; never 0."""


def value_text(number: MetricRow | None) -> str:
    """Two decimals, e.g. `30.66`."""
    return MISSING if number is None or math.isnan(number.value) else f"{number.value:.2f}"


def interval_text(number: MetricRow | None) -> str:
    """One decimal, e.g. `22.4-39.7`; empty where undefined."""
    if number is None or math.isnan(number.ci_low):
        return ""
    return f"{number.ci_low:.1f}-{number.ci_high:.1f}"
