"""`linked`: the numbers of a table as links to the cases behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlencode

from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR, UTILITY_UNDER_ATTACK
from agentsys.analysis.tables.document import MISSING, Grid, GridCell
from agentsys.analysis.tables.results_layout import ResultsLine, Sheet
from agentsys.records.case_row import NO_ATTACK

_COUNTS = {"Benign cases": BENIGN_UTILITY, "Attacked cases": UTILITY_UNDER_ATTACK, "Errors": ""}
"""Columns that count cases -> the metric that is about these; errors are of all kinds."""
_LINKED = frozenset({BENIGN_UTILITY, UTILITY_UNDER_ATTACK, TARGETED_ASR})
_NOTHING_BEHIND = ("", "0", MISSING)


def linked(grid: Grid, sheet: Sheet) -> Grid:
    """The grid with a link in every number that cases of the list are behind.

    A number whose line, metric or suite the headings do not tell is left as it is.
    """
    lines = {(line.defense, "" if line.attack == NO_ATTACK else line.attack): line for line in sheet.lines}
    return replace(grid, rows=[_row(row, grid, sheet, lines) for row in grid.rows])


def _row(
    row: tuple[GridCell, ...], grid: Grid, sheet: Sheet, lines: Mapping[tuple[str, str], ResultsLine]
) -> tuple[GridCell, ...]:
    names = {title: cell.text for title, cell in zip(grid.header[: grid.names], row, strict=False)}
    line = lines.get((names.get("Defense", ""), names["Attack"])) if "Attack" in names else None
    if line is None:
        return row
    return tuple(
        cell if place < grid.names else _cell(cell, grid.header[place], names, sheet, line)
        for place, cell in enumerate(row)
    )


def _cell(
    cell: GridCell, heading: str, names: Mapping[str, str], sheet: Sheet, line: ResultsLine
) -> GridCell:
    metric = _metric(heading, names, sheet)
    if metric is None or cell.text in _NOTHING_BEHIND:
        return cell
    chosen = {"model": sheet.model, "defense": line.defense, "attack": line.attack}
    if metric == BENIGN_UTILITY:
        chosen["attack"] = NO_ATTACK
    if metric == TARGETED_ASR and any(digit in cell.text for digit in "123456789"):
        chosen["outcome"] = "attack_succeeded"
    if metric == "":
        del chosen["attack"]  # a line's errors are those of its benign cases, too
        chosen["outcome"] = "error"
    for suite in (names.get("Suite"), heading):
        if suite in sheet.suites:
            chosen["suite"] = suite
    return cell._replace(link=f"#{urlencode(chosen, errors='replace')}")


def _metric(heading: str, names: Mapping[str, str], sheet: Sheet) -> str | None:
    """The metric that a number is of; None where no cases of the list are behind it."""
    by_title = {title: metric for metric, title in sheet.titles.items() if metric in _LINKED} | _COUNTS
    return by_title.get(names.get("Metric", heading))
