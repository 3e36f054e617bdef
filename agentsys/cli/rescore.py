"""`agentsys rescore`: recorded runs, executed again and scored under any version; no model is asked."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agentsys.analysis.tables.write_terminal import needed_width, terminal_document
from agentsys.analysis.tables.write_text import markdown_document
from agentsys.cli.output import shown_width
from agentsys.cli.stored_runs import NamesOption
from agentsys.cli.terminal import one_line
from agentsys.records.names_file import Names
from agentsys.records.reading_notes import settled_lines

if TYPE_CHECKING:
    from agentsys.rescoring.rescore import Rescoring


class RescoreFormat(StrEnum):
    """How a re-scoring is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"


def rescore(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS...", help="Folders or files of AgentDojo, of DRIFT, or of agentsys."),
    ],
    version: Annotated[
        str | None,
        typer.Option(metavar="V", help="Benchmark version, e.g. v1.2.2; default: what each record names."),
    ] = None,
    fixes: Annotated[
        str | None,
        typer.Option(metavar="F,...", help="Fixes to score under as well (docs/fixes.md); default: all."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the re-scored records here; originals stay.")
    ] = None,
    form: Annotated[
        RescoreFormat, typer.Option("--format", help="csv gives one line per record.")
    ] = RescoreFormat.TABLE,
    names: NamesOption = None,
) -> None:
    """Execute recorded tool calls again, score them officially and fixed, and show every flip's reason."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys.rescoring.rescore import rescore as rescored
    from agentsys.rescoring.write_rescored import write_rescored

    chosen = [name.strip() for name in (fixes or "").split(",") if name.strip()]
    found = rescored(runs, version, chosen, Names(names))
    for line in settled_lines(found.notes):
        print(one_line(line), file=sys.stderr)
    _print(found, form)
    if out is not None:
        written = write_rescored(found.cases, out)
        print(f"Wrote {written} record{'' if written == 1 else 's'} to {one_line(str(out))}", file=sys.stderr)


def _print(found: Rescoring, form: RescoreFormat) -> None:
    from agentsys.rescoring.rescoring_document import rescoring_document
    from agentsys.rescoring.rescoring_export import rescoring_csv, rescoring_json

    if form is RescoreFormat.CSV:
        sys.stdout.write(rescoring_csv(found))
    elif form is RescoreFormat.JSON:
        sys.stdout.write(rescoring_json(found))
    elif form is RescoreFormat.MARKDOWN:
        sys.stdout.write(markdown_document(rescoring_document(found)))
    else:
        document = rescoring_document(found)
        Console(width=max(needed_width(document), shown_width())).print(terminal_document(document))
