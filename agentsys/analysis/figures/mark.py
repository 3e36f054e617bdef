"""`Mark`: one plotted number. A figure's marks are all that is drawn, and are what its CSV holds."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from agentsys.analysis.metrics.rates import Number
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.published import PAPER_MODEL
from agentsys.analysis.tables.output import csv_text, records_of

RUNS = "runs"
"""Origin of what we measured."""
PAPER = "paper"
"""Origin of what the paper prints: drawn hollow."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One point, or one end of a bar. The fields are the columns of the figure's CSV."""

    panel: str
    """Which panel of the figure."""
    series: str
    """What it belongs to: a defense, as a rule."""
    x: float
    """In the unit of the panel's axis; nan where the paper gives no place on it."""
    y: float
    y_low: float = math.nan
    """Lower end of the 95% interval; nan where there is none."""
    y_high: float = math.nan
    x_low: float = math.nan
    """The same across."""
    x_high: float = math.nan
    n: int = 0
    """Cases it rests on; 0 for printed numbers."""
    origin: str = RUNS
    """`runs` or `paper`."""
    simulated: bool = False
    """Whether a scripted agent, not a language model, was behind it."""
    model: str = ""
    version: str = ""
    """Benchmark version(s) of the runs."""
    label: str = ""
    """What the figure calls the series, where that is something else."""

    @property
    def name(self) -> str:
        """The series' name in the figure."""
        return self.label or self.series


def mark_of(line: RunLine, series: str) -> Mark:
    """A mark of a line of the runs, nowhere yet."""
    return Mark(
        "", series, math.nan, math.nan, simulated=line.simulated, model=line.model, version=line.version
    )


def printed_mark(panel: str, series: str, x: float, y: float = math.nan) -> Mark:
    """A mark of a number that the paper prints."""
    return Mark(panel, series, x, y, origin=PAPER, model=PAPER_MODEL)


def marks_csv(marks: Iterable[Mark]) -> str:
    """One header line, then one line per mark; what is undefined is `nan`."""
    return csv_text(records_of(Mark, marks))


def across(mark: Mark, number: Number) -> Mark:
    """The mark with a number as its horizontal coordinate."""
    return replace(mark, x=number.value, x_low=number.ci_low, x_high=number.ci_high)


def upright(mark: Mark, number: Number) -> Mark:
    """The mark with a number as its vertical coordinate, and the number's cases behind it."""
    return replace(mark, y=number.value, y_low=number.ci_low, y_high=number.ci_high, n=number.n)
