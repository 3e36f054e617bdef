"""Figures of utility: 3 (security and cost), 4 (the task's length), and that of `experiment=guarantees`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from agentsys.analysis.figures import drawing
from agentsys.analysis.figures.figure_data import (
    APART_CAPTION,
    PAPER,
    WHISKERS_CAPTION,
    Look,
    Mark,
    Selection,
    list_series,
)
from agentsys.analysis.metrics import rates, rates_by_length
from agentsys.analysis.metrics.own_metric import PlantedTarget
from agentsys.analysis.metrics.rates_by_length import compute_mean_tokens
from agentsys.analysis.paper.paper_tables import ATTACK, RunLine
from agentsys.analysis.published import list_printed_in
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Resampler
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TRADE, COST = "a: utility and security", "b: quality and cost"
PANELS3 = {TRADE: "(a) Upper right is best", COST: "(b) Quality and cost"}
"""Panel of Figure 3 -> heading."""
_TICKS = [base * 10.0**power for power in range(-4, 4) for base in (1, 2, 5)]
"""Of an axis of tokens in millions."""
_USER_TASKS = 97
"""User tasks of AgentDojo's four suites. The paper's totals fit this many cases and no larger grid: DRIFT
takes some 32 thousand tokens per case, and 2.37 million is printed for it."""
UTILITY, _ATTACKS = "a: utility by length", "b: ASR by length"
PANELS4 = {UTILITY: "(a) Short (plain), long (hatched)", _ATTACKS: "(b) Attack success by length"}
"""Panel of Figure 4 -> heading."""
_SHORT, _LONG = 0.0, 1.0
"""Places of the two parts in its first panel."""


def measure_figure3(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List the plotted numbers: ours, then the paper's.

    Panel a: x security (100 - targeted ASR), y benign utility, both overall, in percent: the upper right
    corner is best. Panel b: x tokens of all roles on the 97 user tasks without attack, in millions (mean
    per benign case x 97), y defense quality in percent.
    """
    marks = selection.measure(_measure_trade, errors)
    for defense, of in _read_printed("table2").items():
        security = round(100 - of[rates.TARGETED_ASR], 2)
        marks.append(Mark.make_paper_mark(TRADE, defense, security, of[rates.BENIGN_UTILITY]))
    for defense, of in _read_printed("figure3b").items():
        tokens, quality = of["total_tokens_millions"], of[rates.DEFENSE_QUALITY]
        marks.append(Mark.make_paper_mark(COST, defense, tokens, quality))
    return marks


def write_notes3(selection: Selection, marks: Sequence[Mark]) -> Iterator[str]:
    """Say what is on the axes, and whom a panel could not place."""
    yield f"{WHISKERS_CAPTION} {APART_CAPTION}"
    yield f"Security: 100% - targeted ASR. Tokens: all roles, mean per benign case x {_USER_TASKS} user tasks."
    for panel, why in (
        (TRADE, "No benign or no attacked cases, so not in (a)"),
        (COST, "No tokens or no benign cases recorded, so not in (b)"),
    ):
        yield from selection.name_series(why, selection.list_absent(m for m in marks if m.panel == panel))


