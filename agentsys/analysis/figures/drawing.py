"""Look of the figures and how marks are drawn: filled with whiskers for ours, hollow for the paper's."""

from __future__ import annotations

import math
import textwrap
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsys.analysis.figures.figure_data import PAPER, Mark, list_series, write_marks_csv
from agentsys.analysis.figures.labels import Label, OccupiedSpot, shorten_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
_CROWD = 8
"""Marks with whiskers in one panel, above which these are drawn thin."""
_PIECES = 12
"""Into how many pieces a line between two points is cut, as an obstacle to labels."""
# Colours of M. Okabe and K. Ito, "Color Universal Design", 2008; yellow is too pale for lines.
_COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", "h", ">", "*", "d", "8")
_DASHES = ((), (5.0, 1.5), (1.5, 1.2), (6.0, 1.5, 1.5, 1.5), (3.0, 1.0))
_LOOKS = 210
"""Looks that differ in something: the least number that the lengths of markers, dashes and colours divide."""
_WELL_KNOWN = ("none", "agentsys", "drift", "progent", "camel", "spotlighting", "prompt_sandwiching",
               "tool_filter", "melon", "isolategpt", "piguard", "phrase_detector", "protectai", "fides",
               "middleware", "instructional_prevention", "delimiters")  # fmt: skip
"""Series with a look that nobody else has; in this order the quickstart's six have six colours."""


class Look(NamedTuple):
    """Look of one series, told apart by colour and, in grey, by marker or dashes."""

    color: str
    marker: str
    dashes: tuple[float, tuple[float, ...]]


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


def choose_looks(series: Sequence[str]) -> dict[str, Look]:
    """Choose a look for each series, in the order in which they may choose: the same in every figure.

    That of a name which is not well-known follows from its letters; if another one in the same figure has its
    marker already, the next free one is taken.
    """
    places = {name: _WELL_KNOWN.index(name) for name in series if name in _WELL_KNOWN}
    for name in series:
        if name not in places:
            places[name] = _find_free_place(name, places.values())
    return {name: _make_look(places[name]) for name in series}


def _find_free_place(name: str, occupied: Collection[int]) -> int:
    markers = {place % len(_MARKERS) for place in occupied}
    place = zlib.crc32(name.encode("utf-8", "surrogatepass")) % _LOOKS
    for _ in range(_LOOKS):
        place = (place + 1) % _LOOKS
        own_marker = place % len(_MARKERS) not in markers or len(markers) == len(_MARKERS)
        if place >= len(_WELL_KNOWN) and place not in occupied and own_marker:
            break
    return place


def _make_look(place: int) -> Look:
    # Black is the undefended agent's alone.
    color = _COLORS[0] if place == 0 else _COLORS[1 + (place - 1) % (len(_COLORS) - 1)]
    return Look(color, _MARKERS[place % len(_MARKERS)], (0.0, _DASHES[place % len(_DASHES)]))


def make_panels(
    panels: int, size: tuple[float, float], title: str, subtitle: Sequence[str], notes: Sequence[str]
) -> tuple[Figure, list[Axes]]:
    """Make a figure of empty panels side by side, with a title, lines to be read with it, and notes below.

    The size is in inches: 3.3 are a column of a paper, 7 a page. Long lines are wrapped.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, panels, squeeze=False)[0])
    width = int(size[0] * 17)
    below = [line for text in subtitle for line in textwrap.wrap(text, width)]
    # One text: the layout engine keeps room for a suptitle of any height, and for no second one.
    figure.suptitle("\n".join([title, *below]), x=0.01, ha="left", fontsize=9, color=INK)
    if lines := [line for text in notes for line in textwrap.wrap(text, int(width * 1.15))]:
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7, color=FAINT)
    return figure, axes


def remove_words(figure: Figure, *, simulated: bool) -> None:
    """Take title and notes out, for a paper that has a caption of its own; the mark of a simulation stays."""
    figure.suptitle("SIMULATED" if simulated else "", x=0.01, ha="left", fontsize=7, color=INK)
    figure.supxlabel("")


def write_panel_title(axes: Axes, title: str) -> None:
    """Write a panel's title, flush left and bold."""
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold", color=INK)


def is_crowded(marks: Iterable[Mark]) -> bool:
    """Whether so many marks of a panel have intervals that their whiskers would hide the points."""
    return sum(not math.isnan(mark.y_low) or not math.isnan(mark.x_low) for mark in marks) > _CROWD


