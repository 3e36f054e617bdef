"""`Output`: a result, ready to be written in every form, for people and for other programs."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import orjson

from agentsys.analysis.metrics.own_metric import PERCENT
from agentsys.analysis.tables.table_document import (
    Document,
    Grid,
    escape_for_csv,
    escape_for_latex,
    escape_for_markdown,
    make_plain,
)
from agentsys.base.json_values import map_texts

if TYPE_CHECKING:
    from jinja2 import Environment

FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, where no terminal sets the width."""


class OutputFormat(StrEnum):
    """The forms in which a result is written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    LATEX = "latex"
    HTML = "html"
    CSV = "csv"
    JSON = "json"

    @property
    def for_programs(self) -> bool:
        """True if it holds one record per number with whole names, and has no room for notes."""
        return self in (OutputFormat.CSV, OutputFormat.JSON)


@dataclass(frozen=True)
class LongForm:
    """The long form of a result: one record per number."""

    columns: Mapping[str, str]
    """Name of a column -> what it holds, in order: `str`, `int`, `float` or `bool`."""
    rows: Sequence[Mapping[str, Any]]
    """Each with the columns as keys; None where there is nothing, nan where a number is undefined."""


@dataclass(frozen=True)
class Output:
    """A result, ready to be written in any form."""

    name: str
    """Title of an HTML page of it, e.g. `agentsys results`."""
    document: Document
    records: LongForm
    data: Any = None
    """What JSON holds where that is more than a list of the records: values that JSON knows, names as they
    were found."""


def make_long_form(kind: type, rows: Iterable[Any]) -> LongForm:
    """Make the long form of rows; the fields of their class are the columns.

    A `Percent` becomes a fraction, and its column is called `FIELD_fraction`. A number whose unit stands in another
    field (`Annotated[float, FIELD_OF_THE_UNIT]`) keeps its column; where that unit is percent, the number becomes a
    fraction, and so does the unit.

    Args:
        kind: The class of the rows: a dataclass or a NamedTuple.
        rows: The rows.
    """
    columns: dict[str, str] = {}
    fields: list[tuple[str, str, str]] = []
    """Column, field, and the field of its unit, `percent` or nothing."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        optional = type(None) in get_args(hint)
        one = next(part for part in get_args(hint) if part is not type(None)) if optional else hint
        unit = getattr(one, "__metadata__", ("",))[0]
        column = f"{name.removesuffix('_value')}_fraction" if unit == PERCENT else name
        columns[column] = str(getattr(one, "__origin__", one).__name__)
        fields.append((column, name, unit))
    units = {unit for _, _, unit in fields}

    def convert_value_of(row: Any, name: str, unit: str) -> Any:
        found = getattr(row, name)
        if name in units:
            return "fraction" if found == PERCENT else found
        in_percent = found is not None and unit and PERCENT in (unit, getattr(row, unit, ""))
        return round(found / 100, 11) if in_percent else found

    return LongForm(columns, [{column: convert_value_of(row, *of) for column, *of in fields} for row in rows])


def make_grid_records(document: Document) -> LongForm:
    """Make the long form of a result that has none: a record per number of a grid."""
    rows = []
    for heading, grids in document.sections:
        for grid in grids:
            names = min(grid.names, len(grid.header) - 1)
            for row in grid.rows:
                name = " / ".join(cell.in_one for cell in row[:names])
                for column, cell in zip(grid.header[names:], row[names:], strict=True):
                    rows.append((heading, grid.caption, name, column, cell.in_one))
    columns = ("section", "table", "row", "column", "value")
    return LongForm(dict.fromkeys(columns, "str"), [dict(zip(columns, row, strict=True)) for row in rows])


def render_output(output: Output, form: OutputFormat) -> bytes:
    """Write a result in one of the forms.

    Returns:
        The content of a file, in UTF-8.
    """
    if form is OutputFormat.TABLE:
        from agentsys.analysis.tables.write_terminal import write_terminal_text  # alone it needs rich

        return write_terminal_text(output.document, FILE_WIDTH).encode()
    if form is OutputFormat.CSV:
        return write_csv_text(output.records).encode()
    if form is OutputFormat.JSON:
        return write_json_text(output.records.rows if output.data is None else output.data).encode()
    if form is OutputFormat.HTML:
        return render_html_document(output.document, output.name).encode()
    write = write_markdown_document if form is OutputFormat.MARKDOWN else write_latex_document
    return write(output.document).encode()


# pandas' own writers are not used: they write an undefined number and a missing one alike, and importing
# pandas takes as long as all of `agentsys results`.


