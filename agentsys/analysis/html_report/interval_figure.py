"""`IntervalFigure`: values and their intervals drawn side by side, as coordinates for the page's SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from agentsys.analysis.metrics.rates import DEFENSE_QUALITY, MetricRow
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.escaping import plain, shortened
from agentsys.analysis.tables.results_layout import ResultsLine, Sheet
from agentsys.records.case_row import NO_ATTACK

_NOT_DRAWN = frozenset({DEFENSE_QUALITY})
"""The product of two metrics that are drawn."""
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
    """Draw each rate of each line, over all suites."""
    present = {metric for line in sheet.lines for metric, suite in line.numbers if suite == OVERALL}
    titles = {metric: title for metric, title in sheet.titles.items() if metric in present - _NOT_DRAWN}
    bottom = _TOP + _ROW * len(sheet.lines)
    return IntervalFigure(
        title=plain(sheet.title),
        width=_LABELS + len(titles) * (_PANEL + _GAP),
        height=bottom + 28,
        top=_TOP,
        bottom=bottom,
        panels=[_panel(title, place) for place, title in enumerate(titles.values())],
        rows=[_row(line, place, titles) for place, line in enumerate(sheet.lines)],
    )


def _left(place: int) -> float:
    return _LABELS + place * (_PANEL + _GAP)


def _panel(title: str, place: int) -> Panel:
    left = _left(place)
    ticks = [(left + _PANEL * percent / 100, percent) for percent in (0, 25, 50, 75, 100)]
    return Panel(title, left, left + _PANEL, ticks)


def _row(line: ResultsLine, place: int, titles: Mapping[str, str]) -> FigureRow:
    dots = [
        _dot(number, _left(panel), f"{line.name}, {title}")
        for panel, (metric, title) in enumerate(titles.items())
        if (number := line.numbers.get((metric, OVERALL))) is not None and not math.isnan(number.value)
    ]
    attack = "" if line.attack == NO_ATTACK else short_name(line.attack)
    return FigureRow(_TOP + _ROW * (place + 0.5), short_name(line.defense), attack, dots)


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


def short_name(name: str) -> str:
    """Cut a name to what the column of names has room for."""
    return shortened(name, _LONGEST_NAME)
