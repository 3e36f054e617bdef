"""A document as LaTeX: one float per grid, for the package booktabs."""

from __future__ import annotations

from collections.abc import Iterator

from agentsys.analysis.tables.document import Document, Grid
from agentsys.analysis.tables.escaping import latex_cell, plain


def latex_document(document: Document) -> str:
    """Tables, the notes under the first one of a section, commands as comments; ends in a newline."""
    notes = "\n".join(f"{latex_cell(note)}\\par" for note in document.notes)
    parts = [r"% Needs \usepackage{booktabs}, and \usepackage{graphicx} for tables wider than the text."]
    for heading, grids in document.sections:
        for index, grid in enumerate(grids):
            caption = f"{latex_cell(heading)}, {latex_cell(grid.caption)}."
            parts.append(_table(grid, caption, notes if index == 0 else ""))
    if document.commands:
        parts.append("\n".join(f"% {plain(command)}" for command in document.commands))
    return "\n\n".join(parts) + "\n"


def _table(grid: Grid, caption: str, notes: str) -> str:
    columns = "l" * grid.names + "r" * (len(grid.header) - grid.names)
    tabular = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(latex_cell(name) for name in grid.header) + r" \\",
        r"\midrule",
        *_rows(grid),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if len(grid.header) > _FITS:
        tabular = [r"\resizebox{\textwidth}{!}{%", *tabular[:-1], r"\end{tabular}}"]
    below = (
        [r"\begin{minipage}{\textwidth}\smallskip\footnotesize", notes, r"\end{minipage}"] if notes else []
    )
    top = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
    return "\n".join([*top, *tabular, *below, r"\end{table}"])


_FITS = 9
"""Columns that fit the width of a page."""


def _rows(grid: Grid) -> Iterator[str]:
    for index, row in enumerate(grid.rows):
        if index in grid.breaks and index:
            yield r"\midrule"
        yield " & ".join(latex_cell(cell.in_one) for cell in row) + r" \\"
