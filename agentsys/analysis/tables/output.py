"""`OutputFormat` and `Output`: every result in every form, for people and for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never, get_args, get_type_hints

import orjson

from agentsys.analysis.tables.document import Document, Grid, GridCell
from agentsys.analysis.tables.escaping import csv_cell, plain
from agentsys.analysis.tables.write_html import html_document
from agentsys.analysis.tables.write_text import latex_document, markdown_document
from agentsys.errors import find_missing_packages, not_installed_error

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
    PARQUET = "parquet"

    @property
    def for_programs(self) -> bool:
        """Whether it holds one record per number with whole names, and has no room for notes."""
        return self in (OutputFormat.CSV, OutputFormat.JSON, OutputFormat.PARQUET)


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
    screen: Document | None = None
    """What a terminal shows in place of the document: the most important of it; None: all of it."""


def records_of(kind: type, rows: Iterable[Any]) -> LongForm:
    """The long form of rows of a dataclass or a NamedTuple, whose fields are the columns."""
    columns = {name: _held(hint) for name, hint in get_type_hints(kind).items()}
    return LongForm(columns, [{name: getattr(row, name) for name in columns} for row in rows])


def _held(hint: Any) -> str:
    """Name the kind of a column's values: of `float | None`, floats."""
    (held,) = (kind for kind in get_args(hint) or (hint,) if kind is not type(None))
    return str(held.__name__)


def grid_records(document: Document) -> LongForm:
    """The long form of a result that has none of its own: one record per number, or last name, of a grid."""
    rows = [
        {"section": heading, "table": grid.caption, "row": name, "column": column, "value": cell.in_one}
        for heading, grids in document.sections
        for grid in grids
        for name, column, cell in _cells(grid)
    ]
    return LongForm(dict.fromkeys(("section", "table", "row", "column", "value"), "str"), rows)


def _cells(grid: Grid) -> Iterator[tuple[str, str, GridCell]]:
    names = min(grid.names, len(grid.header) - 1)
    for row in grid.rows:
        name = " / ".join(cell.in_one for cell in row[:names])
        yield from (
            (name, column, cell) for column, cell in zip(grid.header[names:], row[names:], strict=True)
        )


def written(output: Output, form: OutputFormat, width: int = FILE_WIDTH) -> bytes:
    """Write a result in one of the forms.

    Returns:
        The content of a file; UTF-8 unless it is Parquet.
    """
    match form:
        case OutputFormat.TABLE:
            from agentsys.analysis.tables.write_terminal import terminal_text  # alone it needs rich

            return terminal_text(output.screen or output.document, width).encode()
        case OutputFormat.MARKDOWN:
            return markdown_document(output.document).encode()
        case OutputFormat.LATEX:
            return latex_document(output.document).encode()
        case OutputFormat.HTML:
            return html_document(output.document, output.name).encode()
        case OutputFormat.CSV:
            return csv_text(output.records).encode()
        case OutputFormat.JSON:
            return json_text(output.records.rows if output.data is None else output.data).encode()
        case OutputFormat.PARQUET:
            return _parquet(output.records)
        case _:
            assert_never(form)


def csv_text(records: LongForm) -> str:
    """One header line, then one line per record; what is undefined is `nan`, what is missing is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records.columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows(_with_texts(row, csv_cell) for row in records.rows)
    return text.getvalue()


def json_text(value: Any) -> str:
    """Indented JSON without characters that steer a terminal; what is undefined or missing is `null`."""
    return orjson.dumps(_plain(value), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _with_texts(row: Mapping[str, Any], safe: Callable[[str], str]) -> dict[str, Any]:
    return {name: safe(value) if isinstance(value, str) else value for name, value in row.items()}


def _plain(value: Any) -> Any:
    """The same value with every text in it made plain; keys are ours."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _parquet(records: LongForm) -> bytes:
    """Written with `pyarrow`; names are stored as they are, missing values as null."""
    if lacking := find_missing_packages(["pyarrow"]):
        raise not_installed_error("--format parquet", lacking, "parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"int": pa.int64(), "str": pa.string(), "float": pa.float64(), "bool": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in records.columns.items()])
    rows = [_with_texts(row, _storable) for row in records.rows]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return file.getvalue()


def _storable(text: str) -> str:
    """Parquet holds UTF-8: a lone surrogate, which JSON may hold, becomes `?`."""
    return text.encode("utf-8", "replace").decode()
