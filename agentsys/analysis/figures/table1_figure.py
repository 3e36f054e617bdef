"""Table 1 as a figure: targeted ASR by the round in which the injection came, one panel per length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentsys.analysis.figures.captions import WHISKERS, not_shown, subtitle
from agentsys.analysis.figures.labels import place_labels
from agentsys.analysis.figures.mark import PAPER, Mark, mark_of, printed_mark, upright
from agentsys.analysis.figures.points import draw_lines, line_labels, line_obstacles, series_of
from agentsys.analysis.figures.selection import Selection
from agentsys.analysis.figures.style import FAINT, Look, headline, looks, new_figure, panel_title
from agentsys.analysis.metrics.by_length import asr_by_round
from agentsys.analysis.paper.layout import ATTACK, ROUND_LENGTHS, round_spot
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.published import printed_in
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def marks(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List what is plotted: panel `length=L`, x the injection's round, y targeted ASR in percent, pooled."""
    ours = [mark for name, line in selection.series() for mark in _of_line(name, line, errors)]
    return [*ours, *_printed()]


def draw(selection: Selection, plotted: Sequence[Mark]) -> Figure:
    """A panel per trajectory length; the number of cases stands under each of our points."""
    figure, panels = new_figure(len(ROUND_LENGTHS), 7.2, 3.6)
    notes = [
        f"{WHISKERS} n: cases. Trajectory length: tool results in the recorded run; cases whose tool results "
        "never hold the injection are left out. Pooled over suites.",
        *not_shown(selection),
    ]
    title = "Table 1 as a figure. Targeted ASR by trajectory length and injection round"
    headline(figure, title, subtitle(selection), notes)
    styles = looks(series_of(plotted))
    for axes, length in zip(panels, ROUND_LENGTHS, strict=True):
        _panel(axes, length, [mark for mark in plotted if mark.panel == f"length={length}"], styles)
    panels[0].set_ylabel("Targeted ASR, %")
    return figure


def _of_line(name: str, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    about = mark_of(line, name)
    attacked = [case for case in line.cases if case.attack == ATTACK]
    for (length, round_), number in sorted(
        asr_by_round(attacked, ROUND_LENGTHS, errors, Resampler()).items()
    ):
        yield upright(replace(about, panel=f"length={length}", x=float(round_)), number)


def _printed() -> Iterator[Mark]:
    values = {number.metric: (number.defense, number.value) for number in printed_in("table1")}
    for length in ROUND_LENGTHS:
        for round_ in range(1, length + 1):
            defense, value = values[round_spot(length, round_).metric]
            yield printed_mark(f"length={length}", defense, float(round_), value)


def _panel(axes: Axes, length: int, shown: Sequence[Mark], styles: dict[str, Look]) -> None:
    drawn = draw_lines(axes, shown, styles)
    for mark in shown:
        if mark.n and len({m.series for m in shown if m.origin != PAPER}) == 1:
            axes.text(mark.x, -7, f"n={mark.n}", ha="center", va="top", fontsize=6.5, color=FAINT)
    axes.set_xticks(range(1, length + 1))
    axes.set(xlim=(0.5, length + 0.5), ylim=(-14, 105), xlabel="Round of the injection")
    axes.set_yticks(range(0, 101, 20))
    panel_title(axes, f"Length {length}")
    place_labels(axes, line_labels(drawn, styles), line_obstacles(drawn))
