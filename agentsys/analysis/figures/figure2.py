"""Figure 2: targeted ASR on ASB under observation prompt injection."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentsys.analysis.error_rule import ErrorRule
from agentsys.analysis.figures.captions import WHISKERS, not_shown, subtitle
from agentsys.analysis.figures.labels import shown_name
from agentsys.analysis.figures.mark import PAPER, Mark, across
from agentsys.analysis.figures.points import draw_point, series_of
from agentsys.analysis.figures.selection import PAPER_MODEL, Selection
from agentsys.analysis.figures.style import FAINT, headline, looks, new_figure
from agentsys.analysis.metrics import OVERALL, TARGETED_ASR, measure
from agentsys.analysis.number import number_in
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.published import printed_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BENCHMARK, ATTACK = "asb", "opi"


def marks(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """What is plotted: x targeted ASR in percent (unweighted mean of the suites); y counts the defenses."""
    ours = [mark for name, line in selection.series() for mark in _of_line(name, line, errors)]
    printed = [
        Mark("asr", number.defense, number.value, math.nan, origin=PAPER, model=PAPER_MODEL)
        for number in printed_in("figure2")
        if number.metric == TARGETED_ASR
    ]
    rows = {name: float(row) for row, name in enumerate(series_of([*ours, *printed]))}
    return [replace(mark, y=rows[mark.series]) for mark in [*ours, *printed]]


def draw(selection: Selection, plotted: Sequence[Mark]) -> Figure:
    """One row per defense."""
    names = series_of(plotted)
    figure, (axes,) = new_figure(1, 7.2, 2.2 + 0.28 * len(names))
    notes = [
        "The paper prints a single value of its Figure 2 (AgentSys 4.25%) and only draws the others, "
        "which are therefore not shown.",
        *([WHISKERS] if selection.lines else []),
        *not_shown(selection),
    ]
    headline(figure, "Figure 2. Observation prompt injection on ASB", subtitle(selection), notes)
    styles = looks(names)
    for mark in plotted:
        draw_point(axes, mark, styles[mark.series])
        axes.annotate(
            f"{mark.x:.2f}",
            (mark.x, mark.y),
            xytext=(0, 8),
            textcoords="offset points",
            ha="center",
            fontsize=7,
            color=FAINT,
        )
    axes.set_yticks(range(len(names)), [shown_name(name) for name in names])
    axes.grid(visible=False, axis="y")
    axes.set(xlim=(-2, 102), ylim=(len(names) - 0.4, -0.8), xlabel="Targeted ASR, % (lower is safer)")
    return figure


def _of_line(name: str, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    about = Mark("asr", name, 0, math.nan, simulated=line.simulated, model=line.model, version=line.version)
    for row in measure(line.cases, errors):
        if (row.metric, row.suite, row.attack) == (TARGETED_ASR, OVERALL, ATTACK):
            yield replace(across(about, number_in(row)), n=row.n)
