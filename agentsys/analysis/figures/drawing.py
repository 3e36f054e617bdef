"""Look of the figures and how marks are drawn: filled with whiskers for ours, hollow for the paper's."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from agentsys.analysis.figures.figure_data import CONTROL_SUFFIX, PAPER, Look, Mark, write_marks_csv

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Transform

    DrawPanel = Callable[[Axes, str, list[Mark], Mapping[str, Look]], None]
    """Draws the panel named. It has the marks of all bands, for the limits, and the looks of this band's series."""

RC: Any = {
    # Type 42 (TrueType) is embedded in full and stays text; journals refuse matplotlib's Type 3.
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    # A name from a file is text, never TeX or mathtext.
    "text.usetex": False,
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
}
"""matplotlib settings, in force while a figure is drawn and saved (`matplotlib.rc_context`)."""
INK = "#222222"
"""Text and outlines."""
FAINT = "#666666"
"""Intervals, notes."""
FILLED_SIZE, HOLLOW_SIZE = 5.5, 8.5
"""Points across a marker; where ours falls on the paper's, the paper's shows as a ring."""
_WIDTH = 7.2
"""Inches of a page's text."""
_PANEL = (150.0, 165.0)
"""Points of print across and up, as the layout engine will make a panel of marks, more or less."""
_LINE = 0.15
"""Inches of a line of the title or the notes."""


class Layout(NamedTuple):
    """Room that a figure has; the page grows with its series."""

    height: float
    """Inches of a band, without title and notes."""
    row_height: float = 0.0
    """Inches more for each series."""
    most: int = 6
    """Series in a band."""
    legend: bool = True
    """Whether series are named beside the panels, not at an axis."""


class DrawnFigure(NamedTuple):
    """A figure and what is plotted in it."""

    name: str
    """The files' stem, e.g. `figure3`."""
    figure: Figure
    marks: Sequence[Mark]


def save_figure(drawn: DrawnFigure, folder: Path) -> list[Path]:
    """Write PDF, PNG and the plotted numbers into a folder, which is made if it is not there.

    Returns:
        The three files. The same figure gives the same bytes: no date is put into them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pdf, png, numbers = (folder / f"{drawn.name}.{kind}" for kind in ("pdf", "png", "csv"))
    with apply_style():
        drawn.figure.savefig(pdf, metadata={"CreationDate": None})
        drawn.figure.savefig(png, dpi=200, metadata={"Software": None})
    numbers.write_text(write_marks_csv(drawn.marks), encoding="utf-8")
    return [pdf, png, numbers]


def apply_style() -> AbstractContextManager[None]:
    """Put our settings in force, for the block it opens only."""
    import matplotlib

    return matplotlib.rc_context(RC)


def draw_panels(
    panels: Mapping[str, str],
    marks: Sequence[Mark],
    looks: Mapping[str, Look],
    draw: DrawPanel,
    layout: Layout,
    words: tuple[str, Sequence[str], Sequence[str]],
) -> Figure:
    """Draw panels side by side; where there are many series, in several bands below each other.

    Args:
        panels: Panel of a mark -> heading.
        marks: What is drawn, each in its panel; a control's in that of its attack.
        looks: Look of each series, in the order in which they are drawn.
        draw: Draws the marks of one panel and band into its axes.
        layout: The room there is for it.
        words: The title, lines to be read with it, and notes below. Long lines are wrapped.
    """
    from matplotlib.figure import Figure

    title, subtitle, notes = words
    above = [title, *(line for text in subtitle for line in textwrap.wrap(text, int(_WIDTH * 15)))]
    below = [line for text in notes for line in textwrap.wrap(text, int(_WIDTH * 19))]
    count = max(1, math.ceil(len(looks) / layout.most))
    bands = [[str(name) for name in some] for some in np.array_split(list(looks), count)]
    heights = [layout.height + layout.row_height * len(band) for band in bands]
    size = (_WIDTH, sum(heights) + _LINE * (len(above) + len(below)))
    figure = Figure(figsize=size, layout="constrained")
    # One text: the layout engine keeps room for a suptitle of any height, and for no second one.
    figure.suptitle("\n".join(above), x=0.01, ha="left", fontsize=9, color=INK)
    figure.supxlabel("\n".join(below), x=0.01, ha="left", fontsize=7, color=FAINT)
    every = figure.subplots(count, len(panels), squeeze=False, height_ratios=heights)
    for index, (band, row) in enumerate(zip(bands, every, strict=True)):
        for axes, panel in zip(row, panels, strict=True):
            mine = [mark for mark in marks if mark.panel.removesuffix(CONTROL_SUFFIX) == panel]
            draw(axes, panel, mine, {name: looks[name] for name in band})
            if index < count - 1:
                axes.set_xlabel("")
        if layout.legend:
            _add_legend(row[-1], [looks[name] for name in band])
    for axes, heading in zip(every[0], panels.values(), strict=True):
        wrapped = textwrap.fill(heading, int(_WIDTH * 7 / len(panels)))
        axes.set_title(wrapped, loc="left", fontsize=9, fontweight="bold", color=INK)
    return figure


def _add_legend(axes: Axes, looks: Iterable[Look]) -> None:
    """Name the series of a band at its right, where the layout engine makes room."""
    from matplotlib.lines import Line2D

    lines = [
        Line2D([], [], color=look.color, ls=look.dashes, label=look.label, **_style_marker(look))
        for look in looks
    ]
    axes.legend(handles=lines, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=2.2, markerscale=0.9)


def remove_words(figure: Figure, *, simulated: bool) -> None:
    """Take title and notes out, for a paper with a caption of its own; a simulation's mark stays."""
    figure.suptitle("SIMULATED" if simulated else "", x=0.01, ha="left", fontsize=7, color=INK)
    figure.supxlabel("")


