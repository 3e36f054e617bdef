"""The figures there are, and how one is made from stored cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentsys.analysis.figures import figure2, figure3, figure4, table1_figure, tokens_figure
from agentsys.analysis.figures.drawn import Drawn
from agentsys.analysis.figures.mark import Mark
from agentsys.analysis.figures.selection import ANYTHING, Selection, Wish, select
from agentsys.analysis.figures.style import styled, without_words
from agentsys.analysis.paper.layout import ATTACK
from agentsys.analysis.paper.lines import BENCHMARK
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.errors import ConfigError
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.names_file import STORED_NAMES, DisplayNames

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class FigureKind:
    """One figure: what it needs and the two steps that make it."""

    name: str
    """The stem of its files."""
    attacks: tuple[str, ...]
    """Which cases it needs; `none` for benign ones."""
    marks: Callable[[Selection, ErrorRule], list[Mark]]
    draw: Callable[[Selection, list[Mark]], Figure]
    benchmark: str = BENCHMARK
    room: int | None = None
    """How many defenses can be told apart in it; None: any number."""
    prepare: Callable[[Iterable[CaseRow]], Iterable[CaseRow]] | None = None
    """Gives cases the names that the figure knows them by."""
    joins_versions: bool = True
    """Whether versions of the benchmark complete each other; otherwise each has lines of its own."""

    def selection(self, cases: Iterable[CaseRow], wish: Wish = ANYTHING) -> Selection:
        """Choose what the figure shows of some cases.

        Raises:
            ConfigError: If the runs do not have the model or a defense asked for.
        """
        named = self.prepare(cases) if self.prepare else cases
        return select(
            named,
            self.attacks,
            wish,
            benchmark=self.benchmark,
            room=self.room,
            joins_versions=self.joins_versions,
        )


_BOTH = (NO_ATTACK, ATTACK)
FIGURES = {
    "2": FigureKind(
        "figure2",
        figure2.ATTACKS,
        figure2.marks,
        figure2.draw,
        figure2.BENCHMARK,
        prepare=figure2.figure2_cases,
        joins_versions=False,
    ),
    "3": FigureKind("figure3", _BOTH, figure3.marks, figure3.draw),
    "4": FigureKind("figure4", _BOTH, figure4.marks, figure4.draw, room=5),
    "table1": FigureKind("figure_table1", (ATTACK,), table1_figure.marks, table1_figure.draw, room=3),
    "tokens": FigureKind("figure_tokens", _BOTH, tokens_figure.marks, tokens_figure.draw, room=8),
}
"""What `agentsys figure` takes -> figure."""


def make_figure(
    kind: FigureKind,
    cases: Iterable[CaseRow],
    wish: Wish = ANYTHING,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    bare: bool = False,
    shown: DisplayNames = STORED_NAMES,
) -> Drawn:
    """Measure and draw.

    Args:
        kind: One of `FIGURES`.
        cases: Everything read.
        wish: Whose runs to show.
        errors: What errored cases count as.
        bare: Whether title and notes are left out, for a paper.
        shown: What it calls defenses and models; colours and markers stay those of the names in the runs.

    Returns:
        The figure and the numbers in it; `agentsys.analysis.figures.drawn.save` writes both.

    Raises:
        ConfigError: If the runs do not have the model or a defense asked for, or hold nothing to draw.
    """
    selection = replace(kind.selection(cases, wish), shown=shown)
    with styled():
        marks = [_labelled(mark, shown) for mark in kind.marks(selection, errors)]
        if not marks:
            raise ConfigError(
                f"Nothing to draw in {kind.name}: these runs hold none of the numbers it shows."
            )
        figure = kind.draw(selection, marks)
        if bare:
            without_words(figure, simulated=any(mark.simulated for mark in marks))
        return Drawn(kind.name, figure, marks)


def _labelled(mark: Mark, shown: DisplayNames) -> Mark:
    label = shown.series_name(mark.series)
    return mark if label == mark.series else replace(mark, label=label)
