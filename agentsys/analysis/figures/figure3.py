"""Figure 3: (a) benign utility against security, (b) defense quality against cost."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from agentsys.analysis.figures.captions import WHISKERS, not_shown, subtitle
from agentsys.analysis.figures.labels import place_labels
from agentsys.analysis.figures.mark import PAPER, Mark, across, mark_of, printed_mark, upright
from agentsys.analysis.figures.points import draw_point, is_crowded, obstacles, point_labels, series_of
from agentsys.analysis.figures.selection import Selection
from agentsys.analysis.figures.style import headline, looks, new_figure, panel_title
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    DEFENSE_QUALITY,
    TARGETED_ASR,
    Number,
    measure,
    number_in,
)
from agentsys.analysis.metrics.tokens import mean_tokens
from agentsys.analysis.paper.layout import ATTACK
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.published import printed_in
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.records.case_row import NO_ATTACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRADE, COST = "a: utility and security", "b: quality and cost"
_TICKS = [base * 10.0**power for power in range(-4, 4) for base in (1, 2, 5)]
"""Of an axis of tokens in millions."""
_FEW = 24
"""Marks that leave room enough for their names in a low figure."""
USER_TASKS = 97
"""User tasks of AgentDojo's four suites. The paper's totals fit this many cases and no larger grid: DRIFT
takes some 32 thousand tokens per case, and 2.37 million is printed for it."""


def marks(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List the plotted numbers: ours, then the paper's.

    Panel a: x security (100 - targeted ASR), y benign utility, both overall, in percent: the upper right
    corner is best. Panel b: x tokens of all roles on the 97 user tasks without attack, in millions (mean
    per benign case x 97), y defense quality in percent.
    """
    ours = [mark for name, line in selection.series() for mark in _of_line(name, line, errors)]
    trade = [
        printed_mark(TRADE, defense, round(100 - of[TARGETED_ASR], 2), of[BENIGN_UTILITY])
        for defense, of in _printed("table2").items()
    ]
    cost = [
        printed_mark(COST, defense, of["total_tokens_millions"], of[DEFENSE_QUALITY])
        for defense, of in _printed("figure3b").items()
    ]
    return [*ours, *trade, *cost]


def draw(selection: Selection, plotted: list[Mark]) -> Figure:
    """Two panels with a name at every point."""
    figure, (trade, cost) = new_figure(2, 7.2, 4.4 if len(plotted) <= _FEW else 6.4)
    notes = [
        WHISKERS,
        f"Security: 100% - targeted ASR. Tokens: all roles, mean per benign case x {USER_TASKS} user tasks.",
        *_lacking(selection, plotted, TRADE, "No benign or no attacked cases, so not in (a)"),
        *_lacking(selection, plotted, COST, "No tokens or no benign cases recorded, so not in (b)"),
        *not_shown(selection),
    ]
    headline(figure, "Figure 3. Security, utility and cost of defenses", subtitle(selection), notes)
    trade.set(xlabel="Security, % (100 - targeted ASR)", ylabel="Benign utility, %")
    panel_title(trade, "(a) Utility and security: upper right is best")
    cost.set(xlabel="Tokens, millions (log scale)", ylabel="Defense quality, %")
    panel_title(cost, "(b) Quality and cost")
    cost.set_xscale("log")
    cost.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    cost.minorticks_off()
    _limits(trade, [mark for mark in plotted if mark.panel == TRADE])
    _limits(cost, [mark for mark in plotted if mark.panel == COST])
    _panel(trade, [mark for mark in plotted if mark.panel == TRADE], plotted)
    _panel(cost, [mark for mark in plotted if mark.panel == COST], plotted)
    return figure


def _of_line(name: str, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    rows = measure(line.cases, errors)
    attacks = (ATTACK, NO_ATTACK)
    overall = {row.metric: number_in(row) for row in rows if row.suite == OVERALL and row.attack in attacks}
    about = replace(mark_of(line, name), panel=TRADE)
    if TARGETED_ASR in overall and BENIGN_UTILITY in overall:
        yield upright(across(about, _security(overall[TARGETED_ASR])), overall[BENIGN_UTILITY])
    quality, tokens = overall.get(DEFENSE_QUALITY), _millions(line)
    if quality and tokens and not math.isnan(quality.value):
        yield upright(across(replace(about, panel=COST), tokens), quality)


def _security(asr: Number) -> Number:
    return Number(100 - asr.value, 100 - asr.ci_high, 100 - asr.ci_low, asr.n)


def _millions(line: RunLine) -> Number | None:
    benign = [case for case in line.cases if case.attack == NO_ATTACK]
    mean = mean_tokens(benign, attrgetter("tokens"), Resampler())
    if mean is None or mean.value <= 0:
        return None
    scale = USER_TASKS / 1e6
    return Number(mean.value * scale, mean.ci_low * scale, mean.ci_high * scale, mean.n)


def _printed(source: str) -> dict[str, dict[str, float]]:
    """Defense -> metric -> the value that a table or figure of the paper prints."""
    by_defense: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for number in printed_in(source):
        by_defense[number.defense][number.metric] = number.value
    return by_defense


def _lacking(selection: Selection, plotted: Iterable[Mark], panel: str, why: str) -> list[str]:
    """A note on the defenses of the runs that a panel could not place."""
    placed = {mark.series for mark in plotted if mark.panel == panel and mark.origin != PAPER}
    missing = [selection.shown.series_name(name) for name, _ in selection.series() if name not in placed]
    return [f"{why}: {', '.join(missing)}."] if missing else []


def _limits(axes: Axes, shown: list[Mark]) -> None:
    """Room for names on both sides; nothing is cut off, not even whiskers."""
    tops = [v for mark in shown for v in (mark.y, mark.y_high) if not math.isnan(v)]
    axes.set_ylim(-3, min(max(tops, default=60) * 1.15, 104))
    wide = [v for mark in shown for v in (mark.x, mark.x_low, mark.x_high) if not math.isnan(v)]
    if axes.get_xscale() == "log":
        axes.set_xlim(min(wide, default=1) / 1.8, max(wide, default=10) * 1.8)
    else:
        room = 0.14 * (100 - min(wide, default=60))
        axes.set_xlim(min(wide, default=60) - room, 100 + room)


def _panel(axes: Axes, shown: list[Mark], all_marks: list[Mark]) -> None:
    styles = looks(series_of(all_marks))
    crowded = is_crowded(shown)
    for mark in shown:
        draw_point(axes, mark, styles[mark.series], crowded=crowded)
    place_labels(axes, point_labels(shown, styles), obstacles(shown))
