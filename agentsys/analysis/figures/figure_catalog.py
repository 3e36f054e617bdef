"""The figures there are, and how one is made from stored cases."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentsys.analysis.figures import attack_figures, utility_figures
from agentsys.analysis.figures.drawing import DrawnFigure, Layout, apply_style, draw_panels, remove_words
from agentsys.analysis.figures.figure_data import RUNS, Mark, Selection, choose_looks, list_alike, list_series
from agentsys.analysis.metrics.cell_verdict import BROKEN
from agentsys.analysis.metrics.rates import PERCENT
from agentsys.analysis.paper.paper_tables import ATTACK, BENCHMARK, RunLine, list_run_lines
from agentsys.analysis.published import PAPER_MODEL
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.errors import ConfigError, require_known_name, unknown_name
from agentsys.records.case_row import NO_ATTACK, CaseRow, strip_simulated_mark

if TYPE_CHECKING:
    from agentsys.analysis.figures.drawing import DrawPanel

_FIRST = ("none", "agentsys", "drift", "progent", "camel")
"""Defenses of the paper's figures, in their order."""


@dataclass(frozen=True)
class FigureKind:
    """One figure: what it needs and the two steps that make it."""

    name: str
    """The stem of its files."""
    title: str
    units: Mapping[str, tuple[str, str]]
    """Panel, or nothing for all others -> units of its axes, across and up."""
    attacks: tuple[str, ...]
    """Which cases it needs; `none` for benign ones."""
    measure: Callable[[Selection, ErrorRule], list[Mark]]
    panels: Mapping[str, str] | Callable[[Sequence[Mark]], Mapping[str, str]]
    """Panel -> heading."""
    draw: DrawPanel
    layout: Layout
    notes: Callable[[Selection, Sequence[Mark]], Iterable[str]]
    """Says what a reader must know, but for what is left out of every figure alike."""
    benchmark: str = BENCHMARK
    prepare: Callable[[Iterable[CaseRow]], Iterable[CaseRow]] | None = None
    """Gives cases the names that the figure knows them by."""
    joins_versions: bool = True
    """Whether versions of the benchmark complete each other; otherwise each has lines of its own."""

    def select(
        self, cases: Iterable[CaseRow], model: str | None = None, defenses: Collection[str] = ()
    ) -> Selection:
        """Choose the model that the figure shows, and its defenses.

        By default the paper's model, as the runs or as the paper name it, else the one with the most cases;
        and all defenses.

        Raises:
            ConfigError: If the runs do not have the model or a defense asked for.
        """
        named = self.prepare(cases) if self.prepare else cases
        lines = list_run_lines(named, self.attacks, self.benchmark, joins_versions=self.joins_versions)
        chosen = _choose_model(lines, model)
        rank = {name: index for index, name in enumerate(_FIRST)}
        mine = sorted(
            (line for line in lines if line.model == chosen),
            key=lambda line: (rank.get(line.defense, len(rank)), line.defense, line.version),
        )
        known = list(dict.fromkeys(line.defense for line in mine))
        for name in defenses:
            require_known_name("defense in these runs", name, known)
        wanted = defenses or known
        return Selection(
            chosen,
            tuple(line for line in mine if line.defense in wanted),
            tuple(sorted({line.model for line in lines} - {chosen})),
        )


def _choose_model(lines: Iterable[RunLine], model: str | None) -> str:
    sizes: Counter[str] = Counter()
    for line in lines:
        sizes[line.model] += len(line.cases)
    wanted = model or PAPER_MODEL
    fitting = {
        line.model for line in lines if wanted in (line.model, line.short, strip_simulated_mark(line.model))
    }
    if not fitting and model is not None:
        raise ConfigError(unknown_name("model in these runs", model, list(sizes)))
    return max(sorted(fitting or sizes), key=lambda name: sizes[name], default="")


