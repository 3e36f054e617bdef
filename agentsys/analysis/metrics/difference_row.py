"""`DifferenceRow`: one difference between two sides, a row of the long form of `agentsys compare`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from agentsys.analysis.metrics.contenders import Axis
from agentsys.analysis.metrics.rates import MeasuredCell

ALL_CASES = "all"
EXPOSED = "exposed"
"""Only cases in which a tool returned the payload on both sides."""


class Contest(NamedTuple):
    """Two sides in one field."""

    by: Axis
    field: MeasuredCell
    baseline: str
    compared: str
    """The other side: a defense, model, attack or run."""

    @property
    def title(self) -> str:
        """What is compared with what, and where."""
        return f"{self.compared} against {self.baseline}, {self.field.place}"


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One difference. The fields are the columns of the long form; docs/statistics.md defines them."""

    benchmark: str
    version: str
    model: str
    """The compared side's, like `defense` and `attack`."""
    defense: str
    attack: str
    by: str
    """What the two sides differ in: `defense`, `model`, `attack` or `run`."""
    baseline: str
    """Name of the side that is compared with: a defense, model, attack or run, as `by` says."""
    compared: str
    """Name of the other side."""
    suite: str
    """A suite, `overall` or `pooled`."""
    metric: str
    cases: str
    """`all` or `exposed`."""
    baseline_value: float
    """Percent, on the cases that both have."""
    compared_value: float
    difference: float
    """Percentage points: the compared side's value less the baseline's."""
    ci_low: float
    """Percentage points; nan where undefined, like `p` and `smallest_detectable`."""
    ci_high: float
    p: float
    """Two-sided, of no difference."""
    p_holm: float
    """Corrected (Holm) for the other rows of the same kind of level and the same `cases`."""
    n: int
    """Cases compared."""
    gained: int
    """Cases in which the outcome occurred on the compared side alone."""
    lost: int
    """Cases in which it occurred on the baseline's side alone."""
    differing_user_tasks: int
    """User tasks with such a case."""
    differing_injection_tasks: int
    """Injection tasks with such a case."""
    smallest_detectable: float
    """Percentage points: the true difference that this number of cases finds with 80% power."""
    errored: int
    """Cases of all suites stored on both sides and left out, since one of them errored."""
    only_baseline: int
    """Cases of all suites that the other side lacks."""
    only_compared: int
