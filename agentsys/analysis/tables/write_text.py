"""A document as text to put elsewhere: GitHub-flavoured Markdown, or LaTeX for the package booktabs."""

from __future__ import annotations

from collections.abc import Iterator

from agentsys.analysis.tables.document import Document, Grid
from agentsys.analysis.tables.escaping import latex_cell, markdown_cell, plain


def markdown_document(document: Document) -> str:
    """Headings, tables, a list of notes, commands as a code block; ends in a newline."""
    parts = [f"# {markdown_cell(document.title)}"] if document.title else []
    if document.quotable:
        parts.append("\n>\n".join(f"> {markdown_cell(sentence)}" for sentence in document.quotable))
    for heading, grids in document.sections:
        parts += [f"### {markdown_cell(heading)}", *(_markdown_table(grid) for grid in grids)]
    if document.notes:
        parts.append("\n".join(f"- {markdown_cell(note)}" for note in document.notes))
    if document.commands:
        # A fence ends at a line of backticks alone, and `plain` leaves no second line in a command.
        parts.append("\n".join(["```sh", *(plain(command) for command in document.commands), "```"]))
    return "\n\n".join(parts) + "\n"


def _markdown_table(grid: Grid) -> str:
    rule = ["---"] * grid.names + ["---:"] * (len(grid.header) - grid.names)
    header = [markdown_cell(name) for name in grid.header]
    rows = [[markdown_cell(cell.in_one) for cell in row] for row in grid.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def latex_document(document: Document) -> str:
    """One float per grid, the notes under the first one of a section, commands as comments."""
    notes = "\n".join(f"{latex_cell(note)}\\par" for note in document.notes)
    parts = [r"% Needs \usepackage{booktabs}, and \usepackage{graphicx} for tables wider than the text."]
    if document.title:
        parts.append(rf"\paragraph{{{latex_cell(document.title)}}}")
    if document.quotable:
        sentences = [rf"\item {latex_cell(sentence)}" for sentence in document.quotable]
        parts.append("\n".join([r"\begin{itemize}", *sentences, r"\end{itemize}"]))
    for heading, grids in document.sections:
        for index, grid in enumerate(grids):
            caption = f"{latex_cell(heading)}, {latex_cell(grid.caption)}."
            parts.append(_latex_table(grid, caption, notes if index == 0 else ""))
    if document.commands:
        parts.append("\n".join(f"% {plain(command)}" for command in document.commands))
    return "\n\n".join(parts) + "\n"


_FITS = 9
"""Columns that fit the width of a page."""


def _latex_table(grid: Grid, caption: str, notes: str) -> str:
    columns = "l" * grid.names + "r" * (len(grid.header) - grid.names)
    tabular = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(latex_cell(name) for name in grid.header) + r" \\",
        r"\midrule",
        *_latex_rows(grid),
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


def _latex_rows(grid: Grid) -> Iterator[str]:
    for index, row in enumerate(grid.rows):
        if index in grid.breaks and index:
            yield r"\midrule"
        yield " & ".join(latex_cell(cell.in_one) for cell in row) + r" \\"
