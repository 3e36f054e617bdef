"""`DifferenceRow`: one difference between two defenses, a row of the long form of `agentsys compare`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

ALL_CASES = "all"
EXPOSED = "exposed"
"""Only cases in which a tool returned the payload under both defenses."""


class Field(NamedTuple):
    """A field in which defenses can be compared: one model on one benchmark, under one attack or none."""

    benchmark: str
    version: str
    model: str
    """Ends in ` (simulated)` where a simulated model was behind the cases."""
    attack: str
    """`none` for the benign utility."""


class Contest(NamedTuple):
    """Two defenses in one field."""

    field: Field
    baseline: str
    defense: str


@dataclass(frozen=True, slots=True)
class DifferenceRow:
    """One difference. The fields are the columns of the long form; docs/statistics.md defines them."""

    benchmark: str
    version: str
    model: str
    attack: str
    baseline: str
    defense: str
    suite: str
    """A suite, `overall` or `pooled`."""
    metric: str
    cases: str
    """`all` or `exposed`."""
    baseline_value: float
    """Percent, on the cases that both have."""
    defense_value: float
    difference: float
    """Percentage points: the defense's value less the baseline's."""
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
    """Cases in which the outcome occurred under the defense alone."""
    lost: int
    """Cases in which it occurred under the baseline alone."""
    smallest_detectable: float
    """Percentage points: the true difference that this number of cases finds with 80% power."""
    errored: int
    """Cases of all suites stored on both sides and left out, since one of them errored."""
    only_baseline: int
    """Cases of all suites that the other side lacks."""
    only_defense: int


DIFFERENCE_COLUMNS = tuple(field.name for field in fields(DifferenceRow))
"""Column names of the long form, in order."""
