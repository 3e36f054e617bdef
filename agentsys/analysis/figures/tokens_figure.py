"""Token growth: tokens per case by trajectory length, of all roles and of the acting agent alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from agentsys.analysis.figures.captions import not_shown, subtitle
from agentsys.analysis.figures.labels import place_labels
from agentsys.analysis.figures.mark import Mark, mark_of, upright
from agentsys.analysis.figures.points import draw_lines, line_labels, line_obstacles, series_of
from agentsys.analysis.figures.selection import Selection
from agentsys.analysis.figures.style import FAINT, Look, headline, looks, new_figure, panel_title
from agentsys.analysis.metrics.rates import Number
from agentsys.analysis.metrics.tokens import TokensOf, acting_tokens, mean_tokens
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.statistics.bootstrap import CONFIDENCE, Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.base.grouping import group_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAST = 10
"""Trajectories of this length and longer are one point."""
FEWEST = 3
"""Cases that a point needs."""
PANELS: dict[str, TokensOf] = {"a: all roles": attrgetter("tokens"), "b: acting agent": acting_tokens}


def marks(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List what is plotted: x tool results in the recorded run (10: 10 and more), y thousand tokens per case.

    Benign and attacked cases together; errored ones are left out under either rule.
    """
    del errors  # an errored case has no length to place it at
    return [mark for name, line in selection.series() for mark in _of_line(name, line)]


def draw(selection: Selection, plotted: Sequence[Mark]) -> Figure:
    """Two panels with one line per defense."""
    figure, panels = new_figure(2, 7.2, 3.9)
    drawn = series_of(plotted)
    silent = [selection.shown.series_name(name) for name, _ in selection.series() if name not in drawn]
    notes = [
        f"Whiskers: {CONFIDENCE:.0f}% intervals, user tasks resampled. Mean of prompt and completion tokens "
        f"per case, benign and attacked together; points of fewer than {FEWEST} cases are left out. "
        "Trajectory length: tool results of the acting agent. The paper prints no such numbers.",
        *([f"No tokens recorded: {', '.join(silent)}."] if silent else []),
        *not_shown(selection),
    ]
    lines = [line.split(" Hollow:")[0] for line in subtitle(selection)]
    headline(figure, "Tokens per case by trajectory length", lines, notes)
    styles = looks(series_of(plotted))
    top = max([v for m in plotted for v in (m.y, m.y_high) if not math.isnan(v)], default=1.0) * 1.1
    for axes, panel in zip(panels, PANELS, strict=True):
        _panel(axes, [mark for mark in plotted if mark.panel == panel], styles, top)
    panel_title(panels[0], "(a) All roles together")
    panel_title(panels[1], "(b) The agent that talks to the user")
    panels[0].set_ylabel("Thousand tokens per case")
    return figure


def _of_line(name: str, line: RunLine) -> Iterator[Mark]:
    about = mark_of(line, name)
    placed = [case for case in line.cases if case.trajectory_length is not None]
    by_length = group_by(placed, lambda case: min(case.trajectory_length or 0, LAST))
    for panel, tokens_of in PANELS.items():
        for length in sorted(by_length):
            mean = mean_tokens(by_length[length], tokens_of, Resampler())
            if mean is not None and mean.n >= FEWEST:
                thousands = Number(mean.value / 1e3, mean.ci_low / 1e3, mean.ci_high / 1e3, mean.n)
                yield upright(replace(about, panel=panel, x=float(length)), thousands)


def _panel(axes: Axes, shown: Sequence[Mark], styles: dict[str, Look], top: float) -> None:
    drawn = draw_lines(axes, shown, styles)
    if not drawn:
        axes.text(0.5, 0.5, "no tokens recorded", transform=axes.transAxes, ha="center", color=FAINT)
    ticks = range(0, LAST + 1, 2)
    axes.set_xticks(ticks, [*map(str, ticks[:-1]), f"{LAST}+"])
    axes.set(xlim=(-0.5, LAST * 1.45), ylim=(0, top), xlabel="Trajectory length (tool results)")
    place_labels(axes, line_labels(drawn, styles, at_end=True), line_obstacles(drawn))
