"""What is wrong with a drawn figure, measured on its artists: texts on each other, artists that are cut off."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox, BboxBase

from agentsys.analysis.figures.drawing import apply_style

_SLACK = 1.0
"""Points by which boxes may lie on each other: a box of text is higher than its letters."""
_WHISKER = 0.7
"""Width of an interval's line."""


def list_faults(figure: Figure) -> list[str]:
    """Lay a figure out and name every fault in it."""
    with apply_style():
        FigureCanvasAgg(figure).draw()
    return [
        *_list_overprinted(figure),
        *_list_cut(figure),
        *(fault for axes in figure.axes for fault in _list_hidden_intervals(axes)),
    ]


def list_shown_texts(figure: Figure) -> list[Text]:
    """Every text that is drawn; matplotlib keeps some for ticks that are out of view."""
    hidden = {
        label
        for axes in figure.axes
        for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
        if not min(low, high) <= tick.get_loc() <= max(low, high)
    }
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text)]
    return [text for text in texts if text.get_visible() and text.get_text().strip() and text not in hidden]


def _list_overprinted(figure: Figure) -> Iterator[str]:
    boxes = [(text.get_text(), text.get_window_extent()) for text in list_shown_texts(figure)]
    for axes in figure.axes:
        boxes.append((f"axes {axes.get_title(loc='left')}", axes.bbox))
        markers = [line for line in axes.lines if not line.get_clip_on() and _is_beside(line, axes)]
        boxes += [(f"marker {line.get_marker()}", line.get_window_extent()) for line in markers]
    inside = {text.get_text() for axes in figure.axes for text in axes.texts}
    for (name, first), (other, second) in combinations(boxes, 2):
        # Annotations stand inside their axes.
        if any(box.startswith("axes ") for box in (name, other)) and {name, other} & inside:
            continue
        if _overlap(figure, first, second):
            yield f"{name!r} is on {other!r}"


def _is_beside(line: Line2D, axes: Axes) -> bool:
    return line.get_transform() == axes.get_yaxis_transform()


def _overlap(figure: Figure, box: Bbox, other: Bbox) -> bool:
    shared, slack = Bbox.intersection(box, other), _SLACK * figure.dpi / 72
    return shared is not None and shared.width > slack and shared.height > slack


def _list_cut(figure: Figure) -> Iterator[str]:
    for text in list_shown_texts(figure):
        if not _holds(figure.bbox, text.get_window_extent(), 0):
            yield f"{text.get_text()!r} is cut by the page"
    for axes in figure.axes:
        for artist in (*axes.lines, *axes.patches):
            page = axes.bbox if artist.get_clip_on() else figure.bbox
            box = artist.get_window_extent()
            # Line2D counts its marker in, of which the half may stand over the edge of the axes.
            if not _holds(page, box, 6 * figure.dpi / 72):
                yield f"{artist} is cut in {axes.get_title(loc='left')!r}"


def _holds(page: BboxBase, box: Bbox, slack: float) -> bool:
    return (
        page.x0 - slack <= box.x0
        and box.x1 <= page.x1 + slack
        and page.y0 - slack <= box.y0
        and box.y1 <= page.y1 + slack
    )


def _list_hidden_intervals(axes: Axes) -> Iterator[str]:
    """Intervals that lie on another one, along their length."""
    ends = [
        line.get_transform().transform(line.get_xydata()) * 72 / axes.figure.dpi
        for line in axes.lines
        if line.get_linewidth() == _WHISKER and len(np.asarray(line.get_xydata())) == 2
    ]
    for first, second in combinations(ends, 2):
        for along, across in ((0, 1), (1, 0)):
            flat = all(abs(one[0][across] - one[1][across]) < 0.01 for one in (first, second))
            shared = min(max(first[:, along]), max(second[:, along])) - max(
                min(first[:, along]), min(second[:, along])
            )
            if flat and shared > 1 and abs(first[0][across] - second[0][across]) < _WHISKER:
                yield f"an interval lies on another one in {axes.get_title(loc='left')!r}"
