"""A report as Markdown or LaTeX: the same two tables per model, the same footnotes."""

from __future__ import annotations

from collections.abc import Callable

from agentsys.analysis.case_row import NO_ATTACK
from agentsys.analysis.escaping import latex_cell, markdown_cell
from agentsys.analysis.metrics import BENIGN_UTILITY, METRICS, OVERALL, POOLED, TARGETED_ASR, Cell
from agentsys.analysis.numbers_as_text import interval_text, value_text
from agentsys.analysis.report import Report
from agentsys.analysis.sheet import METRIC_TITLES, Line, Sheet, sheets

Grid = list[list[str]]
"""Rows of cells, header first; names in it are escaped already."""


def as_markdown(found: Report) -> str:
    """GitHub-flavoured Markdown; ends in a newline."""
    parts: list[str] = []
    for sheet in sheets(found.rows):
        parts += [
            f"### {markdown_cell(sheet.title)}",
            _markdown_table(_overall(sheet, found, markdown_cell), names=2),
            _markdown_table(_by_suite(sheet, markdown_cell), names=3),
        ]
    parts.append("\n".join(f"- {markdown_cell(note)}" for note in found.notes))
    return "\n\n".join(parts) + "\n"


def as_latex(found: Report) -> str:
    """LaTeX tables for the package booktabs; ends in a newline."""
    parts = [r"% Needs \usepackage{booktabs}."]
    notes = " ".join(latex_cell(note) for note in found.notes)
    for sheet in sheets(found.rows):
        title = latex_cell(sheet.title)
        parts += [
            _latex_table(_overall(sheet, found, latex_cell), f"{title}, overall, in percent. {notes}", 2),
            _latex_table(_by_suite(sheet, latex_cell), f"{title}, by suite, in percent.", 3),
        ]
    return "\n\n".join(parts) + "\n"


def _overall(sheet: Sheet, found: Report, escape: Callable[[str], str]) -> Grid:
    header = ["Defense", "Attack", *(METRIC_TITLES[metric] for metric in METRICS)]
    grid = [[*header, "Benign cases", "Attacked cases", "Errors", "Payload never seen"]]
    for line in sheet.lines:
        counts = [line.numbers.get((metric, OVERALL)) for metric in (BENIGN_UTILITY, TARGETED_ASR)]
        cell = Cell(sheet.benchmark, sheet.version, sheet.model, line.defense, line.attack)
        grid.append(
            [
                *_names(line, escape),
                *(_number(line, metric) for metric in METRICS),
                *(str(count.n) if count else "0" for count in counts),
                str(sum(count.errors for count in counts if count)),
                f"{found.unexposed[cell]:.1f}" if cell in found.unexposed else "",
            ]
        )
    return grid


def _by_suite(sheet: Sheet, escape: Callable[[str], str]) -> Grid:
    suites = [*sheet.suites, POOLED]
    grid = [["Defense", "Attack", "Metric", *(escape(suite) for suite in suites)]]
    for line in sheet.lines:
        for metric in METRICS:
            if (metric, OVERALL) in line.numbers:
                values = [value_text(line.numbers.get((metric, suite))) for suite in suites]
                grid.append([*_names(line, escape), METRIC_TITLES[metric], *values])
    return grid


def _names(line: Line, escape: Callable[[str], str]) -> list[str]:
    return [escape(line.defense), "" if line.attack == NO_ATTACK else escape(line.attack)]


def _number(line: Line, metric: str) -> str:
    number = line.numbers.get((metric, OVERALL))
    interval = interval_text(number)
    return f"{value_text(number)} ({interval})" if interval else value_text(number)


def _markdown_table(grid: Grid, names: int) -> str:
    rule = ["---"] * names + ["---:"] * (len(grid[0]) - names)
    return "\n".join(f"| {' | '.join(row)} |" for row in [grid[0], rule, *grid[1:]])


def _latex_table(grid: Grid, caption: str, names: int) -> str:
    rows = [" & ".join(row) + r" \\" for row in grid]
    columns = "l" * names + "r" * (len(grid[0]) - names)
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{caption}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )
