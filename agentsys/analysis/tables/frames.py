"""From a frame of cases to frames of numbers, for notebooks; `results_table` for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from agentsys.analysis.metrics.compare import COMPARED_METRICS, compare
from agentsys.analysis.metrics.contenders import Axis, contenders
from agentsys.analysis.metrics.difference_row import DIFFERENCE_COLUMNS
from agentsys.analysis.metrics.rates import LONG_COLUMNS, measure
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.tables.report import report
from agentsys.analysis.tables.results_document import results_document
from agentsys.analysis.tables.write_terminal import terminal_document
from agentsys.records.load import case_rows
from agentsys.records.reading import Reading

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType


def results_frame(
    cases: pd.DataFrame, errors: ErrorRule | str = ErrorRule.REPORT, *, replicates: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """The long form of a (perhaps filtered) frame of `load_runs`.

    Args:
        cases: Rows with the columns of `load_runs`, in any order.
        errors: What errored cases count as; see `ErrorRule`.
        replicates: Number of bootstrap replicates.
        seed: Seed of the bootstrap's draws.

    Returns:
        Columns `benchmark,version,model,defense,attack,suite,metric,value,ci_low,ci_high,n,errors`.
    """
    import pandas as pd

    rows = measure(case_rows(cases), ErrorRule(errors), replicates=replicates, seed=seed)
    return pd.DataFrame([asdict(row) for row in rows], columns=list(LONG_COLUMNS))


def results_table(cases: pd.DataFrame, errors: ErrorRule | str = ErrorRule.REPORT) -> RenderableType:
    """The tables of `agentsys results` for a frame of `load_runs`; print them with a `rich` console.

    Args:
        cases: Rows with the columns of `load_runs`, in any order.
        errors: What errored cases count as.
    """
    found = report(Reading(tuple(case_rows(cases))), ErrorRule(errors))
    return terminal_document(results_document(found))


def differences_frame(
    cases: pd.DataFrame,
    baseline: str | None = None,
    metrics: Sequence[str] = COMPARED_METRICS,
    errors: ErrorRule | str = ErrorRule.REPORT,
    by: Axis | str = Axis.DEFENSE,
) -> pd.DataFrame:
    """Every other defense, model or attack against the baseline, on the cases that both have.

    Args:
        cases: Rows with the columns of `agentsys.load_runs`, in any order.
        baseline: The one to compare with; None: `none`, or the first if there is no such one.
        metrics: Some of `COMPARED_METRICS`.
        errors: What errored cases count as.
        by: `defense`, `model` or `attack`.

    Returns:
        The columns of `DifferenceRow`, one row per difference.

    Raises:
        ConfigError: As `agentsys.analysis.metrics.compare.compare` does.
    """
    import pandas as pd

    found = compare(contenders(case_rows(cases), Axis(by)), baseline, metrics, ErrorRule(errors))
    return pd.DataFrame([asdict(row) for row in found.rows], columns=list(DIFFERENCE_COLUMNS))
