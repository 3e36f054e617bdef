"""Look of the figures: colours, markers, type. Nothing here knows what is plotted."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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


def styled() -> AbstractContextManager[None]:
    """Puts our settings in force, for the block it opens only."""
    import matplotlib

    return matplotlib.rc_context(RC)


INK = "#222222"
"""Text and outlines."""
FAINT = "#666666"
"""Intervals, notes."""


@dataclass(frozen=True)
class Look:
    """Look of one series, told apart by colour and, in grey, by marker or dashes."""

    color: str
    marker: str
    dashes: tuple[float, tuple[float, ...]]


_SOLID = (0.0, ())
# Colours of M. Okabe and K. Ito, "Color Universal Design", 2008; yellow is too pale for lines.
_COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "<", "h", ">", "*", "d", "8")
_DASHES = (_SOLID, (0.0, (5.0, 1.5)), (0.0, (1.5, 1.2)), (0.0, (6.0, 1.5, 1.5, 1.5)), (0.0, (3.0, 1.0)))
_WELL_KNOWN = (
    "none",
    "agentsys",
    "drift",
    "progent",
    "camel",
    "spotlighting",
    "prompt_sandwiching",
    "tool_filter",
    "melon",
    "isolategpt",
    "piguard",
    "phrase_detector",
    "protectai",
    "fides",
    "middleware",
    "instructional_prevention",
    "delimiters",
)
"""Series with a look that nobody else has; in this order the quickstart's six have six colours."""
_LOOKS = 210
"""Looks that differ in something: the least number that the lengths of markers, dashes and colours divide."""


def looks(series: Sequence[str]) -> dict[str, Look]:
    """Choose a look for each series, in the order in which they may choose: the same in every figure.

    That of a name which is not well-known follows from its letters; if another one in the same figure has its
    marker already, the next free one is taken.
    """
    places = {name: _WELL_KNOWN.index(name) for name in series if name in _WELL_KNOWN}
    for name in series:
        if name not in places:
            places[name] = _free_place(name, list(places.values()))
    return {name: _look(places[name]) for name in series}


def _free_place(name: str, taken: Collection[int]) -> int:
    markers = {place % len(_MARKERS) for place in taken}
    place = zlib.crc32(name.encode("utf-8", "surrogatepass")) % _LOOKS
    for _ in range(_LOOKS):
        place = (place + 1) % _LOOKS
        own_marker = place % len(_MARKERS) not in markers or len(markers) == len(_MARKERS)
        if place >= len(_WELL_KNOWN) and place not in taken and own_marker:
            break
    return place


def _look(place: int) -> Look:
    # Black is the undefended agent's alone.
    return Look(
        _COLORS[0] if place == 0 else _COLORS[1 + (place - 1) % (len(_COLORS) - 1)],
        _MARKERS[place % len(_MARKERS)],
        _DASHES[place % len(_DASHES)],
    )


def new_figure(panels: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """An empty figure with panels side by side.

    Args:
        panels: How many.
        width: Inches; 3.3 is a column of a paper, 7 a page.
        height: Inches.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def headline(figure: Figure, title: str, subtitle: Sequence[str], notes: Sequence[str]) -> None:
    """A title, what must be read with it (a simulated model, above all), and notes below the panels.

    Args:
        figure: Where they go.
        title: One line.
        subtitle: Lines under the title; ours only by what follows, so long ones are wrapped.
        notes: Lines under the panels, wrapped likewise.
    """
    import textwrap

    width = int(figure.get_figwidth() * 17)
    below = [line for text in subtitle for line in textwrap.wrap(text, width)]
    # One text: the layout engine keeps room for a suptitle of any height, and for no second one.
    figure.suptitle("\n".join([title, *below]), x=0.01, ha="left", fontsize=9, color=INK)
    lines = [line for text in notes for line in textwrap.wrap(text, int(width * 1.15))]
    if lines:
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7, color=FAINT)


def without_words(figure: Figure, *, simulated: bool) -> None:
    """Take title and notes out, for a paper that has a caption of its own; the mark of a simulation stays."""
    figure.suptitle("SIMULATED" if simulated else "", x=0.01, ha="left", fontsize=7, color=INK)
    figure.supxlabel("")


def panel_title(axes: Axes, title: str) -> None:
    """A panel's title, flush left and bold."""
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold", color=INK)
