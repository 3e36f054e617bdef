"""Figure 4: (a) benign utility of short and long user tasks, (b) ASR by the user task's length."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentsys.analysis.figures.captions import WHISKERS, not_shown, subtitle
from agentsys.analysis.figures.labels import place_labels, shown_name
from agentsys.analysis.figures.mark import PAPER, Mark, mark_of, printed_mark, upright
from agentsys.analysis.figures.points import HOLLOW, draw_lines, line_labels, line_obstacles, series_of
from agentsys.analysis.figures.selection import Selection
from agentsys.analysis.figures.style import INK, Look, headline, looks, new_figure, panel_title
from agentsys.analysis.metrics.by_length import (
    LAST_BUCKET,
    LONGEST_SHORT,
    asr_by_length,
    utility_by_length,
    without_length,
)
from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR
from agentsys.analysis.paper.layout import ATTACK
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.published import printed_in
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.records.case_row import NO_ATTACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

UTILITY, ATTACKS = "a: utility by length", "b: ASR by length"
SHORT, LONG = 0.0, 1.0
"""Places of the two parts in panel a."""


def marks(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List the plotted numbers: ours, then the paper's.

    Panel a: x 0 for short user tasks (at most 3 calls in the ground truth), 1 for long ones; y their share
    of the overall benign utility, in percent. Panel b: x calls in the ground truth (7: 7 and more), y
    successful attacks on such tasks in percent of all attacked cases. Of the paper's bounds over several
    lengths (`max over lengths`), x is nan.
    """
    ours = [mark for name, line in selection.series() for mark in _of_line(name, line, errors)]
    return [*ours, *_printed_utility(), *_printed_attacks()]


def draw(selection: Selection, plotted: Sequence[Mark]) -> Figure:
    """Bars on the left, lines on the right."""
    rows = len(series_of(mark for mark in plotted if mark.panel == UTILITY))
    figure, (utility, attacks) = new_figure(2, 7.2, max(4.2, 1.8 + 0.45 * rows))
    lost = without_length(case for line in selection.lines for case in line.cases)
    notes = [
        f"{WHISKERS} (a) Short: at most {LONGEST_SHORT} calls in the ground truth. A solved task weighs "
        "1/(suites x tasks of its suite), so short + long = overall benign utility. Under the names: change "
        f"from short to long; drops as printed: {_printed_drops()}. (b) Pooled over suites; dotted: the "
        "paper's bound for all lengths.",
        *([f"Left out: {lost} cases of unknown ground-truth length."] if lost else []),
        *not_shown(selection),
    ]
    headline(
        figure, "Figure 4. Utility and attack success by the length of the task", subtitle(selection), notes
    )
    styles = looks(series_of(plotted))
    _bars(utility, [mark for mark in plotted if mark.panel == UTILITY], styles)
    _lines(attacks, [mark for mark in plotted if mark.panel == ATTACKS], styles)
    return figure


def relative_drop(short: float, long: float) -> float:
    """Tell how much less long tasks contribute than short ones, in percent; nan without short successes."""
    return 100.0 * (1.0 - long / short) if short > 0 else math.nan


