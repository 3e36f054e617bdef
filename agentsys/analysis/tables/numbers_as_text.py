"""How values and intervals are written in tables."""

from __future__ import annotations

import math
from typing import Protocol

MISSING = "n/a"
"""Where a value is undefined; never 0."""


class Measured(Protocol):
    """What can be written: a row of the long form, or a `Number`."""

    @property
    def value(self) -> float:
        """Percent."""

    @property
    def ci_low(self) -> float:
        """Percent."""

    @property
    def ci_high(self) -> float:
        """Percent."""


def value_text(number: Measured | None) -> str:
    """Two decimals, e.g. `30.66`."""
    return MISSING if number is None or math.isnan(number.value) else f"{number.value:.2f}"


def interval_text(number: Measured | None) -> str:
    """One decimal, e.g. `22.4-39.7` or `68.2-100`; empty where undefined."""
    if number is None or math.isnan(number.ci_low):
        return ""
    return f"{_bound(number.ci_low)}-{_bound(number.ci_high)}"


def _bound(value: float) -> str:
    """Without a decimal where there is only one such value: it keeps a column of intervals narrow."""
    return f"{value:.0f}" if value in (0.0, 100.0) else f"{value:.1f}"
