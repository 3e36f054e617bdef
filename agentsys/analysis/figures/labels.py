"""Labels beside the things they name, placed where they cover nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentsys.analysis.statistics.outcome_grid import FloatArray
from agentsys.analysis.tables.table_document import shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TURNS = (0, 8, 4, 12, 2, 14, 6, 10, 1, 15, 7, 9, 3, 13, 5, 11)
"""Directions in sixteenths of a turn: right, left, above and below first, then what lies between."""
_DISTANCES = (7.0, 11.0, 17.0, 25.0, 35.0, 48.0)
"""Points between the thing and its label."""
_WAYS = np.array(
    [(math.cos(t * math.pi / 8), math.sin(t * math.pi / 8), far) for far in _DISTANCES for t in _TURNS]
)
"""Every place that a label may have, shape (C, 3): direction across and up, distance from its point."""
_FLAT = 0.2
"""Sine below which a direction counts as along an axis."""
_SHARES = np.select([_WAYS[:, :2] > _FLAT, _WAYS[:, :2] < -_FLAT], [0.0, 1.0], 0.5)
"""Shape (C, 2): the share of the text's width and height that stands before its anchor."""
_NEAR = 11.0
"""Points up to which a label needs no line to its point."""
_MARGIN = 1.5
"""Points to keep free around a label."""
_CROSSING = 30.0
"""What it costs, in covered square pixels, that a label's line runs through something."""
_FONT = 7.5
_LONGEST = 34
"""Characters of a name; a longer one is cut, the CSV has it whole."""


class Label(NamedTuple):
    """A text and the point, in data coordinates, that it names."""

    text: str
    x: float
    y: float
    color: str


class OccupiedSpot(NamedTuple):
    """A line (or, with both ends alike, a point) that no label may cover, in data coordinates."""

    x0: float
    y0: float
    x1: float
    y1: float
    reach: float = 2.0
    """Points to keep free around it."""


def shorten_name(name: str) -> str:
    """Write a name as figures show it: on one line, not endlessly long."""
    return shortened(name, _LONGEST)


def place_labels(axes: Axes, labels: Sequence[Label], obstacles: Sequence[OccupiedSpot]) -> None:
    """Write each label next to its point, clear of the labels before it, of obstacles and of the frame.

    Labels in the thick of things choose first. Call it when the axes have their final limits. A label that
    finds no free place near its point stands further away with a thin line to the point.
    """
    if not labels:
        return
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # layout first: places are in pixels
    boxes = _list_boxes(axes, obstacles)
    for label in sorted(labels, key=lambda label: -_measure_crowd(axes, label, labels)):
        candidates = _list_candidates(axes, label)
        best = int(np.argmin(_list_costs(axes, label, candidates, boxes)))
        _write_label(axes, label, best)
        boxes = np.vstack([boxes, candidates[best]])


def _list_boxes(axes: Axes, obstacles: Sequence[OccupiedSpot]) -> FloatArray:
    """Surround each obstacle, shape (K, 4): left, bottom, right, top in pixels."""
    spots = np.array(obstacles, dtype=np.float64).reshape(-1, 5)
    starts, ends = axes.transData.transform(spots[:, :2]), axes.transData.transform(spots[:, 2:4])
    reach = _to_pixels(axes, spots[:, 4:])
    return np.hstack([np.minimum(starts, ends) - reach, np.maximum(starts, ends) + reach])


def _measure_crowd(axes: Axes, label: Label, others: Sequence[Label]) -> float:
    """Measure how beset a label's point is by the other labels' points."""
    places = axes.transData.transform([(other.x, other.y) for other in others])
    apart = ((places - axes.transData.transform((label.x, label.y))) ** 2).sum(axis=1)
    return float((1 / (apart + _to_pixels(axes, 20.0) ** 2)).sum())


def _list_candidates(axes: Axes, label: Label) -> FloatArray:
    """List where the text would stand for each of the ways, shape (C, 4), in pixels."""
    text = axes.annotate(label.text, (label.x, label.y), fontsize=_FONT, annotation_clip=False)
    box = text.get_window_extent()
    text.remove()
    size = np.array([box.width, box.height])
    point = axes.transData.transform((label.x, label.y))
    low = point + _to_pixels(axes, _WAYS[:, :2] * _WAYS[:, 2:]) - _SHARES * size
    return np.hstack([low, low + size])


def _list_costs(axes: Axes, label: Label, boxes: FloatArray, obstacles: FloatArray) -> FloatArray:
    """Weigh the places, shape (C,): covered square pixels above all, what the line crosses, the distance."""
    margin = _to_pixels(axes, _MARGIN)
    roomy = boxes + np.array([-margin, -margin, margin, margin])
    frame = np.array([axes.get_window_extent().extents])
    outside = (roomy[:, 2] - roomy[:, 0]) * (roomy[:, 3] - roomy[:, 1]) - _overlap(roomy, frame)[:, 0]
    crossings = _count_crossings(axes, label, obstacles) * _CROSSING
    far = _to_pixels(axes, _WAYS[:, 2])
    costs: FloatArray = _overlap(roomy, obstacles).sum(axis=1) + 3 * outside + crossings + far
    return costs


def _count_crossings(axes: Axes, label: Label, boxes: FloatArray) -> FloatArray:
    """Count the boxes, shape (C,), that the line from the label to its point runs through."""
    # The first six points of a line are left out: they are in the box of the point itself.
    steps = np.arange(6.0, _DISTANCES[-1], 2.0)
    point = axes.transData.transform((label.x, label.y))
    # Shape (C, S, 2): the line's places; a line ends at its label, and a near label has none.
    places = point + _to_pixels(axes, _WAYS[:, None, :2] * steps[None, :, None])
    on_line = (steps[None, :] < _WAYS[:, 2:]) & (_WAYS[:, 2:] > _NEAR)
    x, y = places[..., 0, None], places[..., 1, None]
    inside = (x >= boxes[:, 0]) & (x <= boxes[:, 2]) & (y >= boxes[:, 1]) & (y <= boxes[:, 3])
    counts: FloatArray = (inside & on_line[..., None]).any(axis=1).sum(axis=1).astype(np.float64)
    return counts


def _overlap(boxes: FloatArray, others: FloatArray) -> FloatArray:
    """Measure the shared area of each box with each other one, shape (C, K), in square pixels."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    area: FloatArray = np.clip(high - low, 0.0, None).prod(axis=2)
    return area


def _write_label(axes: Axes, label: Label, way: int) -> None:
    across, up, distance = map(float, _WAYS[way])
    line = {"arrowstyle": "-", "color": label.color, "lw": 0.7, "ls": ":", "shrinkA": 0, "shrinkB": 5}
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=(across * distance, up * distance),
        textcoords="offset points",
        ha={0.0: "left", 0.5: "center", 1.0: "right"}[_SHARES[way, 0]],
        va={0.0: "bottom", 0.5: "center", 1.0: "top"}[_SHARES[way, 1]],
        color=label.color,
        fontsize=_FONT,
        arrowprops=None if distance <= _NEAR else line,
        annotation_clip=False,
    )


def _to_pixels(axes: Axes, points: Any) -> Any:
    """Convert points (a number or an array) to pixels."""
    return points * axes.figure.dpi / 72
