"""`Mark`: one plotted number. A figure's marks are all that is drawn, and are what its CSV holds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace

from agentsys.analysis.metrics.rates import Number
from agentsys.analysis.tables.escaping import csv_cell

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


COLUMNS = tuple(column.name for column in fields(Mark))
"""Column names of a figure's CSV, in order."""


def marks_csv(marks: Iterable[Mark]) -> str:
    """One header line, then one line per mark; what is undefined is `nan`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for mark in marks:
        values = asdict(mark)
        writer.writerow({k: csv_cell(v) if isinstance(v, str) else v for k, v in values.items()})
    return text.getvalue()


def across(mark: Mark, number: Number) -> Mark:
    """The mark with a number as its horizontal coordinate."""
    return replace(mark, x=number.value, x_low=number.ci_low, x_high=number.ci_high)


def upright(mark: Mark, number: Number) -> Mark:
    """The mark with a number as its vertical coordinate, and the number's cases behind it."""
    return replace(mark, y=number.value, y_low=number.ci_low, y_high=number.ci_high, n=number.n)
