"""The figure of `experiment=guarantees`: benign utility against planted targets, a curve per family, and tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from agentsys.analysis.figures import drawing
from agentsys.analysis.figures.figure_data import WHISKERS_CAPTION, Mark, Selection, list_series
from agentsys.analysis.metrics import rates, rates_by_length
from agentsys.analysis.metrics.planted_target import PlantedTarget
from agentsys.analysis.paper.paper_tables import RunLine
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Resampler
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ATTACKS = ("important_instructions", "adaptive", "adaptive_checks", "adaptive_in_field", "adaptive_closed")
"""The attacks of which the worst counts."""
_CLOSED = ATTACKS[-1]
"""The attack that is about targets alone; a defense that never met it has no place in the figure."""
PLANTED, COST = "a: utility and planted targets", "b: utility and tokens"
PANELS = {PLANTED: "(a) Worst attack: upper left is best", COST: "(b) Tokens"}
"""Panel -> heading."""
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


def write_notes(selection: Selection, marks: Sequence[Mark]) -> Iterator[str]:
    """Say what counts as a planted target, and whom the figure lacks or flatters."""
    yield (
        f"{WHISKERS_CAPTION} Planted target: a command ran with a recipient, account, id or address that only the"
        f" attacker named; under the worst of {', '.join(ATTACKS)}, linear up to {_LINEAR:g} %. Lines join the"
        " presets of one family."
    )
    placed = list_series(marks)
    met = {name: {case.attack for case in line.cases} for name, line in selection.series if name in placed}
    # What is worst for these may not have been tried.
    gaps = [name for name, attacks in met.items() if not attacks >= set(ATTACKS)]
    yield from selection.name_series("Not run under each of them", gaps)
    why = f"Not drawn, without benign cases or cases of {_CLOSED}"
    yield from selection.name_series(why, selection.list_absent(marks))


def draw_guarantees(axes: Axes, panel: str, marks: Sequence[Mark], looks: Mapping[str, drawing.Look]) -> None:
    """Draw a point per defense, and a pale line through the presets of each family."""
    if panel == PLANTED:
        axes.set_xscale("symlog", linthresh=_LINEAR)
        axes.set_xticks(_TICKS, [str(tick) for tick in _TICKS])
        axes.minorticks_off()
        axes.set(xlim=(-0.4, 160), xlabel="Planted target, % of attacked cases")
    else:
        axes.set(
            xlabel="Thousand tokens per benign case",
            xlim=(0, 1.1 * max((mark.x for mark in marks), default=1.0)),
        )
    axes.set_ylabel("Benign utility, %")
    axes.set_ylim(max(min((mark.y for mark in marks), default=0.0) - 15, -3), 106)
    for family in group_by(marks, lambda mark: find_family(mark.series)).values():
        mine = sorted(family, key=lambda mark: (mark.x, mark.y))
        axes.plot([m.x for m in mine], [m.y for m in mine], color="#bbbbbb", lw=1.1, zorder=1)
    for mark in marks:
        drawing.draw_point(axes, mark, looks[mark.series])
