"""Drawing marks: filled with whiskers for ours, hollow for the paper's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agentsys.analysis.figures.labels import Label, OccupiedSpot, shown_name
from agentsys.analysis.figures.mark import PAPER, Mark
from agentsys.analysis.figures.style import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILLED, HOLLOW = 5.5, 8.5
"""Points across a marker; where ours falls on the paper's, the paper's shows as a ring."""


_CROWD = 8
"""Marks with whiskers in one panel, above which these are drawn thin."""


def is_crowded(marks: Iterable[Mark]) -> bool:
    """Whether so many marks of a panel have intervals that their whiskers would hide the points."""
    return sum(not math.isnan(mark.y_low) or not math.isnan(mark.x_low) for mark in marks) > _CROWD


def draw_point(axes: Axes, mark: Mark, look: Look, *, crowded: bool = False) -> None:
    """One mark where it stands. Colour and marker tell the series, the filling tells whose it is."""
    hollow = mark.origin == PAPER
    axes.plot(
        [mark.x],
        [mark.y],
        linestyle="none",
        marker=look.marker,
        markersize=HOLLOW if hollow else FILLED,
        markerfacecolor="white" if hollow else look.color,
        markeredgecolor=look.color,
        markeredgewidth=1.2,
        zorder=3 if hollow else 4,
    )
    draw_whiskers(axes, mark, look.color, crowded=crowded)


def draw_whiskers(axes: Axes, mark: Mark, color: str, *, crowded: bool = False) -> None:
    """The intervals of a mark, as far as it has any; thin and pale among many."""
    style: dict[str, Any] = {
        "color": color,
        "lw": 0.4 if crowded else 0.8,
        "alpha": 0.3 if crowded else 0.55,
        "zorder": 2,
    }
    if not math.isnan(mark.y_low):
        axes.plot([mark.x, mark.x], [mark.y_low, mark.y_high], **style)
    if not math.isnan(mark.x_low):
        axes.plot([mark.x_low, mark.x_high], [mark.y, mark.y], **style)


def point_labels(marks: Iterable[Mark], styles: Mapping[str, Look]) -> list[Label]:
    """A label per mark; where ours and the paper's stand side by side, the paper's says so."""
    listed = list(marks)
    ours = {mark.series for mark in listed if mark.origin != PAPER}
    return [
        Label(
            shown_name(mark.name) + (" (paper)" if mark.origin == PAPER and mark.series in ours else ""),
            mark.x,
            mark.y,
            styles[mark.series].color,
        )
        for mark in sorted(listed, key=lambda mark: mark.origin == PAPER)
    ]


def draw_lines(axes: Axes, marks: Sequence[Mark], styles: Mapping[str, Look]) -> list[Mark]:
    """Points, those of ours joined to a line per series, side by side where several share a place.

    Returns:
        The marks where they were drawn: ours are moved aside by a little.
    """
    series = series_of(mark for mark in marks if mark.origin != PAPER)
    drawn: list[Mark] = []
    for index, name in enumerate(series):
        aside = (index - (len(series) - 1) / 2) * min(0.14, 0.7 / len(series))
        mine = [replace(m, x=m.x + aside) for m in marks if m.series == name and m.origin != PAPER]
        mine.sort(key=lambda mark: mark.x)
        look = styles[name]
        axes.plot(
            [m.x for m in mine], [m.y for m in mine], color=look.color, ls=look.dashes, lw=1.1, zorder=2
        )
        drawn += mine
    drawn += [mark for mark in marks if mark.origin == PAPER]
    crowded = is_crowded(drawn)
    for mark in drawn:
        draw_point(axes, mark, styles[mark.series], crowded=crowded)
    return drawn


def line_labels(marks: Iterable[Mark], styles: Mapping[str, Look], *, at_end: bool = False) -> list[Label]:
    """One label per series, at the highest (or last) point of ours, else of the paper's."""
    chosen: dict[str, Mark] = {}

    def rank(mark: Mark) -> tuple[bool, float]:
        return mark.origin != PAPER, mark.x if at_end else mark.y

    for mark in marks:
        if mark.series not in chosen or rank(mark) > rank(chosen[mark.series]):
            chosen[mark.series] = mark
    return point_labels(chosen.values(), styles)


def line_obstacles(marks: Sequence[Mark]) -> list[OccupiedSpot]:
    """`obstacles`, and the lines between our points, as strings of small ones."""
    found = obstacles(marks)
    for name in series_of(marks):
        mine = [mark for mark in marks if mark.series == name and mark.origin != PAPER]
        for start, end in pairwise(mine):
            for step in range(1, _STEPS):
                x = start.x + (end.x - start.x) * step / _STEPS
                y = start.y + (end.y - start.y) * step / _STEPS
                found.append(OccupiedSpot(x, y, x, y))
    return found


_STEPS = 12
"""Into how many pieces a line between two points is cut."""


def obstacles(marks: Iterable[Mark]) -> list[OccupiedSpot]:
    """List the spots that the marks cover: markers and whiskers."""
    found: list[OccupiedSpot] = []
    for mark in marks:
        found.append(OccupiedSpot(mark.x, mark.y, mark.x, mark.y, reach=HOLLOW / 2))
        if not math.isnan(mark.y_low):
            found.append(OccupiedSpot(mark.x, mark.y_low, mark.x, mark.y_high))
        if not math.isnan(mark.x_low):
            found.append(OccupiedSpot(mark.x_low, mark.y, mark.x_high, mark.y))
    return found


def series_of(marks: Iterable[Mark]) -> list[str]:
    """The series, each once, in order."""
    return list(dict.fromkeys(mark.series for mark in marks))