def write_csv_text(records: LongForm) -> str:
    """One header line, then one line per record; what is undefined or missing is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records.columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _write_csv_value(value) for name, value in row.items()} for row in records.rows)
    return text.getvalue()


def _write_csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return escape_for_csv(value)
    return "" if isinstance(value, float) and math.isnan(value) else value


def write_json_text(value: Any) -> str:
    """Indented JSON without characters that steer a terminal; what is undefined or missing is `null`."""
    # Values alone: keys are ours.
    plain = map_texts(value, make_plain)
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def write_markdown_document(document: Document) -> str:
    """Headings, tables, a list of notes, commands as a code block; ends in a newline."""
    parts = [f"# {escape_for_markdown(document.title)}"] if document.title else []
    if document.quotable:
        parts.append("\n>\n".join(f"> {escape_for_markdown(sentence)}" for sentence in document.quotable))
    for heading, grids in document.sections:
        parts += [f"### {escape_for_markdown(heading)}", *(_write_markdown_table(grid) for grid in grids)]
    if document.notes:
        parts.append("\n".join(f"- {escape_for_markdown(note)}" for note in document.notes))
    if document.commands:
        # A fence ends at a line of backticks alone, and `make_plain` leaves no second line in a command.
        parts.append("\n".join(["```sh", *(make_plain(command) for command in document.commands), "```"]))
    return "\n\n".join(parts) + "\n"


def _write_markdown_table(grid: Grid) -> str:
    rule = ["---"] * grid.names + ["---:"] * (len(grid.header) - grid.names)
    header = [escape_for_markdown(name) for name in grid.header]
    rows = [[escape_for_markdown(cell.in_one) for cell in row] for row in grid.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def write_latex_document(document: Document) -> str:
    """One float per grid, the notes under the first one of a section, commands as comments."""
    parts = [r"% Needs \usepackage{booktabs}, and \usepackage{graphicx} for tables wider than the text."]
    if document.title:
        parts.append(rf"\paragraph{{{escape_for_latex(document.title)}}}")
    if document.quotable:
        sentences = [rf"\item {escape_for_latex(sentence)}" for sentence in document.quotable]
        parts.append("\n".join([r"\begin{itemize}", *sentences, r"\end{itemize}"]))
    for heading, grids in document.sections:
        for place, grid in enumerate(grids):
            caption = f"{escape_for_latex(heading)}, {escape_for_latex(grid.caption)}."
            parts.append("\n".join(_write_latex_table(grid, caption, () if place else document.notes)))
    if document.commands:
        parts.append("\n".join(f"% {make_plain(command)}" for command in document.commands))
    return "\n\n".join(parts) + "\n"


_FITS = 9
"""Columns that fit the width of a page."""


def _write_latex_table(grid: Grid, caption: str, notes: Sequence[str]) -> Iterator[str]:
    is_wide = len(grid.header) > _FITS
    yield from (r"\begin{table}", r"\centering", rf"\caption{{{caption}}}")
    if is_wide:
        yield r"\resizebox{\textwidth}{!}{%"
    columns = "l" * grid.names + "r" * (len(grid.header) - grid.names)
    yield from (rf"\begin{{tabular}}{{{columns}}}", r"\toprule")
    yield " & ".join(map(escape_for_latex, grid.header)) + r" \\"
    yield r"\midrule"
    for index, row in enumerate(grid.rows):
        if index in grid.breaks and index:
            yield r"\midrule"
        yield " & ".join(escape_for_latex(cell.in_one) for cell in row) + r" \\"
    yield from (r"\bottomrule", r"\end{tabular}" + "}" * is_wide)
    if notes:
        yield r"\begin{minipage}{\textwidth}\smallskip\footnotesize"
        yield from (f"{escape_for_latex(note)}\\par" for note in notes)
        yield r"\end{minipage}"
    yield r"\end{table}"


def load_templates(*folders: Path) -> Environment:
    """Load templates of HTML from some folders and our own.

    Whatever text they put down is made plain and escaped there; what is `Markup` (as of the filter `e`) is
    put down as it is.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    return Environment(
        loader=FileSystemLoader([*folders, Path(__file__).with_name("templates")]),
        autoescape=True,
        finalize=lambda value: (
            make_plain(value) if type(value) is not Markup and isinstance(value, str) else value
        ),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        lstrip_blocks=True,
    )


def render_html_document(document: Document, title: str) -> str:
    """A whole page without scripts or external resources; ends in a newline."""
    return load_templates().get_template("document.html").render(document=document, title=title)


def render_html_fragment(document: Document) -> str:
    """Headings, tables, notes and commands, to be put into a page; ends in a newline."""
    return load_templates().get_template("fragment.html").render(document=document)
