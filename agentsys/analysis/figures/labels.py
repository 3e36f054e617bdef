"""Labels beside the things they name, placed where they cover nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentsys.analysis.escaping import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Bbox

_DIRECTIONS = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
_DISTANCES = (6.0, 11.0, 17.0, 25.0, 35.0, 48.0)
"""Points between the thing and its label, nearest first."""
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


def place_labels(axes: Axes, labels: Sequence[Label], points: Sequence[tuple[float, float]]) -> None:
    """Write each label next to its point, clear of the labels before it, of all points and of the frame.

    Call it when the axes have their final limits. A label that finds no free place near its point is
    put at the best far one with a thin line to the point.

    Args:
        axes: Where.
        labels: In order of importance.
        points: Everything drawn that no label may cover, in data coordinates.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # layout first: places are in pixels
    taken = [_around(axes, point) for point in points]
    for label in labels:
        taken.append(_place(axes, label, taken))


def _around(axes: Axes, point: tuple[float, float]) -> Bbox:
    from matplotlib.transforms import Bbox

    x, y = axes.transData.transform(point)
    half = axes.figure.dpi * 4.0 / 72
    return Bbox([[x - half, y - half], [x + half, y + half]])


def _place(axes: Axes, label: Label, taken: Sequence[Bbox]) -> Bbox:
    frame = axes.get_window_extent()
    best: tuple[float, float, float, float] | None = None
    for distance in _DISTANCES:
        for across, up in _DIRECTIONS:
            box = _box(axes, label, across, up, distance)
            cost = sum(_overlap(box, other) for other in taken) + 3 * _outside(box, frame)
            if best is None or cost < best[0]:
                best = (cost, across, up, distance)
        if best is not None and best[0] <= 0:
            break
    assert best is not None
    _, across, up, distance = best
    _write(axes, label, across, up, distance)
    return _box(axes, label, across, up, distance)


def _write(axes: Axes, label: Label, across: float, up: float, distance: float) -> None:
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=(across * distance, up * distance),
        textcoords="offset points",
        ha=_horizontal(across),
        va=_vertical(up),
        color=label.color,
        fontsize=7.5,
        arrowprops=(
            {"arrowstyle": "-", "color": label.color, "lw": 0.5, "shrinkA": 0, "shrinkB": 3}
            if distance > _DISTANCES[1]
            else None
        ),
        annotation_clip=False,
    )


def _horizontal(across: float) -> str:
    return "left" if across > 0 else "right" if across < 0 else "center"


def _vertical(up: float) -> str:
    return "bottom" if up > 0 else "top" if up < 0 else "center"


def _box(axes: Axes, label: Label, across: float, up: float, distance: float) -> Bbox:
    """Where the text would stand, in pixels."""
    text = axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=(across * distance, up * distance),
        textcoords="offset points",
        ha=_horizontal(across),
        va=_vertical(up),
        fontsize=7.5,
        annotation_clip=False,
    )
    box = text.get_window_extent()
    text.remove()
    return box


def _overlap(box: Bbox, other: Bbox) -> float:
    """Shared area in square pixels."""
    wide = min(box.x1, other.x1) - max(box.x0, other.x0)
    high = min(box.y1, other.y1) - max(box.y0, other.y0)
    return wide * high if wide > 0 and high > 0 else 0.0


def _outside(box: Bbox, frame: Bbox) -> float:
    return box.width * box.height - _overlap(box, frame)