_BOTH = (NO_ATTACK, ATTACK)
FIGURES = {
    "2": FigureKind(
        "figure2",
        "Figure 2. Observation prompt injection on ASB",
        {"": (PERCENT, "row")},
        (attack_figures.ATTACK, attack_figures.CONTROL),
        attack_figures.measure_figure2,
        attack_figures.list_modes,
        attack_figures.draw_mode,
        Layout(0.8, row_height=0.32, most=10_000, legend=False),
        attack_figures.write_notes,
        benchmark=attack_figures.BENCHMARK,
        prepare=attack_figures.rename_cases,
        joins_versions=False,
    ),
    "3": FigureKind(
        "figure3",
        "Figure 3. Security, utility and cost of defenses",
        {
            utility_figures.TRADE: (PERCENT, PERCENT),
            utility_figures.COST: ("million tokens", PERCENT),
        },
        _BOTH,
        utility_figures.measure_figure3,
        utility_figures.PANELS3,
        utility_figures.draw_figure3,
        Layout(2.9, most=12),
        utility_figures.write_notes3,
    ),
    "4": FigureKind(
        "figure4",
        "Figure 4. Utility and attack success by the length of the task",
        {utility_figures.UTILITY: ("0 short, 1 long", PERCENT), "": ("calls", PERCENT)},
        _BOTH,
        utility_figures.measure_figure4,
        utility_figures.PANELS4,
        utility_figures.draw_figure4,
        Layout(1.15, row_height=0.27, most=8, legend=False),
        utility_figures.write_notes4,
    ),
    "table1": FigureKind(
        "figure_table1",
        "Table 1 as a figure. Targeted ASR by trajectory length and injection round",
        {"": ("round", PERCENT)},
        (ATTACK,),
        attack_figures.measure_table1,
        attack_figures.ROUND_PANELS,
        attack_figures.draw_rounds,
        Layout(2.4),
        lambda *_: [attack_figures.ROUND_NOTE],
    ),
    "tokens": FigureKind(
        "figure_tokens",
        "Tokens per case by trajectory length",
        {"": ("tool results", "thousand tokens")},
        _BOTH,
        lambda selection, errors: selection.measure(attack_figures.measure_growth, errors),
        attack_figures.TOKEN_PANELS,
        attack_figures.draw_growth,
        Layout(2.4),
        attack_figures.write_token_notes,
    ),
    "guarantees": FigureKind(
        "figure_guarantees",
        "Benign utility, planted targets and tokens",
        {utility_figures.PLANTED: (PERCENT, PERCENT), utility_figures.SPENT: ("thousand tokens", PERCENT)},
        (NO_ATTACK, *utility_figures.WORST_OF),
        lambda selection, errors: selection.measure(utility_figures.measure_guarantee, errors),
        utility_figures.PANELS_GUARANTEES,
        utility_figures.draw_guarantees,
        Layout(2.9, most=12),
        utility_figures.write_guarantee_notes,
    ),
}
"""What `agentsys figure` takes -> figure."""


def make_figure(
    kind: FigureKind,
    cases: Iterable[CaseRow],
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    model: str | None = None,
    defenses: Collection[str] = (),
    bare: bool = False,
) -> DrawnFigure:
    """Measure and draw a figure from the cases of one model.

    `FigureKind.select` chooses the model and the defenses. A bare figure, for a paper, has no title and no notes.

    Raises:
        ConfigError: If the runs do not have the model or a defense asked for, or hold nothing to draw.
    """
    selection = kind.select(cases, model, defenses)
    with apply_style():
        marks = [
            _put_units(mark, kind.units)
            for mark in kind.measure(selection, errors)
            if not defenses or mark.origin == RUNS or mark.series in defenses
        ]
        drawn = [mark for mark in marks if mark.verdict != BROKEN]
        if not any(mark.origin == RUNS and math.isfinite(mark.y) for mark in drawn):
            raise ConfigError(
                f"Nothing to draw in {kind.name}: these runs hold none of the numbers it shows."
            )
        panels = kind.panels(drawn) if callable(kind.panels) else kind.panels
        defenses_of = {name: line.defense for name, line in selection.series}
        looks = choose_looks({name: defenses_of.get(name, name) for name in list_series(drawn)})
        notes = [*kind.notes(selection, drawn), *selection.omissions]
        notes += selection.name_series("Told from another by its line alone", list_alike(looks))
        words = (kind.title, selection.write_subtitle(drawn), notes)
        figure = draw_panels(panels, drawn, looks, kind.draw, kind.layout, words)
        if bare:
            remove_words(figure, simulated=any(mark.simulated for mark in marks))
        return DrawnFigure(kind.name, figure, marks)


def _put_units(mark: Mark, units: Mapping[str, tuple[str, str]]) -> Mark:
    across, up = units[mark.panel if mark.panel in units else ""] if mark.panel else ("", "")
    return replace(mark, x_unit=across, y_unit=up)