def draw_point(axes: Axes, mark: Mark, look: Look, *, crowded: bool = False) -> None:
    """Draw one mark where it stands. Colour and marker tell the series, the filling tells whose it is."""
    hollow = mark.origin == PAPER
    size, fill, order = (HOLLOW_SIZE, "white", 3) if hollow else (FILLED_SIZE, look.color, 4)
    style: Any = {"mfc": fill, "mec": look.color, "mew": 1.2, "zorder": order}
    axes.plot([mark.x], [mark.y], ls="none", marker=look.marker, ms=size, **style)
    draw_whiskers(axes, mark, look.color, crowded=crowded)


def draw_whiskers(axes: Axes, mark: Mark, color: str, *, crowded: bool = False) -> None:
    """Draw the intervals of a mark, as far as it has any; thin and pale among many."""
    style: Any = {"color": color, "zorder": 2}
    style |= {"lw": 0.4, "alpha": 0.3} if crowded else {"lw": 0.8, "alpha": 0.55}
    if not math.isnan(mark.y_low):
        axes.plot([mark.x, mark.x], [mark.y_low, mark.y_high], **style)
    if not math.isnan(mark.x_low):
        axes.plot([mark.x_low, mark.x_high], [mark.y, mark.y], **style)


def draw_lines(axes: Axes, marks: Sequence[Mark], styles: Mapping[str, Look]) -> list[Mark]:
    """Draw points, those of ours joined to a line per series, side by side where several share a place.

    Returns:
        The marks where they were drawn: ours are moved aside by a little.
    """
    series = list_series(mark for mark in marks if mark.origin != PAPER)
    placed: list[Mark] = []
    for index, name in enumerate(series):
        aside = (index - (len(series) - 1) / 2) * min(0.14, 0.7 / len(series))
        mine = [replace(m, x=m.x + aside) for m in marks if m.series == name and m.origin != PAPER]
        mine.sort(key=lambda mark: mark.x)
        x, y = [mark.x for mark in mine], [mark.y for mark in mine]
        axes.plot(x, y, color=styles[name].color, ls=styles[name].dashes, lw=1.1, zorder=2)
        placed += mine
    placed += [mark for mark in marks if mark.origin == PAPER]
    for mark in placed:
        draw_point(axes, mark, styles[mark.series], crowded=is_crowded(placed))
    return placed


def label_points(marks: Iterable[Mark], styles: Mapping[str, Look]) -> list[Label]:
    """Label each mark; where ours and the paper's stand side by side, the paper's says so."""
    ordered = sorted(marks, key=lambda mark: mark.origin == PAPER)
    ours = {mark.series for mark in ordered if mark.origin != PAPER}
    return [
        Label(
            shorten_name(mark.name) + (" (paper)" if mark.origin == PAPER and mark.series in ours else ""),
            mark.x,
            mark.y,
            styles[mark.series].color,
        )
        for mark in ordered
    ]


def label_lines(marks: Iterable[Mark], styles: Mapping[str, Look], *, at_end: bool = False) -> list[Label]:
    """Label each series once, at the highest (or last) point of ours, else of the paper's."""
    chosen: dict[str, Mark] = {}

    def rank(mark: Mark) -> tuple[bool, float]:
        return mark.origin != PAPER, mark.x if at_end else mark.y

    for mark in marks:
        if mark.series not in chosen or rank(mark) > rank(chosen[mark.series]):
            chosen[mark.series] = mark
    return label_points(chosen.values(), styles)


def list_obstacles(marks: Iterable[Mark]) -> list[OccupiedSpot]:
    """List the spots that the marks cover: markers and whiskers."""
    spots: list[OccupiedSpot] = []
    for mark in marks:
        spots.append(OccupiedSpot(mark.x, mark.y, mark.x, mark.y, reach=HOLLOW_SIZE / 2))
        if not math.isnan(mark.y_low):
            spots.append(OccupiedSpot(mark.x, mark.y_low, mark.x, mark.y_high))
        if not math.isnan(mark.x_low):
            spots.append(OccupiedSpot(mark.x_low, mark.y, mark.x_high, mark.y))
    return spots


def list_line_obstacles(marks: Sequence[Mark]) -> list[OccupiedSpot]:
    """List `list_obstacles`, and the lines between our points as strings of small spots."""
    spots = list_obstacles(marks)
    for name in list_series(marks):
        mine = [mark for mark in marks if mark.series == name and mark.origin != PAPER]
        for start, end in pairwise(mine):
            for piece in range(1, _PIECES):
                x = start.x + (end.x - start.x) * piece / _PIECES
                y = start.y + (end.y - start.y) * piece / _PIECES
                spots.append(OccupiedSpot(x, y, x, y))
    return spots
