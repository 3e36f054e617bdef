"""Attack success against the attacker's budget: steps, one line per defense, one panel per attack."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentsys.analysis.figures.drawn import Drawn
from agentsys.analysis.figures.labels import place_labels
from agentsys.analysis.figures.mark import Mark
from agentsys.analysis.figures.points import line_labels, obstacles, series_of
from agentsys.analysis.figures.style import Look, headline, looks, new_figure, panel_title, styled
from agentsys.analysis.metrics.search_attempts import Search
from agentsys.analysis.metrics.search_budget import ASR, BudgetRow, budget_rows, textless_notes, usual_budgets
from agentsys.analysis.statistics.bootstrap import CONFIDENCE
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.escaping import plain
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case_row import is_simulated_name, strip_simulated_mark

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = 3
"""Attacks shown side by side at most."""


@dataclass(frozen=True)
class _Shown:
    """The part of the searches that the figure shows."""

    model: str
    attacks: tuple[str, ...]
    notes: tuple[str, ...]


def budget_figure(searches: Sequence[Search], name: str, model: str | None = None) -> Drawn:
    """Measure and draw.

    Args:
        searches: At least one.
        name: The stem of the files.
        model: Whose searches to show; by default the model with the most.

    Raises:
        ConfigError: If the runs do not have the model.
    """
    shown = _chosen(searches, model)
    mine = [s for s in searches if s.model == shown.model and s.case.attack in shown.attacks]
    every = list(range(1, max(search.budget * search.tried_on for search in mine) + 1))
    rows = [row for row in budget_rows(mine, every) if (row.measure, row.suite) == (ASR, OVERALL)]
    marks = _marks(rows)
    with styled():
        return Drawn(name, _draw(shown, marks), marks)


def _chosen(searches: Sequence[Search], model: str | None) -> _Shown:
    sizes = Counter(search.model for search in searches)
    if model is not None and model not in {*sizes, *(strip_simulated_mark(name) for name in sizes)}:
        raise ConfigError(unknown_name("model in these runs", model, list(sizes)))
    fitting = [n for n in sizes if model is None or model in (n, strip_simulated_mark(n))]
    chosen = max(sorted(fitting), key=lambda found: sizes[found])
    attacks = sorted({search.case.attack for search in searches if search.model == chosen})
    others = sorted(set(sizes) - {chosen})
    notes = [f"Also in the runs: {plain(', '.join(others))} (choose with --model)."] if others else []
    notes += [plain(note) for note in textless_notes(s for s in searches if s.model == chosen)]
    if len(attacks) > PANELS:
        notes.append(f"Not drawn, for room: {plain(', '.join(attacks[PANELS:]))}.")
    return _Shown(chosen, tuple(attacks[:PANELS]), tuple(notes))


def _marks(rows: Iterable[BudgetRow]) -> list[Mark]:
    listed = list(rows)
    several = len({(row.benchmark, row.version) for row in listed}) > 1
    return [
        Mark(
            panel=row.attack,
            series=f"{row.defense}, {row.benchmark} {row.version}" if several else row.defense,
            x=float(row.budget or 0),
            y=row.value,
            y_low=row.ci_low,
            y_high=row.ci_high,
            n=row.n,
            simulated=is_simulated_name(row.model),
            model=row.model,
            version=row.version,
        )
        for row in listed
        if not math.isnan(row.value)
    ]


def _draw(shown: _Shown, marks: Sequence[Mark]) -> Figure:
    figure, panels = new_figure(len(shown.attacks), 4.8 if len(shown.attacks) == 1 else 7.2, 3.8)
    versions = ", ".join(dict.fromkeys(mark.version for mark in marks))
    subtitle = [f"{plain(shown.model)}, benchmark version {plain(versions)}."]
    if is_simulated_name(shown.model):
        subtitle.insert(0, "SIMULATED: from a scripted agent and attacker, not from language models.")
    notes = [
        f"Bands: {CONFIDENCE:.0f}% intervals, tasks resampled. Unit: one search; a query is one run of the "
        "agent. Mean of the suites. Searches that errored, were interrupted or had no text of an "
        "attacker are left out.",
        *shown.notes,
    ]
    headline(figure, "Targeted ASR by the attacker's budget", subtitle, notes)
    styles = looks(series_of(marks))
    most = max((mark.x for mark in marks), default=1.0)
    for axes, attack in zip(panels, shown.attacks, strict=True):
        _panel(axes, [mark for mark in marks if mark.panel == attack], styles, most)
        panel_title(axes, plain(attack))
    panels[0].set_ylabel("Targeted ASR, %")
    return figure


def _panel(axes: Axes, marks: Sequence[Mark], styles: dict[str, Look], most: float) -> None:
    for name in series_of(marks):
        mine = sorted((mark for mark in marks if mark.series == name), key=lambda mark: mark.x)
        look = styles[name]
        # A budget of 2.5 queries is one of 2: the value holds until the next query. The last one is
        # drawn out a little, or a search of a single query would have no line.
        x = [*(mark.x for mark in mine), mine[-1].x + 0.5]
        y, low, high = (
            [*(getattr(mark, which) for mark in mine), getattr(mine[-1], which)]
            for which in ("y", "y_low", "y_high")
        )
        axes.step(x, y, where="post", color=look.color, ls=look.dashes, lw=1.4, zorder=3)
        axes.fill_between(x, low, high, step="post", color=look.color, alpha=0.12, lw=0, zorder=1)
    axes.set(xlim=(0.5, most + 0.5 + 0.35 * most), ylim=(-2, 102), xlabel="Queries")
    axes.set_xticks(usual_budgets(int(most)))
    place_labels(axes, line_labels(marks, styles, at_end=True), obstacles(marks))
