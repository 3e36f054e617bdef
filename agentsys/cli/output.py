"""Writing a result in the format that was asked for: on the screen, to a pipe or to a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentsys.analysis.tables.output import FILE_WIDTH, Output, OutputFormat, written
from agentsys.analysis.tables.write_terminal import needed_width, terminal_document
from agentsys.errors import ConfigError

FormatOption = Annotated[
    OutputFormat,
    typer.Option("--format", help="csv, json and parquet give one record per number, with whole names."),
]
"""The option of every command that shows numbers; a command's parameter has `TABLE` as its default."""

OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="File to write instead of the screen.")
]
"""The option of every command whose result may go to a file; None as its default."""


def put(output: Output, form: OutputFormat, out: Path | None = None) -> None:
    """Write a result.

    Args:
        output: What to write.
        form: How to write it.
        out: File to write to, in a folder that is made if it is not there; None for standard output.

    Raises:
        ConfigError: If bytes would go to a terminal.
    """
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(written(output, form))
    elif form is OutputFormat.TABLE:
        # Never cut: a terminal that is narrower than a table wraps its lines.
        console = Console(width=max(shown_width(), needed_width(output.document)))
        console.print(terminal_document(output.document), crop=False)
    elif form is OutputFormat.PARQUET:
        _put_bytes(written(output, form))
    else:
        sys.stdout.write(written(output, form).decode())


def shown_width() -> int:
    """Columns of standard output."""
    return Console().width if sys.stdout.isatty() else FILE_WIDTH


def _put_bytes(data: bytes) -> None:
    if sys.stdout.isatty():
        raise ConfigError("Parquet is no text: say where to write it, --out FILE.parquet or > FILE.parquet.")
    sys.stdout.buffer.write(data)
