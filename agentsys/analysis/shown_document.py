"""`as_shown`: a document under the names that the user gave defenses and models for showing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from agentsys.analysis.tables.document import Document, Grid
from agentsys.analysis.tables.output import Output
from agentsys.records.names_file import DisplayNames

_WORDS = {"none", "simulated"}
"""Names that are words as well: in sentences they are names where they stand as one, as in `against none`,
`none's` and `none / direct`."""


def as_shown(output: Output, shown: DisplayNames) -> Output:
    """Put a result's tables under the names shown; its records, for other programs, keep the stored ones."""
    names = {name: shown.defense_name(name) for name in shown.defenses}
    names |= {name: shown.model_name(name) for name in shown.models}
    if not names:
        return output
    screen = None if output.screen is None else _document(output.screen, names)
    return replace(output, document=_document(output.document, names), screen=screen)


def _document(document: Document, names: Mapping[str, str]) -> Document:
    name, sentence = _replacer(names), _replacer(names, in_sentences=True)
    return replace(
        document,
        sections=[
            (name(heading), [_grid(grid, name) for grid in grids]) for heading, grids in document.sections
        ],
        notes=[sentence(note) for note in document.notes],
        title=name(document.title),
        quotable=[sentence(line) for line in document.quotable],
    )


def _grid(grid: Grid, name: Callable[[str], str]) -> Grid:
    """Rename in the columns of names, and in headings: a column may be a defense's."""
    rows = [
        (
            *(cell._replace(text=name(cell.text), detail=name(cell.detail)) for cell in row[: grid.names]),
            *row[grid.names :],
        )
        for row in grid.rows
    ]
    return replace(
        grid,
        caption=name(grid.caption),
        header=tuple(map(name, grid.header)),
        rows=rows,
    )


def _replacer(names: Mapping[str, str], *, in_sentences: bool = False) -> Callable[[str], str]:
    """Replace whole names: `agentsys` in `agentsys, camel`, not in `agentsys_flat` or a path."""
    listed = sorted(names, key=len, reverse=True)
    parts = [_AS_NAME.format(name) if in_sentences and name in _WORDS else re.escape(name) for name in listed]
    pattern = re.compile(rf"(?<![\w+./-])(?!simulated\))(?:{'|'.join(parts)})(?![\w+/=-]|\.\w)")
    return lambda text: pattern.sub(lambda found: names[found[0]], text)


_AS_NAME = r"(?:(?<=against ){0}|{0}(?= / |'s))"
