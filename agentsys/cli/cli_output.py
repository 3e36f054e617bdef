"""Writing a result in the format that was asked for: on the screen, to a pipe or to a file."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentsys.analysis.tables.table_document import (
    FILE_WIDTH,
    Output,
    OutputFormat,
    break_between_words,
    render_html_document,
    write_csv_text,
    write_json_text,
    write_latex_document,
    write_markdown_document,
)
from agentsys.cli.terminal import DISK_ERRORS, escape_controls
from agentsys.errors import ConfigError
from agentsys.models.secrets import mask_address_credentials

if TYPE_CHECKING:
    from rich.console import Console

FormatOption = Annotated[
    OutputFormat,
    typer.Option("--format", help="csv and json give one record per number, with whole names."),
]
"""The option of every command that shows numbers; a command's parameter has `TABLE` as its default."""

OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="File to write instead of the screen.")
]
"""The option of every command whose result may go to a file; None as its default."""

ConfigDirOption = Annotated[
    list[Path] | None, typer.Option("--config-dir", help="Your own config folder; may be repeated.")
]
PluginPathOption = Annotated[
    list[Path] | None, typer.Option("--plugin-path", help="Folder your own modules are imported from.")
]


@contextmanager
def explain_unwritable(out: Path, instead: Path) -> Iterator[None]:
    """Say of a path that cannot be written, or whose folder cannot be made, what to type in its place.

    Raises:
        ConfigError: For whatever the system refuses inside the block.
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_ERRORS:
            raise
        raise ConfigError(f"Cannot write {out}: {error.strerror}. Name another: --out {instead}") from None


def write_output(output: Output, form: OutputFormat, out: Path | None = None) -> None:
    """Write a result.

    Raises:
        ConfigError: If the file cannot be written.
    """
    if out is not None:
        with explain_unwritable(out, Path(out.name or "results.txt")):
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_bytes(render_output(output, form))
    elif form is OutputFormat.TABLE:
        from rich.console import Console

        from agentsys.analysis.tables.write_terminal import arrange_for_terminal

        # Not cropped: what cannot be made to fit, a path say, is left to the terminal to break.
        Console(width=find_table_width()).print(arrange_for_terminal(output.document), crop=False)
    else:
        sys.stdout.write(render_output(output, form).decode())


def render_output(output: Output, form: OutputFormat) -> bytes:
    """Write a result in one of the forms, as the content of a file in UTF-8."""
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


def print_line(line: str, hang: str = "") -> None:
    """Print a line for people, broken between words where it is wider than the screen.

    Args:
        line: What to say. Whatever in it we did not write does nothing to a terminal.
        hang: What a line begins with that goes on with the one above.
    """
    print(break_between_words(escape_controls(line), find_terminal_width(), hang))


def print_to_console(console: Console, line: str, hang: str = "") -> None:
    """Print a line on a console, which may be quiet; without user and password of an address in it."""
    text = mask_address_credentials(escape_controls(line))
    console.print(
        break_between_words(text, find_terminal_width(), hang), markup=False, highlight=False, soft_wrap=True
    )


def write_next_step(folders: Iterable[Path], *, full: bool = False) -> str:
    """Suggest the next command after results of these folders; `full`: all of them were shown."""
    names = " ".join(shlex.quote(str(folder)) for folder in folders)
    return f"Next: agentsys report {names}{'' if full else ' (results DIR --full: all notes)'}"


def find_terminal_width() -> int | None:
    """Columns of standard output, as `COLUMNS` or the terminal says; None: a pipe or a file has none."""
    wanted = os.environ.get("COLUMNS", "")
    if wanted.isdigit() and int(wanted):
        return int(wanted)
    if not sys.stdout.isatty():
        return None
    from rich.console import Console

    return Console().width


def find_table_width() -> int:
    """Columns of a table on standard output."""
    return find_terminal_width() or FILE_WIDTH
