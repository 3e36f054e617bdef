"""A report as Markdown, LaTeX or HTML: the same two tables per model, the same footnotes."""

from __future__ import annotations

from agentsys.analysis.metrics.rates import BENIGN_UTILITY, METRICS, TARGETED_ASR, Cell
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.document import Document, Grid, GridCell, cells
from agentsys.analysis.tables.extra_grids import extra_grids
from agentsys.analysis.tables.numbers_as_text import interval_text, value_text
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_layout import METRIC_TITLES, Line, Sheet, sheets
from agentsys.analysis.tables.suite_grid import line_names, suite_grid
from agentsys.analysis.tables.write_html import html_document
from agentsys.analysis.tables.write_latex import latex_document
from agentsys.analysis.tables.write_markdown import markdown_document


def as_markdown(found: Report) -> str:
    """GitHub-flavoured Markdown; ends in a newline."""
    return markdown_document(report_document(found))


def as_latex(found: Report) -> str:
    """LaTeX tables for the package booktabs; ends in a newline."""
    return latex_document(report_document(found))


def as_html(found: Report) -> str:
    """A self-contained page; ends in a newline."""
    return html_document(report_document(found), "agentsys results")


def report_document(found: Report) -> Document:
    """Two grids per sheet (overall, per suite), more where runs hold more, and the footnotes."""
    sections = [
        (sheet.title, (_overall(sheet, found), *extra_grids(found, sheet), suite_grid(sheet)))
        for sheet in sheets(found.rows)
    ]
    return Document(sections, found.notes)


def _overall(sheet: Sheet, found: Report) -> Grid:
    titles = [METRIC_TITLES[metric] for metric in METRICS]
    counts = ["Benign cases", "Attacked cases", "Errors", "Payload never seen"]
    rows = [
        cells(*line_names(line), *(_number(line, metric) for metric in METRICS), *_counts(line, sheet, found))
        for line in sheet.lines
    ]
    return Grid("overall, in percent", ("Defense", "Attack", *titles, *counts), rows, names=2)


def _counts(line: Line, sheet: Sheet, found: Report) -> list[str]:
    kinds = [line.numbers.get((metric, OVERALL)) for metric in (BENIGN_UTILITY, TARGETED_ASR)]
    cell = Cell(sheet.benchmark, sheet.version, sheet.model, line.defense, line.attack)
    return [
        *(str(kind.n) if kind else "0" for kind in kinds),
        str(sum(kind.errors for kind in kinds if kind)),
        f"{found.unexposed[cell]:.1f}" if cell in found.unexposed else "",
    ]


def _number(line: Line, metric: str) -> GridCell:
    number = line.numbers.get((metric, OVERALL))
    return GridCell(value_text(number), interval_text(number))