def draw_figure3(axes: Axes, panel: str, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw a point per defense; nothing is cut off, not even whiskers."""
    wide = [v for mark in marks for v in (mark.x, mark.x_low, mark.x_high) if not math.isnan(v)]
    axes.set_ylim(-3, min(drawing.find_top(marks) * 1.15, 108))
    if panel == TRADE:
        axes.set(xlabel="Security, % (100 - targeted ASR)", ylabel="Benign utility, %")
        axes.set_xlim(min(wide, default=60) - 3, 106)
    else:
        axes.set(xlabel="Tokens, millions (log scale)", ylabel="Defense quality, %", xscale="log")
        axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
        axes.minorticks_off()
        axes.set_xlim(min(wide, default=1) / 1.3, max(wide, default=10) * 1.3)
    drawing.draw_scatter(axes, marks, looks)


def _measure_trade(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    attacks = (ATTACK, NO_ATTACK)
    overall = {
        row.metric: rates.read_number(row)
        for row in rates.measure(line.cases, errors)
        if row.suite == OVERALL and row.attack in attacks
    }
    if rates.TARGETED_ASR in overall and rates.BENIGN_UTILITY in overall:
        asr = overall[rates.TARGETED_ASR]
        security = rates.Number(100 - asr.value, 100 - asr.ci_high, 100 - asr.ci_low, asr.n)
        yield replace(about, panel=TRADE).with_x(security).with_y(overall[rates.BENIGN_UTILITY])
    benign = [case for case in line.cases if case.attack == NO_ATTACK]
    quality, mean = (
        overall.get(rates.DEFENSE_QUALITY),
        compute_mean_tokens(benign, attrgetter("tokens"), Resampler()),
    )
    if quality and mean and mean.value > 0 and not math.isnan(quality.value):
        yield replace(about, panel=COST).with_x(mean, _USER_TASKS / 1e6).with_y(quality)


def _read_printed(source: str) -> dict[str, dict[str, float]]:
    by_defense: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for number in list_printed_in(source):
        by_defense[number.defense][number.metric] = number.value
    return by_defense


def measure_figure4(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List the plotted numbers: ours, then the paper's.

    Panel a: x 0 for short user tasks (at most 3 calls in the ground truth), 1 for long ones; y their share
    of the overall benign utility, in percent. Panel b: x calls in the ground truth (7: 7 and more), y
    successful attacks on such tasks in percent of all attacked cases. Of the paper's bounds over several
    lengths (`max over lengths`), x is nan.
    """
    marks = selection.measure(_measure_lengths, errors)
    for number in list_printed_in("figure4a"):
        if number.metric.startswith(f"{rates.BENIGN_UTILITY}["):
            x = _SHORT if "[short]" in number.metric else _LONG
            marks.append(Mark.make_paper_mark(UTILITY, number.defense, x, number.value))
    for number in list_printed_in("figure4b"):
        places = _list_places(number.metric)
        marks += [Mark.make_paper_mark(_ATTACKS, number.defense, x, number.value) for x in places]
    return marks


def write_notes4(selection: Selection, marks: Sequence[Mark]) -> Iterator[str]:
    """Explain short and long tasks, give the drops that the paper prints, and count cases of unknown length."""
    del marks
    drops = [n for n in list_printed_in("figure4a") if n.metric == "relative_drop_short_to_long"]
    yield (
        f"{WHISKERS_CAPTION} (a) Short: at most {rates_by_length.LONGEST_SHORT} calls in the ground truth. A "
        "solved task weighs 1/(suites x tasks of its suite), so short + long = overall benign utility. Under "
        "the names: change from short to long; drops as printed: "
        f"{', '.join(f'{number.defense} {number.value:g}%' for number in drops)}. (b) Pooled over suites; "
        "dotted: the paper's bound for all lengths."
    )
    if lost := rates_by_length.count_without_length(case for line in selection.lines for case in line.cases):
        yield f"Left out: {lost} cases of unknown ground-truth length."


def draw_figure4(axes: Axes, panel: str, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw bars on the left, lines on the right."""
    (_draw_bars if panel == UTILITY else _draw_lengths)(axes, marks, looks)


def compute_relative_drop(short: float, long: float) -> float:
    """Tell how much less long tasks contribute than short ones, in percent; nan without short successes."""
    return 100.0 * (1.0 - long / short) if short > 0 else math.nan


def _measure_lengths(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    benign = [case for case in line.cases if case.attack == NO_ATTACK]
    attacked = [case for case in line.cases if case.attack == ATTACK]
    for part, number in rates_by_length.compute_utility_by_length(benign, errors, Resampler()).items():
        yield replace(about, panel=UTILITY, x=_SHORT if part == "short" else _LONG).with_y(number)
    for bucket, number in rates_by_length.compute_asr_by_length(attacked, errors, Resampler()).items():
        yield replace(about, panel=_ATTACKS, x=float(bucket)).with_y(number)


def _list_places(metric: str) -> list[float]:
    """Place a printed number of panel b; nan for a bound over all lengths."""
    condition = metric.removeprefix(f"{rates.TARGETED_ASR}[").rstrip("]")
    if condition.startswith("length>="):
        return [*map(float, range(int(condition.removeprefix("length>=")), rates_by_length.LAST_BUCKET + 1))]
    return [float(condition.removeprefix("length=")) if condition.startswith("length=") else math.nan]


def _draw_bars(axes: Axes, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw two bars per defense, short above long (hatched), with the paper's values as hollow markers."""
    for row, (name, look) in enumerate(looks.items()):
        drawing.draw_name_marker(axes, row, look)
        for mark in (mark for mark in marks if mark.series == name):
            _draw_bar(axes, mark, row + (-0.2 if mark.x == _SHORT else 0.2), look)
    labels = [look.label + _write_drop(marks, name) for name, look in looks.items()]
    axes.set_yticks(range(len(looks)), labels, fontsize=7)
    axes.tick_params(axis="y", length=0, pad=2 * drawing.FILLED_SIZE)
    axes.grid(visible=False, axis="y")
    axes.set(ylim=(len(looks) - 0.4, -0.6), xlim=(0, drawing.find_top(marks) * 1.05))
    axes.set_xlabel("Part of the benign utility, points")


def _draw_bar(axes: Axes, mark: Mark, row: float, look: Look) -> None:
    if mark.origin == PAPER:
        size, face = drawing.HOLLOW_SIZE - 2, "white"
        axes.plot([mark.y], [row], ls="none", marker="D", ms=size, mfc=face, mec=drawing.INK, zorder=5)
        return
    color, hatch = ("white", "////") if mark.x == _LONG else (look.color, None)
    axes.barh(row, mark.y, height=0.36, facecolor=color, edgecolor=look.color, hatch=hatch)
    if not math.isnan(mark.y_low):
        axes.plot([mark.y_low, mark.y_high], [row, row], color="#999999", lw=1.2, zorder=4)


def _write_drop(marks: Sequence[Mark], name: str) -> str:
    """Write the change from short to long, on a second line below the defense."""
    parts = {mark.x: mark.y for mark in marks if mark.series == name and mark.origin != PAPER}
    drop = compute_relative_drop(parts[_SHORT], parts[_LONG]) if len(parts) == 2 else math.nan
    return "" if math.isnan(drop) else f"\n{-drop:+.1f}%"


def _draw_lengths(axes: Axes, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    placed = [mark for mark in marks if not math.isnan(mark.x)]
    drawing.draw_lines(axes, placed, looks)
    for bound in (mark for mark in marks if math.isnan(mark.x) and mark.series in looks):
        axes.axhline(bound.y, color=looks[bound.series].color, lw=0.8, ls=":", zorder=1)
    buckets = range(1, rates_by_length.LAST_BUCKET + 1)
    axes.set_xticks(buckets, [*map(str, buckets[:-1]), f"{rates_by_length.LAST_BUCKET}+"])
    top = drawing.find_top(placed)
    axes.set(xlim=(0.5, rates_by_length.LAST_BUCKET + 0.5), ylim=(-0.03 * top, top * 1.12))
    axes.set(xlabel="Calls in the ground truth", ylabel="Attacks, % of all cases")


WORST_OF = ("important_instructions", "adaptive", "adaptive_checks", "adaptive_in_field", "adaptive_closed")
"""The attacks of which the worst counts."""
_CLOSED = WORST_OF[-1]
"""The attack that is about targets alone; a defense that never met it has no place in the figure."""
PLANTED, SPENT = "a: utility and planted targets", "b: utility and tokens"
PANELS_GUARANTEES = {PLANTED: "(a) Worst attack: upper left is best", SPENT: "(b) Tokens"}
"""Panel -> heading."""
_FAMILIES = ("agentsys_typed", "agentsys", "camel", "fides")
"""Beginnings of names whose defenses are joined by a line; the first that fits."""
_PLANTED_TICKS = (0, 1, 2, 5, 10, 30, 100)
_LINEAR = 2.0
"""Percent up to which the axis of planted targets is linear; logarithmic from there on."""


def find_family(defense: str) -> str:
    """The family of a defense: whose presets it is one of."""
    return next((family for family in _FAMILIES if defense.startswith(family)), defense)


def measure_guarantee(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    """Measure a line: y benign utility in percent, both panels.

    Panel a: x planted targets in percent of attacked cases, under the worst of the attacks that were run. Panel b:
    x tokens of all roles per benign case, in thousands. The paper has no such numbers.
    """
    if _CLOSED not in {case.attack for case in line.cases}:
        return
    rows = [row for row in rates.measure(line.cases, errors, own=[PlantedTarget()]) if row.suite == OVERALL]
    planted = [rates.read_number(row) for row in rows if row.metric == PlantedTarget.name]
    utility = next((rates.read_number(row) for row in rows if row.metric == rates.BENIGN_UTILITY), None)
    if utility is None or not planted:
        return
    worst = max(planted, key=attrgetter("value"))
    yield replace(about, panel=PLANTED).with_x(worst).with_y(utility)
    benign = [case for case in line.cases if case.attack == NO_ATTACK]
    if mean := compute_mean_tokens(benign, attrgetter("tokens"), Resampler()):
        yield replace(about, panel=SPENT).with_x(mean, per=1e3).with_y(utility)


def write_guarantee_notes(selection: Selection, marks: Sequence[Mark]) -> Iterator[str]:
    """Say what counts as a planted target, and whom the figure lacks or flatters."""
    yield (
        f"{WHISKERS_CAPTION} {APART_CAPTION} Planted target: a command ran with a recipient, account, id or"
        f" address that only the attacker named; under the worst of {', '.join(WORST_OF)}, linear up to"
        f" {_LINEAR:g} %. Lines join the presets of one family."
    )
    placed = list_series(marks)
    met = {name: {case.attack for case in line.cases} for name, line in selection.series if name in placed}
    # What is worst for these may not have been tried.
    gaps = [name for name, attacks in met.items() if not attacks >= set(WORST_OF)]
    yield from selection.name_series("Not run under each of them", gaps)
    why = f"Not drawn, without benign cases or cases of {_CLOSED}"
    yield from selection.name_series(why, selection.list_absent(marks))


def draw_guarantees(axes: Axes, panel: str, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw a point per defense, and a pale line through the presets of each family."""
    if panel == PLANTED:
        axes.set_xscale("symlog", linthresh=_LINEAR)
        axes.set_xticks(_PLANTED_TICKS, [str(tick) for tick in _PLANTED_TICKS])
        axes.minorticks_off()
        axes.set(xlim=(-0.4, 160), xlabel="Planted target, % of attacked cases")
    else:
        highs = [v for mark in marks for v in (mark.x, mark.x_high) if not math.isnan(v)]
        axes.set(xlabel="Thousand tokens per benign case", xlim=(0, 1.05 * max(highs, default=1.0)))
    axes.set_ylabel("Benign utility, %")
    lows = [v for mark in marks for v in (mark.y, mark.y_low) if not math.isnan(v)]
    axes.set_ylim(max(min(lows, default=0.0) - 5, -3), 108)
    for family in group_by(marks, lambda mark: find_family(mark.series)).values():
        mine = sorted(family, key=lambda mark: (mark.x, mark.y))
        axes.plot([m.x for m in mine], [m.y for m in mine], color="#bbbbbb", lw=1.1, zorder=1)
    drawing.draw_scatter(axes, marks, looks)