def _style_marker(look: Look, *, hollow: bool = False) -> dict[str, Any]:
    if hollow:
        return {"marker": look.marker, "ms": HOLLOW_SIZE, "mfc": "white", "mec": look.color, "mew": 1.2}
    halves: Any = {"mfc": look.color, "fillstyle": look.fill, "markerfacecoloralt": "white"}
    return {"marker": look.marker, "ms": FILLED_SIZE, "mec": look.color, "mew": 1.2, **halves}


def draw_point(axes: Axes, mark: Mark, look: Look, transform: Transform | None = None) -> None:
    """Draw one mark where it stands, or beside it as `transform` says.

    Colour, marker and half filling tell the series, hollow marks are the paper's.
    """
    hollow = mark.origin == PAPER
    style: Any = {"zorder": 3 if hollow else 4, "clip_on": False, "transform": transform or axes.transData}
    axes.plot([mark.x], [mark.y], ls="none", **_style_marker(look, hollow=hollow), **style)
    draw_whiskers(axes, mark, look.color, look.dashes, transform)


def draw_whiskers(
    axes: Axes, mark: Mark, color: str, dashes: Any = "-", transform: Transform | None = None
) -> None:
    """Draw the intervals of a mark, as far as it has any."""
    style: Any = {"color": color, "ls": dashes, "zorder": 2, "lw": 0.7, "alpha": 0.6}
    style["transform"] = transform or axes.transData
    if not math.isnan(mark.y_low):
        axes.plot([mark.x, mark.x], [mark.y_low, mark.y_high], **style)
    if not math.isnan(mark.x_low):
        axes.plot([mark.x_low, mark.x_high], [mark.y, mark.y], **style)


def draw_name_marker(axes: Axes, row: float, look: Look) -> None:
    """Draw a series' marker between its name at the axis and its row, which makes the names a legend."""
    from matplotlib.transforms import ScaledTranslation

    left = ScaledTranslation(-(1 + FILLED_SIZE) / 72, 0, axes.figure.dpi_scale_trans)
    style: Any = {"transform": axes.get_yaxis_transform() + left, "clip_on": False}
    axes.plot([0], [row], ls="none", **_style_marker(look), **style)


def draw_scatter(axes: Axes, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw points of the series that have a look, over pale ones of the others. The limits must be set before.

    Points that would cover each other, or lie on each other's intervals, are moved apart by some points of print.
    """
    from matplotlib.transforms import ScaledTranslation

    figure = axes.get_figure(root=True)
    assert figure is not None
    others = [mark for mark in marks if mark.series not in looks and mark.origin != PAPER]
    for mark in others:
        axes.plot([mark.x], [mark.y], "o", ms=2.5, color="#cccccc", zorder=1, clip_on=False)
    # Ours and the paper's apart from each other only: ours inside the paper's ring means that they agree.
    for hollow, size in ((False, FILLED_SIZE), (True, HOLLOW_SIZE)):
        mine = [mark for mark in marks if mark.series in looks and (mark.origin == PAPER) is hollow]
        shares = (axes.transData - axes.transAxes).transform([(mark.x, mark.y) for mark in mine] or [(1, 1)])
        for mark, (right, up) in zip(mine, _move_apart(shares * _PANEL, size), strict=False):
            aside = ScaledTranslation(right / 72, up / 72, figure.dpi_scale_trans)
            draw_point(axes, mark, looks[mark.series], axes.transData + aside)


def _move_apart(places: Any, size: float) -> list[Any]:
    """Find a small move for each place, after which markers are apart, and so are the lines through them.

    Args:
        places: Shape `(n, 2)`; points of print.
        size: Points of print across a marker.

    Returns:
        A move for each place, in points of print.
    """
    # A spiral of golden angles: no two of its steps have a coordinate in common.
    steps = np.arange(1000)
    turns = steps * math.pi * (3 - math.sqrt(5))
    spiral = 0.9 * np.sqrt(steps)[:, None] * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    # Nothing is moved far beyond the largest and smallest values: a mark at 105% would look like a mistake.
    high, low = places.max(axis=0) + size / 3, places.min(axis=0) - 4 * size
    taken: list[Any] = []
    for point in places:
        moved = point + spiral
        away = np.abs(moved - np.reshape(taken, (-1, 1, 2)))
        apart = (np.hypot(away[..., 0], away[..., 1]) > size) & (away.min(axis=2) > 1.5)
        inside = np.all((moved >= low) & (moved <= high), axis=1)
        taken.append(moved[np.argmax(np.all(apart, axis=0) & inside)])
    return [moved - point for moved, point in zip(taken, places, strict=True)]


def draw_lines(axes: Axes, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw points, those of ours joined to a line per series, side by side where several share a place."""
    for index, (name, look) in enumerate(looks.items()):
        aside = (index - (len(looks) - 1) / 2) * min(0.14, 0.75 / len(looks))
        mine = [replace(m, x=m.x + aside) for m in marks if m.series == name and m.origin != PAPER]
        mine.sort(key=lambda mark: mark.x)
        if len(mine) > 1:
            x, y = [mark.x for mark in mine], [mark.y for mark in mine]
            axes.plot(x, y, color=look.color, ls=look.dashes, lw=1.1, zorder=2)
        for mark in (*mine, *(m for m in marks if m.series == name and m.origin == PAPER)):
            draw_point(axes, mark, look)


def find_top(marks: Iterable[Mark]) -> float:
    """The highest end of all marks and intervals; 1 where there is none above 0."""
    return max((v for mark in marks for v in (mark.y, mark.y_high) if not math.isnan(v)), default=0.0) or 1.0
