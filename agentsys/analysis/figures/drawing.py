"""Look of the figures and how marks are drawn: filled with whiskers for ours, hollow for the paper's."""

from __future__ import annotations

import math
import textwrap
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsys.analysis.figures.figure_data import CONTROL_SUFFIX, PAPER, Mark, list_series, write_marks_csv
from agentsys.analysis.tables.table_document import cut_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    DrawPanel = Callable[[Axes, str, list[Mark], Mapping[str, "Look"]], None]
    """Draws the marks of the panel named; the looks are those of all panels' series, in order."""

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
_LONGEST_NAME = 26
"""Characters of a name; a longer one is cut, the CSV has it whole."""
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
    """Look of one series, told apart by colour and, in grey, by marker or dashes; and its name."""

    color: str
    marker: str
    dashes: tuple[float, tuple[float, ...]]
    label: str


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


def choose_looks(marks: Sequence[Mark]) -> dict[str, Look]:
    """Choose a look for each series, in the order in which they may choose: the same in every figure.

    That of a name which is not well-known follows from its letters; if another one in the same figure has its
    marker already, the next free one is taken.
    """
    labels = {mark.series: shorten_name(mark.series) for mark in marks}
    places = {name: _WELL_KNOWN.index(name) for name in labels if name in _WELL_KNOWN}
    for name in [name for name in labels if name not in places]:
        start = zlib.crc32(name.encode("utf-8", "surrogatepass")) % _LOOKS
        free = [(start + step) % _LOOKS for step in range(1, _LOOKS + 1)]
        free = [place for place in free if place >= len(_WELL_KNOWN) and place not in places.values()]
        markers = {place % len(_MARKERS) for place in places.values()}
        places[name] = next((place for place in free if place % len(_MARKERS) not in markers), free[0])
    return {name: _make_look(places[name], label) for name, label in labels.items()}


def _make_look(place: int, label: str) -> Look:
    # Black is the undefended agent's alone.
    color = _COLORS[0] if place == 0 else _COLORS[1 + (place - 1) % (len(_COLORS) - 1)]
    return Look(color, _MARKERS[place % len(_MARKERS)], (0.0, _DASHES[place % len(_DASHES)]), label)


def shorten_name(name: str) -> str:
    """Write a name as figures show it: on one line, not endlessly long."""
    return cut_name(name, _LONGEST_NAME)


def draw_panels(
    panels: Mapping[str, str],
    marks: Sequence[Mark],
    draw: DrawPanel,
    height: float,
    words: tuple[str, Sequence[str], Sequence[str]],
    *,
    legend: bool = True,
) -> Figure:
    """Draw panels side by side, and beside them a legend of all series.

    Args:
        panels: Panel of a mark -> heading.
        marks: What is drawn, each in its panel; a control's in that of its attack.
        draw: Draws the marks of one panel into its axes.
        height: Inches; the width is that of a page.
        words: The title, lines to be read with it, and notes below. Long lines are wrapped.
        legend: Whether there is one; a figure may name its series at an axis instead.
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    title, subtitle, notes = words
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    # One text: the layout engine keeps room for a suptitle of any height, and for no second one.
    above = [line for text in subtitle for line in textwrap.wrap(text, int(_WIDTH * 17))]
    figure.suptitle("\n".join([title, *above]), x=0.01, ha="left", fontsize=9, color=INK)
    below = [line for text in notes for line in textwrap.wrap(text, int(_WIDTH * 19.5))]
    figure.supxlabel("\n".join(below), x=0.01, ha="left", fontsize=7, color=FAINT)
    looks = choose_looks(marks)
    every = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (panel, heading) in zip(every, panels.items(), strict=True):
        axes.set_title(heading, loc="left", fontsize=9, fontweight="bold", color=INK)
        mine = [mark for mark in marks if mark.panel.removesuffix(CONTROL_SUFFIX) == panel]
        draw(axes, panel, mine, looks)
    if legend:
        lines = [
            Line2D([], [], color=one.color, marker=one.marker, ls=one.dashes, ms=FILLED_SIZE, label=one.label)
            for one in looks.values()
        ]
        # As many below each other as the figure has room for.
        columns = 1 + len(lines) // int(height * 6)
        figure.legend(handles=lines, loc="outside right center", ncols=columns, handlelength=1.6)
    return figure


def remove_words(figure: Figure, *, simulated: bool) -> None:
    """Take title and notes out, for a paper with a caption of its own; a simulation's mark stays."""
    figure.suptitle("SIMULATED" if simulated else "", x=0.01, ha="left", fontsize=7, color=INK)
    figure.supxlabel("")


def draw_point(axes: Axes, mark: Mark, look: Look) -> None:
    """Draw one mark where it stands. Colour and marker tell the series, the filling tells whose it is."""
    hollow = mark.origin == PAPER
    size, fill, order = (HOLLOW_SIZE, "white", 3) if hollow else (FILLED_SIZE, look.color, 4)
    style: Any = {"mfc": fill, "mec": look.color, "mew": 1.2, "zorder": order, "clip_on": False}
    axes.plot([mark.x], [mark.y], ls="none", marker=look.marker, ms=size, **style)
    draw_whiskers(axes, mark, look.color)


def draw_whiskers(axes: Axes, mark: Mark, color: str) -> None:
    """Draw the intervals of a mark, as far as it has any."""
    style: Any = {"color": color, "zorder": 2, "lw": 0.7, "alpha": 0.45}
    if not math.isnan(mark.y_low):
        axes.plot([mark.x, mark.x], [mark.y_low, mark.y_high], **style)
    if not math.isnan(mark.x_low):
        axes.plot([mark.x_low, mark.x_high], [mark.y, mark.y], **style)


def draw_lines(axes: Axes, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw points, those of ours joined to a line per series, side by side where several share a place."""
    series = list_series(mark for mark in marks if mark.origin != PAPER)
    for index, name in enumerate(series):
        aside = (index - (len(series) - 1) / 2) * min(0.14, 0.7 / len(series))
        mine = [replace(m, x=m.x + aside) for m in marks if m.series == name and m.origin != PAPER]
        mine.sort(key=lambda mark: mark.x)
        x, y = [mark.x for mark in mine], [mark.y for mark in mine]
        axes.plot(x, y, color=looks[name].color, ls=looks[name].dashes, lw=1.1, zorder=2)
        for mark in mine:
            draw_point(axes, mark, looks[name])
    for mark in marks:
        if mark.origin == PAPER:
            draw_point(axes, mark, looks[mark.series])