def _of_line(name: str, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    about = replace(mark_of(line, name), panel=UTILITY)
    benign = [case for case in line.cases if case.attack == NO_ATTACK]
    attacked = [case for case in line.cases if case.attack == ATTACK]
    for part, number in utility_by_length(benign, errors, Resampler()).items():
        yield upright(replace(about, x=SHORT if part == "short" else LONG), number)
    for bucket, number in asr_by_length(attacked, errors, Resampler()).items():
        yield upright(replace(about, panel=ATTACKS, x=float(bucket)), number)


def _printed_utility() -> Iterator[Mark]:
    for number in printed_in("figure4a"):
        if number.metric.startswith(f"{BENIGN_UTILITY}["):
            place = SHORT if "[short]" in number.metric else LONG
            yield printed_mark(UTILITY, number.defense, place, number.value)


def _printed_attacks() -> Iterator[Mark]:
    for number in printed_in("figure4b"):
        for place in _places(number.metric):
            yield printed_mark(ATTACKS, number.defense, place, number.value)


def _places(metric: str) -> Iterator[float]:
    """Place a printed number of panel b; nan for a bound over all lengths."""
    condition = metric.removeprefix(f"{TARGETED_ASR}[").rstrip("]")
    if condition.startswith("length>="):
        yield from map(float, range(int(condition.removeprefix("length>=")), LAST_BUCKET + 1))
    elif condition.startswith("length="):
        yield float(condition.removeprefix("length="))
    else:
        yield math.nan


def _bars(axes: Axes, shown: Sequence[Mark], styles: dict[str, Look]) -> None:
    """Two bars per defense, short above long (hatched), with the paper's values as hollow markers."""
    series = series_of(shown)
    for place, name in enumerate(series):
        for mark in (mark for mark in shown if mark.series == name):
            _bar(axes, mark, place + (-0.2 if mark.x == SHORT else 0.2), styles[name])
    axes.set_yticks(range(len(series)), [_bar_name(shown, name) for name in series])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set(ylim=(len(series) - 0.4, -0.6), xlabel="Part of the benign utility, points")
    axes.set_xlim(left=0)
    panel_title(axes, "(a) Short (plain), long (hatched)")


def _bar(axes: Axes, mark: Mark, place: float, look: Look) -> None:
    if mark.origin == PAPER:
        axes.plot(
            [mark.y],
            [place],
            linestyle="none",
            marker="D",
            markersize=HOLLOW - 2,
            markerfacecolor="white",
            markeredgecolor=INK,
            zorder=5,
        )
        return
    long = mark.x == LONG
    axes.barh(
        place,
        mark.y,
        height=0.36,
        facecolor="white" if long else look.color,
        edgecolor=look.color,
        hatch="////" if long else None,
    )
    if not math.isnan(mark.y_low):
        axes.plot([mark.y_low, mark.y_high], [place, place], color="#999999", lw=1.2, zorder=4)


def _bar_name(shown: Sequence[Mark], name: str) -> str:
    """The defense and, on a second line, the change from short to long."""
    parts = {mark.x: mark.y for mark in shown if mark.series == name and mark.origin != PAPER}
    called = shown_name(next(mark.name for mark in shown if mark.series == name))
    if set(parts) != {SHORT, LONG}:
        return called
    drop = relative_drop(parts[SHORT], parts[LONG])
    return called + ("" if math.isnan(drop) else f"\n{-drop:+.1f}%")


def _printed_drops() -> str:
    drops = [n for n in printed_in("figure4a") if n.metric == "relative_drop_short_to_long"]
    return ", ".join(f"{number.defense} {number.value:g}%" for number in drops)


def _lines(axes: Axes, shown: Sequence[Mark], styles: dict[str, Look]) -> None:
    placed = draw_lines(axes, [mark for mark in shown if not math.isnan(mark.x)], styles)
    for bound in (mark for mark in shown if math.isnan(mark.x)):
        axes.axhline(bound.y, color=styles[bound.series].color, lw=0.8, ls=":", zorder=1)
    buckets = range(1, LAST_BUCKET + 1)
    axes.set_xticks(buckets, [*map(str, buckets[:-1]), f"{LAST_BUCKET}+"])
    tops = [v for mark in placed for v in (mark.y, mark.y_high) if not math.isnan(v)]
    axes.set(xlim=(0.5, LAST_BUCKET + 0.5), ylim=(-0.03 * max(tops), max(tops) * 1.12))
    axes.set(xlabel="Calls in the user task's ground truth", ylabel="Successful attacks, % of all cases")
    panel_title(axes, "(b) Attack success by length")
    place_labels(axes, line_labels(placed, styles), line_obstacles(placed))
