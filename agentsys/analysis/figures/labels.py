"""Labels beside the things they name, placed where they cover nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentsys.analysis.escaping import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_TURNS = (0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11)
_DIRECTIONS = tuple((math.cos(turn * math.pi / 8), math.sin(turn * math.pi / 8)) for turn in _TURNS)
"""Right, left, above and below first, then what lies between."""
_DISTANCES = (7.0, 11.0, 17.0, 25.0, 35.0, 48.0)
"""Points between the thing and its label."""
_NEAR = 11.0
"""Up to here a label needs no line to its point."""
_FONT = 7.5
_LONGEST = 34
"""Characters of a name; a longer one is cut, the CSV has it whole."""


@dataclass(frozen=True)
class Label:
    """A text and the point, in data coordinates, that it names."""

    text: str
    x: float
    y: float
    color: str


def shown_name(name: str) -> str:
    """A name as figures show it: on one line, not endlessly long."""
    shown = plain(name)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


@dataclass(frozen=True)
class Obstacle:
    """A line (or, with both ends alike, a point) that no label may cover, in data coordinates."""

    x0: float
    y0: float
    x1: float
    y1: float
    reach: float = 2.0
    """Points to keep free around it."""


@dataclass(frozen=True)
class _Place:
    """Where a label may stand."""

    label: Label
    across: float
    up: float
    distance: float

    @property
    def offset(self) -> tuple[float, float]:
        """Points from the named point to the text's nearest edge."""
        return self.across * self.distance, self.up * self.distance

    @property
    def horizontal(self) -> str:
        return "left" if self.across > _FLAT else "right" if self.across < -_FLAT else "center"

    @property
    def vertical(self) -> str:
        return "bottom" if self.up > _FLAT else "top" if self.up < -_FLAT else "center"


_FLAT = 0.2
"""Sine below which a direction counts as along an axis."""


def place_labels(axes: Axes, labels: Sequence[Label], obstacles: Sequence[Obstacle]) -> None:
    """Write each label next to its point, clear of the labels before it, of obstacles and of the frame.

    Call it when the axes have their final limits. A label that finds no free place near its point stands
    further away with a thin line to the point.

    Args:
        axes: Where.
        labels: In any order; those in the thick of things choose first.
        obstacles: Everything drawn that no label may cover.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # layout first: places are in pixels
    taken = [_around(axes, obstacle) for obstacle in obstacles]
    for label in sorted(labels, key=lambda label: -_crowd(axes, label, labels)):
        places = [_Place(label, *way, distance) for distance in _DISTANCES for way in _DIRECTIONS]
        sizes = _size(axes, label)
        costs = [_cost(axes, place, sizes, taken) for place in places]
        best = places[costs.index(min(costs))]
        _write(axes, best)
        taken.append(_box(axes, best, sizes))


def _crowd(axes: Axes, label: Label, others: Sequence[Label]) -> float:
    """How beset a label's point is by the other labels' points."""
    places = axes.transData.transform([(other.x, other.y) for other in others])
    apart = ((places - axes.transData.transform((label.x, label.y))) ** 2).sum(axis=1)
    return float((1 / (apart + _pixels(axes, 20.0) ** 2)).sum())


def _around(axes: Axes, obstacle: Obstacle) -> Bbox:
    from matplotlib.transforms import Bbox

    ends = axes.transData.transform([(obstacle.x0, obstacle.y0), (obstacle.x1, obstacle.y1)])
    return Bbox([ends.min(axis=0), ends.max(axis=0)]).padded(_pixels(axes, obstacle.reach))


def _cost(axes: Axes, place: _Place, size: tuple[float, float], taken: Sequence[Bbox]) -> float:
    """Covered square pixels above all; then what the line crosses; then how far away it is."""
    box = _box(axes, place, size)
    roomy = box.padded(_pixels(axes, 1.5))
    covered = sum(_overlap(roomy, other) for other in taken)
    outside = roomy.width * roomy.height - _overlap(roomy, axes.get_window_extent())
    crossed = 0.0
    if place.distance > _NEAR:
        crossed = sum(_crosses(axes, place, other) for other in taken) * 30.0
    return covered + 3 * outside + crossed + _pixels(axes, place.distance)


def _crosses(axes: Axes, place: _Place, other: Bbox) -> bool:
    """Whether the line from the label to its point runs through a box, near the point excepted."""
    x, y = axes.transData.transform((place.label.x, place.label.y))
    steps = [_pixels(axes, step) for step in range(6, int(place.distance), 2)]
    return any(other.contains(x + place.across * step, y + place.up * step) for step in steps)


def _write(axes: Axes, place: _Place) -> None:
    label, near = place.label, place.distance <= _NEAR
    line = {"arrowstyle": "-", "color": label.color, "lw": 0.7, "ls": ":", "shrinkA": 0, "shrinkB": 5}
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=place.offset,
        textcoords="offset points",
        ha=place.horizontal,
        va=place.vertical,
        color=label.color,
        fontsize=_FONT,
        arrowprops=None if near else line,
        annotation_clip=False,
    )


def _size(axes: Axes, label: Label) -> tuple[float, float]:
    """Width and height of the text in pixels."""
    text = axes.annotate(label.text, (label.x, label.y), fontsize=_FONT, annotation_clip=False)
    box = text.get_window_extent()
    text.remove()
    return box.width, box.height


def _box(axes: Axes, place: _Place, size: tuple[float, float]) -> Bbox:
    """Where the text would stand, in pixels."""
    from matplotlib.transforms import Bbox

    x, y = axes.transData.transform((place.label.x, place.label.y))
    left = (
        x
        + _pixels(axes, place.offset[0])
        - {"left": 0.0, "center": 0.5, "right": 1.0}[place.horizontal] * size[0]
    )
    low = (
        y
        + _pixels(axes, place.offset[1])
        - {"bottom": 0.0, "center": 0.5, "top": 1.0}[place.vertical] * size[1]
    )
    return Bbox.from_bounds(left, low, *size)


def _pixels(axes: Axes, points: float) -> float:
    return points * axes.figure.dpi / 72


def _overlap(box: Bbox, other: Bbox) -> float:
    """Shared area in square pixels."""
    wide = min(box.x1, other.x1) - max(box.x0, other.x0)
    high = min(box.y1, other.y1) - max(box.y0, other.y0)
    return wide * high if wide > 0 and high > 0 else 0.0
