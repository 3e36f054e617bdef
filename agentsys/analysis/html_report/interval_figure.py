"""`IntervalFigure`: values and their intervals drawn side by side, as coordinates for the page's SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR, UTILITY_UNDER_ATTACK, MetricRow
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.escaping import plain
from agentsys.analysis.tables.results_layout import METRIC_TITLES, Line, Sheet
from agentsys.records.case_row import NO_ATTACK

_DRAWN = (BENIGN_UTILITY, UTILITY_UNDER_ATTACK, TARGETED_ASR)
_LABELS = 230
"""Width of the column of names."""
_PANEL, _GAP = 210, 46
_TOP, _ROW = 44, 44
_LONGEST_NAME = 30


@dataclass(frozen=True)
class Dot:
    """One value. Places are in the SVG's units."""

    x: float
    low: float
    high: float
    """Ends of the interval; both `x` where it is undefined."""
    label: str
    title: str
    """The same in words, for screen readers and as a tooltip."""


@dataclass(frozen=True)
class FigureRow:
    """One defense under one attack."""

    y: float
    defense: str
    attack: str
    """Empty where none was run."""
    dots: list[Dot]
    """One per panel that has a value."""


@dataclass(frozen=True)
class Panel:
    """One metric's axis from 0 to 100 percent."""

    title: str
    left: float
    right: float
    ticks: list[tuple[float, int]]
    """Place and percent."""


@dataclass(frozen=True)
class IntervalFigure:
    """Everything the template needs to draw it."""

    title: str
    width: int
    height: int
    top: int
    bottom: int
    panels: list[Panel]
    rows: list[FigureRow]


def interval_figure(sheet: Sheet) -> IntervalFigure:
    """Benign utility, utility under attack and targeted ASR of each line, over all suites."""
    present = {metric for line in sheet.lines for metric, suite in line.numbers if suite == OVERALL}
    metrics = [metric for metric in _DRAWN if metric in present]
    bottom = _TOP + _ROW * len(sheet.lines)
    return IntervalFigure(
        title=plain(sheet.title),
        width=_LABELS + len(metrics) * (_PANEL + _GAP),
        height=bottom + 28,
        top=_TOP,
        bottom=bottom,
        panels=[_panel(metric, place) for place, metric in enumerate(metrics)],
        rows=[_row(line, place, metrics) for place, line in enumerate(sheet.lines)],
    )


def _left(place: int) -> float:
    return _LABELS + place * (_PANEL + _GAP)


def _panel(metric: str, place: int) -> Panel:
    left = _left(place)
    ticks = [(left + _PANEL * percent / 100, percent) for percent in (0, 25, 50, 75, 100)]
    return Panel(METRIC_TITLES[metric], left, left + _PANEL, ticks)


def _row(line: Line, place: int, metrics: list[str]) -> FigureRow:
    dots = [
        _dot(number, _left(panel), f"{line.name}, {METRIC_TITLES[metric]}")
        for panel, metric in enumerate(metrics)
        if (number := line.numbers.get((metric, OVERALL))) is not None and not math.isnan(number.value)
    ]
    attack = "" if line.attack == NO_ATTACK else _short(line.attack)
    return FigureRow(_TOP + _ROW * (place + 0.5), _short(line.defense), attack, dots)


def _dot(number: MetricRow, left: float, about: str) -> Dot:
    def x(percent: float) -> float:
        return round(left + _PANEL * percent / 100, 2)

    known = not math.isnan(number.ci_low)
    interval = f", 95% interval {number.ci_low:.1f} to {number.ci_high:.1f}" if known else ""
    return Dot(
        x=x(number.value),
        low=x(number.ci_low if known else number.value),
        high=x(number.ci_high if known else number.value),
        label=f"{number.value:.1f}",
        title=plain(f"{about}: {number.value:.2f}%{interval}, n = {number.n}"),
    )


def _short(name: str) -> str:
    shown = plain(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 1]}…"
