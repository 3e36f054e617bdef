"""A document as a self-contained HTML page, or as a fragment for another page. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterator

from agentsys.analysis.tables.document import Document, Grid, GridCell
from agentsys.analysis.tables.escaping import html_text

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-style: italic; padding: .3rem 0; }
th, td { padding: .25rem .7rem; text-align: right; vertical-align: top; }
thead th { border-bottom: 2px solid; border-top: 2px solid; }
tbody tr:last-child td { border-bottom: 2px solid; }
tr.break td { border-top: 1px solid; }
th.name, td.name { text-align: left; }
td small { opacity: .75; white-space: nowrap; }
ul { padding-left: 1.2rem; font-size: .9rem; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid; font-size: .85rem; }
@media (prefers-color-scheme: dark) { body { background: #16181d; color: #e6e6e6; } }
"""


def html_document(document: Document, title: str) -> str:
    """A whole page without scripts or external resources; ends in a newline."""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta http-equiv="Content-Security-Policy" '
            "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html_text(title)}</title>",
            f"<style>{_STYLE}</style></head><body>",
            html_fragment(document).rstrip("\n"),
            "</body></html>\n",
        ]
    )


def html_fragment(document: Document) -> str:
    """Headings, tables, notes and commands, to be put into a page; ends in a newline."""
    return "\n".join(_parts(document)) + "\n"


def _parts(document: Document) -> Iterator[str]:
    if document.title:
        yield f"<h1>{html_text(document.title)}</h1>"
    if document.quotable:
        yield "<ul>"
        yield from (f"<li>{html_text(sentence)}</li>" for sentence in document.quotable)
        yield "</ul>"
    for heading, grids in document.sections:
        yield f"<h2>{html_text(heading)}</h2>"
        for grid in grids:
            yield from _table(grid)
    if document.notes:
        yield "<ul>"
        yield from (f"<li>{html_text(note)}</li>" for note in document.notes)
        yield "</ul>"
    if document.commands:
        commands = "\n".join(html_text(command) for command in document.commands)
        yield f"<pre><code>{commands}</code></pre>"


def _table(grid: Grid) -> Iterator[str]:
    yield f"<table><caption>{html_text(grid.caption)}</caption>"
    header = (f"<th{_kind(place, grid)}>{html_text(name)}</th>" for place, name in enumerate(grid.header))
    yield f"<thead><tr>{''.join(header)}</tr></thead><tbody>"
    for index, row in enumerate(grid.rows):
        shown = (f"<td{_kind(place, grid)}>{_cell(cell)}</td>" for place, cell in enumerate(row))
        rule = ' class="break"' if index in grid.breaks and index else ""
        yield f"<tr{rule}>{''.join(shown)}</tr>"
    yield "</tbody></table>"


def _kind(place: int, grid: Grid) -> str:
    return ' class="name"' if place < grid.names else ""


def _cell(cell: GridCell) -> str:
    # The break stands also where a fragment is shown without our style sheet, in a notebook for one.
    detail = f"<br><small>{html_text(cell.detail)}</small>" if cell.detail else ""
    text = html_text(cell.text)
    return (f'<a href="{html_text(cell.link)}">{text}</a>' if cell.link else text) + detail
