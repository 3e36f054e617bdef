"""A document as GitHub-flavoured Markdown."""

from __future__ import annotations

from agentsys.analysis.tables.document import Document, Grid
from agentsys.analysis.tables.escaping import markdown_cell, plain


def markdown_document(document: Document) -> str:
    """Headings, tables, a list of notes, commands as a code block; ends in a newline."""
    parts: list[str] = []
    for heading, grids in document.sections:
        parts += [f"### {markdown_cell(heading)}", *(_table(grid) for grid in grids)]
    if document.notes:
        parts.append("\n".join(f"- {markdown_cell(note)}" for note in document.notes))
    if document.commands:
        # A fence ends at a line of backticks alone, and `plain` leaves no second line in a command.
        parts.append("\n".join(["```sh", *(plain(command) for command in document.commands), "```"]))
    return "\n\n".join(parts) + "\n"


def _table(grid: Grid) -> str:
    rule = ["---"] * grid.names + ["---:"] * (len(grid.header) - grid.names)
    header = [markdown_cell(name) for name in grid.header]
    rows = [[markdown_cell(cell.in_one) for cell in row] for row in grid.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])
