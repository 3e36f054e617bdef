"""`agentsys rescore`: recorded runs, executed again and scored under any version; no model is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentsys.amounts import format_count
from agentsys.analysis.tables.output import OutputFormat
from agentsys.cli.output import FormatOption, write_output
from agentsys.cli.stored_runs import NamesOption
from agentsys.cli.terminal import escape_to_line
from agentsys.records.names_file import RunNames
from agentsys.records.reading_notes import describe_resolution


def rescore_command(
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
    checkout: Annotated[
        str, typer.Option(metavar="DIR", help="AgentDyn's checkout, for records of its suites.")
    ] = "fetched",
    processes: Annotated[
        int, typer.Option(min=1, help="Processes that share the records; the result is the same.")
    ] = 1,
    form: FormatOption = OutputFormat.TABLE,
    names: NamesOption = None,
) -> None:
    """Execute recorded tool calls again, score them officially and fixed, and show every flip's reason."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys.audit.rescoring.rescore import rescore_records as rescored
    from agentsys.audit.rescoring.rescoring_export import build_rescoring_output
    from agentsys.audit.rescoring.write_rescored import write_rescored

    chosen = [name.strip() for name in (fixes or "").split(",") if name.strip()]
    found = rescored(runs, version, chosen, RunNames(names), checkout, processes)
    for line in describe_resolution(found.notes):
        print(escape_to_line(line), file=sys.stderr)
    write_output(build_rescoring_output(found), form)
    if out is not None:
        written = format_count(write_rescored(found.cases, out), "record")
        print(f"Wrote {written} to {escape_to_line(str(out))}", file=sys.stderr)
