"""`differences_frame`: the comparison of defenses as a data frame, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from agentsys.analysis.metrics.compare import COMPARED_METRICS, compare
from agentsys.analysis.metrics.difference_row import DIFFERENCE_COLUMNS
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.records.load import case_rows

if TYPE_CHECKING:
    import pandas as pd


def differences_frame(
    cases: pd.DataFrame,
    baseline: str = "none",
    metrics: Sequence[str] = COMPARED_METRICS,
    errors: ErrorRule | str = ErrorRule.REPORT,
) -> pd.DataFrame:
    """Every other defense against the baseline, on the cases that both have.

    Args:
        cases: Rows with the columns of `agentsys.load_runs`, in any order.
        baseline: The defense to compare with.
        metrics: Some of `COMPARED_METRICS`.
        errors: What errored cases count as.

    Returns:
        The columns of `DifferenceRow`, one row per difference.

    Raises:
        ConfigError: As `agentsys.analysis.metrics.compare.compare` does.
    """
    import pandas as pd

    found = compare(case_rows(cases), baseline, metrics, ErrorRule(errors))
    return pd.DataFrame([asdict(row) for row in found.rows], columns=list(DIFFERENCE_COLUMNS))
