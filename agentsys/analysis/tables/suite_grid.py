"""Each suite's numbers as a grid: the suites side by side or, where they are many, one below the other."""

from __future__ import annotations

from agentsys.analysis.metrics.rates import METRICS
from agentsys.analysis.statistics.estimate import OVERALL, POOLED
from agentsys.analysis.tables.document import Grid, cells
from agentsys.analysis.tables.numbers_as_text import value_text
from agentsys.analysis.tables.results_layout import METRIC_TITLES, Line, Sheet
from agentsys.records.case_row import NO_ATTACK

MOST_ACROSS = 6
"""Suites that stand side by side; with more, a table is too wide to be read."""


def suite_grid(sheet: Sheet) -> Grid:
    """Every metric of every suite and of all cases pooled, without intervals."""
    return suites_down(sheet) if len(sheet.suites) > MOST_ACROSS else suites_across(sheet)


def suites_across(sheet: Sheet) -> Grid:
    """A column per suite, a row per line and metric."""
    suites = [*sheet.suites, POOLED]
    rows = [
        cells(*line_names(line), METRIC_TITLES[metric], *(_text(line, metric, suite) for suite in suites))
        for line in sheet.lines
        for metric in METRICS
        if (metric, OVERALL) in line.numbers
    ]
    return Grid("by suite, in percent", ("Defense", "Attack", "Metric", *suites), rows, names=3)


def suites_down(sheet: Sheet) -> Grid:
    """A row per line and suite, a column per metric."""
    suites = [*sheet.suites, POOLED]
    rows = [
        cells(*line_names(line), suite, *(_text(line, metric, suite) for metric in METRICS))
        for line in sheet.lines
        for suite in suites
    ]
    header = ("Defense", "Attack", "Suite", *(METRIC_TITLES[metric] for metric in METRICS))
    breaks = frozenset(range(len(suites), len(rows), len(suites)))
    return Grid("by suite, in percent", header, rows, names=3, breaks=breaks)


def line_names(line: Line) -> list[str]:
    """What stands in the columns of defense and attack."""
    return [line.defense, "" if line.attack == NO_ATTACK else line.attack]


def _text(line: Line, metric: str, suite: str) -> str:
    return value_text(line.numbers.get((metric, suite)))
