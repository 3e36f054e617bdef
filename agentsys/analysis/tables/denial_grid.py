"""Paired denials of service as a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable

from agentsys.analysis.metrics.denial import ASR_WHERE_SOLVED, UTILITY_CHANGE, Denial
from agentsys.analysis.metrics.rates import MetricRow
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.document import Grid, GridCell, cells
from agentsys.analysis.tables.numbers_as_text import interval_text, value_text
from agentsys.analysis.tables.results_layout import Sheet

_HEADER = (
    "Defense",
    "ASR where solved",
    "Solved without attack",
    "Utility change",
    "Lost",
    "Gained",
    "Tasks",
)


def denial_grids(found: Iterable[Denial], sheet: Sheet) -> list[Grid]:
    """One grid; none where the sheet's runs hold no denial of service beside benign cases.

    Args:
        found: From `agentsys.analysis.metrics.denial.denials`.
        sheet: Which model on which benchmark and version.
    """
    place = (sheet.benchmark, sheet.version, sheet.model)
    rows = [_line(denial) for denial in found if denial.cell[:3] == place]
    caption = "denial of service beside the same tasks without attack, overall, in percent"
    return [Grid(caption, _HEADER, rows, names=1)] if rows else []


def _line(denial: Denial) -> tuple[GridCell, ...]:
    overall = {row.metric: row for row in denial.rows if row.suite == OVERALL}
    solved, change = overall.get(ASR_WHERE_SOLVED), overall[UTILITY_CHANGE]
    return cells(
        GridCell(denial.cell.defense, denial.cell.attack),
        GridCell(value_text(solved), interval_text(solved)),
        "0" if solved is None else str(solved.n),
        GridCell(value_text(change), _spread(change)),
        *(str(count) for count in (denial.lost, denial.gained, denial.pairs)),
    )


def _spread(row: MetricRow) -> str:
    """A difference may be negative on either side: a dash between its bounds could not be read."""
    return "" if math.isnan(row.ci_low) else f"{row.ci_low:.1f} to {row.ci_high:.1f}"
