"""Figure 3: (a) security against utility, (b) defense quality against cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from agentsys.analysis.bootstrap import Resampler
from agentsys.analysis.case_row import NO_ATTACK
from agentsys.analysis.error_rule import ErrorRule
from agentsys.analysis.figures.captions import WHISKERS, not_shown, subtitle
from agentsys.analysis.figures.labels import place_labels
from agentsys.analysis.figures.mark import PAPER, Mark, across, upright
from agentsys.analysis.figures.points import draw_point, obstacles, point_labels, series_of
from agentsys.analysis.figures.selection import PAPER_MODEL, Selection
from agentsys.analysis.figures.style import headline, looks, new_figure, panel_title
from agentsys.analysis.metrics import DEFENSE_QUALITY, OVERALL, TARGETED_ASR, UTILITY_UNDER_ATTACK, measure
from agentsys.analysis.number import Number, number_in
from agentsys.analysis.paper.layout import ATTACK
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.published import printed_in
from agentsys.analysis.tokens import all_tokens, mean_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRADE, COST = "a: security and utility", "b: quality and cost"
_TICKS = [base * 10.0**power for power in range(-4, 4) for base in (1, 2, 5)]
"""Of an axis of tokens in millions."""
_FEW = 24
"""Marks that leave room enough for their names in a low figure."""
USER_TASKS = 97
"""User tasks of AgentDojo's four suites. The paper's totals fit this many cases and no larger grid: DRIFT
takes some 32 thousand tokens per case, and 2.37 million is printed for it."""


def marks(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """What is plotted: ours, then the paper's.

    Panel a: x targeted ASR, y utility under attack, both overall, in percent. Panel b: x tokens of all
    roles on the 97 user tasks without attack, in millions (mean per benign case x 97), y defense quality
    in percent.
    """
    ours = [mark for name, line in selection.series() for mark in _of_line(name, line, errors)]
    return [*ours, *_printed_trade(), *_printed_cost()]


def draw(selection: Selection, plotted: list[Mark]) -> Figure:
    """Two panels with a name at every point."""
    figure, (trade, cost) = new_figure(2, 7.2, 4.4 if len(plotted) <= _FEW else 6.4)
    unknown = [name for name, _ in selection.series() if not _has(plotted, COST, name)]
    notes = [
        WHISKERS,
        f"Tokens: all roles, mean per benign case x {USER_TASKS} user tasks.",
        *(
            [f"No tokens or no benign cases recorded, so not in (b): {', '.join(unknown)}."]
            if unknown
            else []
        ),
        *not_shown(selection),
    ]
    headline(figure, "Figure 3. Security, utility and cost of defenses", subtitle(selection), notes)
    trade.set(xlabel="Targeted ASR, % (lower is safer)", ylabel="Utility under attack, %")
    panel_title(trade, "(a) Security and utility")
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
    overall = {row.metric: number_in(row) for row in rows if row.suite == OVERALL and row.attack == ATTACK}
    about = Mark(
        TRADE, name, math.nan, math.nan, simulated=line.simulated, model=line.model, version=line.version
    )
    if TARGETED_ASR in overall:
        asr = overall[TARGETED_ASR]
        yield upright(across(about, asr), overall[UTILITY_UNDER_ATTACK])
    quality, tokens = overall.get(DEFENSE_QUALITY), _millions(line)
    if quality and tokens and not math.isnan(quality.value):
        yield upright(across(replace(about, panel=COST), tokens), quality)


def _millions(line: RunLine) -> Number | None:
    benign = [case for case in line.cases if case.attack == NO_ATTACK]
    mean = mean_tokens(benign, all_tokens, Resampler())
    if mean is None or mean.value <= 0:
        return None
    scale = USER_TASKS / 1e6
    return Number(mean.value * scale, mean.ci_low * scale, mean.ci_high * scale, mean.n)


def _printed_trade() -> Iterator[Mark]:
    by_defense: dict[str, dict[str, float]] = {}
    for number in printed_in("table2"):
        by_defense.setdefault(number.defense, {})[number.metric] = number.value
    for defense, values in by_defense.items():
        x, y = values[TARGETED_ASR], values[UTILITY_UNDER_ATTACK]
        yield Mark(TRADE, defense, x, y, origin=PAPER, model=PAPER_MODEL)


def _printed_cost() -> Iterator[Mark]:
    by_defense: dict[str, dict[str, float]] = {}
    for number in printed_in("figure3b"):
        by_defense.setdefault(number.defense, {})[number.metric] = number.value
    for defense, values in by_defense.items():
        x, y = values["total_tokens_millions"], values[DEFENSE_QUALITY]
        yield Mark(COST, defense, x, y, origin=PAPER, model=PAPER_MODEL)


def _has(plotted: Iterable[Mark], panel: str, series: str) -> bool:
    return any(mark.panel == panel and mark.series == series and mark.origin != PAPER for mark in plotted)


def _limits(axes: Axes, shown: list[Mark]) -> None:
    """Room for names on both sides; nothing is cut off, not even whiskers."""
    tops = [v for mark in shown for v in (mark.y, mark.y_high) if not math.isnan(v)]
    axes.set_ylim(-3, min(max(tops, default=60) * 1.15, 104))
    wide = [v for mark in shown for v in (mark.x, mark.x_low, mark.x_high) if not math.isnan(v)]
    if axes.get_xscale() == "log":
        axes.set_xlim(min(wide, default=1) / 1.8, max(wide, default=10) * 1.8)
    else:
        axes.set_xlim(-0.06 * max(wide, default=50), max(wide, default=50) * 1.12)


def _panel(axes: Axes, shown: list[Mark], all_marks: list[Mark]) -> None:
    styles = looks(series_of(all_marks))
    for mark in shown:
        draw_point(axes, mark, styles[mark.series])
    place_labels(axes, point_labels(shown, styles), obstacles(shown))
