"""Grids that only some runs have, between the overall ones and those by suite: the same in every format."""

from __future__ import annotations

from agentsys.analysis.tables.benchmark_facts_grid import measured_grids
from agentsys.analysis.tables.denial_grid import denial_grids
from agentsys.analysis.tables.document import Grid
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_layout import Sheet


def extra_grids(found: Report, sheet: Sheet) -> list[Grid]:
    """What one sheet's runs have besides the four metrics; mostly nothing.

    Args:
        found: From `agentsys.analysis.tables.report.report`.
        sheet: Which model on which benchmark and version.
    """
    return [*measured_grids(found.measured, sheet), *denial_grids(found.denials, sheet)]
