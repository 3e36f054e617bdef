"""Labels beside the things they name, placed where they cover nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from agentsys.analysis.statistics.outcome_grid import FloatArray
from agentsys.analysis.tables.escaping import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    return shortened(name, _LONGEST)


@dataclass(frozen=True)
class OccupiedSpot:
    """A line (or, with both ends alike, a point) that no label may cover, in data coordinates."""

    x0: float
    y0: float
    x1: float
    y1: float
    reach: float = 2.0
    """Points to keep free around it."""


def place_labels(axes: Axes, labels: Sequence[Label], obstacles: Sequence[OccupiedSpot]) -> None:
    """Write each label next to its point, clear of the labels before it, of obstacles and of the frame.

    Labels in the thick of things choose first.

    Call it when the axes have their final limits. A label that finds no free place near its point stands
    further away with a thin line to the point.
    """
    if not labels:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # layout first: places are in pixels
    taken = _boxes_around(axes, obstacles)
    for label in sorted(labels, key=lambda label: -_crowd(axes, label, labels)):
        boxes = _candidates(axes, label)
        best = int(np.argmin(_costs(axes, label, boxes, taken)))
        _write(axes, label, *_WAYS[best])
        taken = np.vstack([taken, boxes[best]])


_WAYS = [(across, up, distance) for distance in _DISTANCES for across, up in _DIRECTIONS]
"""Every place that a label may have: direction and distance from its point."""
_FLAT = 0.2
"""Sine below which a direction counts as along an axis."""
_MARGIN = 1.5
"""Points to keep free around a label."""
_CROSSING = 30.0
"""What it costs, in covered square pixels, that a label's line runs through something."""


def _boxes_around(axes: Axes, obstacles: Sequence[OccupiedSpot]) -> FloatArray:
    """Shape (K, 4): left, bottom, right, top in pixels."""
    if not obstacles:
        return np.zeros((0, 4))
    starts = axes.transData.transform([(one.x0, one.y0) for one in obstacles])
    ends = axes.transData.transform([(one.x1, one.y1) for one in obstacles])
    reach = _pixels(axes, np.array([[one.reach] for one in obstacles]))
    return np.hstack([np.minimum(starts, ends) - reach, np.maximum(starts, ends) + reach])


def _crowd(axes: Axes, label: Label, others: Sequence[Label]) -> float:
    """Measure how beset a label's point is by the other labels' points."""
    places = axes.transData.transform([(other.x, other.y) for other in others])
    apart = ((places - axes.transData.transform((label.x, label.y))) ** 2).sum(axis=1)
    return float((1 / (apart + _pixels(axes, 20.0) ** 2)).sum())


def _candidates(axes: Axes, label: Label) -> FloatArray:
    """Shape (C, 4): where the text would stand, in pixels, for each of the ways."""
    text = axes.annotate(label.text, (label.x, label.y), fontsize=_FONT, annotation_clip=False)
    box = text.get_window_extent()
    text.remove()
    x, y = axes.transData.transform((label.x, label.y))
    share = {"left": 0.0, "bottom": 0.0, "center": 0.5, "right": 1.0, "top": 1.0}
    corners = [
        (
            x + _pixels(axes, across * distance) - share[_horizontal(across)] * box.width,
            y + _pixels(axes, up * distance) - share[_vertical(up)] * box.height,
        )
        for across, up, distance in _WAYS
    ]
    low = np.array(corners)
    return np.hstack([low, low + np.array([box.width, box.height])])


def _costs(axes: Axes, label: Label, boxes: FloatArray, taken: FloatArray) -> FloatArray:
    """Shape (C,): covered square pixels above all; then what the line crosses; then how far away it is."""
    margin = _pixels(axes, _MARGIN)
    roomy = boxes + np.array([-margin, -margin, margin, margin])
    frame = np.array([axes.get_window_extent().extents])
    outside = (roomy[:, 2] - roomy[:, 0]) * (roomy[:, 3] - roomy[:, 1]) - _overlaps(roomy, frame)[:, 0]
    far = _pixels(axes, np.array([distance for _, _, distance in _WAYS]))
    crossed = _crossings(axes, label, taken) * _CROSSING
    costs: FloatArray = _overlaps(roomy, taken).sum(axis=1) + 3 * outside + crossed + far
    return costs


def _crossings(axes: Axes, label: Label, taken: FloatArray) -> FloatArray:
    """Shape (C,): how many boxes the line from the label to its point runs through, the point's excepted."""
    ways = np.array(_WAYS)
    steps = np.arange(6.0, _DISTANCES[-1], 2.0)
    point = axes.transData.transform((label.x, label.y))
    # Shape (C, S, 2): the line's places; a line ends at its label, and a near label has none.
    places = point + _pixels(axes, ways[:, None, :2] * steps[None, :, None])
    drawn = (steps[None, :] < ways[:, 2:]) & (ways[:, 2:] > _NEAR)
    x, y = places[..., 0, None], places[..., 1, None]
    inside = (x >= taken[:, 0]) & (x <= taken[:, 2]) & (y >= taken[:, 1]) & (y <= taken[:, 3])
    counted: FloatArray = (inside & drawn[..., None]).any(axis=1).sum(axis=1).astype(np.float64)
    return counted


def _overlaps(boxes: FloatArray, others: FloatArray) -> FloatArray:
    """Shape (C, K): shared area in square pixels of each box with each other one."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    shared: FloatArray = np.clip(high - low, 0.0, None).prod(axis=2)
    return shared


def _write(axes: Axes, label: Label, across: float, up: float, distance: float) -> None:
    line = {"arrowstyle": "-", "color": label.color, "lw": 0.7, "ls": ":", "shrinkA": 0, "shrinkB": 5}
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=(across * distance, up * distance),
        textcoords="offset points",
        ha=_horizontal(across),
        va=_vertical(up),
        color=label.color,
        fontsize=_FONT,
        arrowprops=None if distance <= _NEAR else line,
        annotation_clip=False,
    )


def _horizontal(across: float) -> str:
    return "left" if across > _FLAT else "right" if across < -_FLAT else "center"


def _vertical(up: float) -> str:
    return "bottom" if up > _FLAT else "top" if up < -_FLAT else "center"


def _pixels(axes: Axes, points: Any) -> Any:
    """Points (a number or an array) in pixels."""
    return points * axes.figure.dpi / 72
