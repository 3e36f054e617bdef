"""The figure of `experiment=guarantees`: benign utility against planted targets, a curve per family, and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from agentsys.analysis.figures import drawing
from agentsys.analysis.figures.figure_data import WHISKERS_CAPTION, Mark, Selection, list_series
from agentsys.analysis.figures.labels import place_labels
from agentsys.analysis.metrics import rates, rates_by_length
from agentsys.analysis.metrics.planted_target import PlantedTarget
from agentsys.analysis.paper.paper_tables import RunLine
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Resampler
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.table_document import plain
from agentsys.records.case_row import NO_ATTACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ATTACKS = ("important_instructions", "adaptive", "adaptive_checks", "adaptive_in_field", "adaptive_closed")
"""The attacks of which the worst counts."""
_CLOSED = ATTACKS[-1]
"""The attack that is about targets alone; a defense that never met it has no place in the figure."""
PLANTED, COST = "a: utility and planted targets", "b: utility and tokens"
"""Its panels."""
_FAMILIES = ("agentsys_typed", "agentsys", "camel", "fides")
"""Beginnings of names whose defenses are joined by a line; the first that fits."""
_TICKS = (0, 1, 2, 5, 10, 20, 50, 100)
_LINEAR = 2.0
"""Percent up to which the axis of planted targets is linear; logarithmic from there on."""


def find_family(defense: str) -> str:
    """The family of a defense: whose presets it is one of."""
    return next((family for family in _FAMILIES if defense.startswith(family)), defense)


def measure_guarantees(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List what is plotted: y benign utility in percent, both panels.

    Panel a: x planted targets in percent of attacked cases, under the worst of the attacks that were run. Panel b:
    x tokens of all roles per benign case, in thousands. The paper has no such numbers.
    """
    return selection.measure(_measure_line, errors)


def _measure_line(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    if _CLOSED not in {case.attack for case in line.cases}:
        return
    rows = [row for row in rates.measure(line.cases, errors, own=[PlantedTarget()]) if row.suite == OVERALL]
    planted = [rates.number_in(row) for row in rows if row.metric == PlantedTarget.name]
    utility = next((rates.number_in(row) for row in rows if row.metric == rates.BENIGN_UTILITY), None)
    if utility is None or not planted:
        return
    worst = max(planted, key=attrgetter("value"))
    yield replace(about, panel=PLANTED).with_x(worst).with_y(utility)
    benign = [case for case in line.cases if case.attack == NO_ATTACK]
    if mean := rates_by_length.mean_tokens(benign, attrgetter("tokens"), Resampler()):
        thousands = rates.Number(mean.value / 1e3, mean.ci_low / 1e3, mean.ci_high / 1e3, mean.n)
        yield replace(about, panel=COST).with_x(thousands).with_y(utility)


def draw_guarantees(selection: Selection, marks: Sequence[Mark]) -> Figure:
    """Draw two panels with a name at every point, and lines that join the presets of one family."""
    placed = list_series(marks)
    absent = [selection.shown.series_name(name) for name, _ in selection.series if name not in placed]
    notes = [
        f"{WHISKERS_CAPTION} Planted target: a command ran with a recipient, account, id or address that only the"
        f" attacker named; under the worst of {', '.join(ATTACKS)}, linear up to {_LINEAR:g} %. Lines join the"
        " presets of one family.",
        *_note_gaps(selection, placed),
        *(
            [f"Not drawn, without benign cases or cases of {_CLOSED}: {plain(', '.join(absent))}."]
            if absent
            else []
        ),
        *selection.omissions,
    ]
    lines = [line.split(" Hollow:")[0] for line in selection.subtitle]
    title = "Benign utility, planted targets and tokens"
    figure, (planted, cost) = drawing.make_panels(2, (7.2, 4.6), title, lines, notes)
    planted.set_xscale("symlog", linthresh=_LINEAR)
    planted.set_xticks(_TICKS, [str(tick) for tick in _TICKS])
    planted.minorticks_off()
    planted.set(xlim=(-0.4, 160), xlabel="Planted target, % of attacked cases", ylabel="Benign utility, %")
    drawing.write_panel_title(planted, "(a) Worst attack: upper left is best")
    cost.set(xlabel="Thousand tokens per benign case", xlim=(0, _find_top(marks)))
    drawing.write_panel_title(cost, "(b) Tokens")
    looks = drawing.choose_looks([find_family(name) for name in placed])
    styles = {name: looks[find_family(name)] for name in placed}
    lowest = min((mark.y for mark in marks), default=0.0)
    for axes in (planted, cost):
        axes.set_ylim(max(lowest - 15, -3), 106)
    for axes, panel in ((planted, PLANTED), (cost, COST)):
        _draw_families(axes, [mark for mark in marks if mark.panel == panel], styles)
    return figure


def _find_top(marks: Sequence[Mark]) -> float:
    """The end of the axis of tokens, with room for a name."""
    return 1.35 * max((mark.x for mark in marks if mark.panel == COST), default=1.0)


def _note_gaps(selection: Selection, placed: Sequence[str]) -> list[str]:
    """Say who did not meet every attack: what is worst for it may not have been tried."""
    met = {name: {case.attack for case in line.cases} for name, line in selection.series if name in placed}
    gaps = [selection.shown.series_name(name) for name, attacks in met.items() if not attacks >= set(ATTACKS)]
    return [f"Not run under each of them: {plain(', '.join(gaps))}."] if gaps else []


def _draw_families(axes: Axes, marks: Sequence[Mark], styles: dict[str, drawing.Look]) -> None:
    for family in dict.fromkeys(find_family(mark.series) for mark in marks):
        mine = sorted(
            (mark for mark in marks if find_family(mark.series) == family), key=lambda m: (m.x, m.y)
        )
        look = styles[mine[0].series]
        axes.plot(
            [m.x for m in mine], [m.y for m in mine], color=look.color, ls=look.dashes, lw=1.1, zorder=2
        )
    for mark in marks:
        drawing.draw_point(axes, mark, styles[mark.series], crowded=drawing.is_crowded(marks))
    place_labels(axes, drawing.label_points(marks, styles), drawing.list_obstacles(marks))
