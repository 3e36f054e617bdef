"""`agentsys table`: a table of the paper with our numbers beside the printed ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentsys.analysis.paper.filled import FilledTable, fill
from agentsys.analysis.paper.layout import TABLES
from agentsys.analysis.paper.long_form import table_csv, write_parquet
from agentsys.analysis.paper.paper_document import paper_document
from agentsys.analysis.paper.with_variants import with_variants
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.tables.document import Document
from agentsys.analysis.tables.score_variants import variants_of
from agentsys.analysis.tables.write_html import html_document
from agentsys.analysis.tables.write_latex import latex_document
from agentsys.analysis.tables.write_markdown import markdown_document
from agentsys.analysis.tables.write_terminal import needed_width, terminal_document
from agentsys.cli.stored_runs import FILE_WIDTH, NamesOption, read_stored, say_unfinished, shown_width
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.reading import Reading


class TableFormat(StrEnum):
    """How a table is written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    HTML = "html"
    LATEX = "latex"
    CSV = "csv"
    PARQUET = "parquet"


def table(
    number: Annotated[str, typer.Argument(metavar="1|2|3|4|5|6|7", help="The paper's table.")],
    runs: Annotated[
        list[Path],
        typer.Option(
            "--runs", metavar="DIR", help="Folder of runs, ours or published ones; may be given repeatedly."
        ),
    ],
    more_runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[DIR]...", help="Further folders of runs.")
    ] = None,
    form: Annotated[
        TableFormat, typer.Option("--format", help="csv and parquet give one row per number.")
    ] = TableFormat.TABLE,
    out: Annotated[Path | None, typer.Option(help="File to write instead of the screen.")] = None,
    errors: Annotated[
        ErrorRule,
        typer.Option(help="Errored cases: report = left out and counted; agentdojo = failed and attacked."),
    ] = ErrorRule.REPORT,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Below the table, the same one with scores under repaired checks.")
    ] = False,
    by: Annotated[
        str | None, typer.Option(metavar="TAG", help="Below the table, the cases with and without this tag.")
    ] = None,
    names: NamesOption = None,
) -> None:
    """Show a table of the paper: our numbers with 95% intervals beside the printed ones."""
    chosen = TABLES.get(int(number)) if number.isdecimal() else None
    if chosen is None:
        raise ConfigError(unknown_name("table", number, [str(known) for known in TABLES]))
    if form is TableFormat.PARQUET and out is None:
        raise ConfigError("Parquet is no text: say where to write it, --out FILE.parquet.")
    if (fixed or by is not None) and form in (TableFormat.CSV, TableFormat.PARQUET):
        raise ConfigError(
            f"--fixed and --by cannot be written as {form.value} here;"
            " give another --format, or use agentsys results DIR --fixed --format csv."
        )
    folders = [*runs, *(more_runs or [])]
    reading = read_stored(folders, names, whole_names=form in (TableFormat.CSV, TableFormat.PARQUET))
    if form in (TableFormat.CSV, TableFormat.PARQUET):
        say_unfinished(reading)
    filled = fill(chosen, reading.cases, errors)
    document = paper_document(filled, reading, errors, logdir=_logdir(folders, reading))
    if fixed or by is not None:
        variants = variants_of(reading.cases, fixed=fixed, tag=by)
        document = with_variants(document, filled, variants, errors)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    if form is TableFormat.PARQUET and out is not None:
        write_parquet(filled, out)
    elif form is TableFormat.TABLE:
        _print(document, out)
    else:
        _write(_text(filled, document, form), out)


def _logdir(folders: Sequence[Path], reading: Reading) -> str:
    """The first folder with runs of ours: a folder of published runs is no place for new ones."""
    ours = [case.source for case in reading.cases if not case.foreign]
    return next(
        (str(f) for f in folders if any(Path(s).is_relative_to(f) for s in ours)), "results/runs/paper"
    )


def _text(filled: FilledTable, document: Document, form: TableFormat) -> str:
    match form:
        case TableFormat.CSV:
            return table_csv(filled)
        case TableFormat.MARKDOWN:
            return markdown_document(document)
        case TableFormat.HTML:
            return html_document(document, f"Table {filled.table.number}")
        case _:
            return latex_document(document)


def _write(text: str, out: Path | None) -> None:
    if out is None:
        sys.stdout.write(text)
    else:
        out.write_text(text, encoding="utf-8")


def _print(document: Document, out: Path | None) -> None:
    """For reading: never cut, so a terminal that is narrower than the table wraps its lines."""
    needed = needed_width(document)
    if out is not None:
        with out.open("w", encoding="utf-8") as file:
            Console(file=file, width=max(FILE_WIDTH, needed)).print(terminal_document(document), crop=False)
        return
    width = shown_width()
    Console(width=max(width, needed)).print(terminal_document(document), crop=False)
