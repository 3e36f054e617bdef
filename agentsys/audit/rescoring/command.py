"""`agentsys rescore`: recorded runs, executed again and scored under any version; no model is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agentsys.amounts import counted
from agentsys.analysis.tables.output import OutputFormat
from agentsys.cli.output import FormatOption, put
from agentsys.cli.stored_runs import NamesOption
from agentsys.cli.terminal import one_line
from agentsys.records.names_file import Names
from agentsys.records.reading_notes import settled_lines


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
    from agentsys.audit.rescoring.rescore import rescore as rescored
    from agentsys.audit.rescoring.rescoring_export import rescoring_output
    from agentsys.audit.rescoring.write_rescored import write_rescored

    chosen = [name.strip() for name in (fixes or "").split(",") if name.strip()]
    found = rescored(runs, version, chosen, Names(names), checkout, processes)
    for line in settled_lines(found.notes):
        print(one_line(line), file=sys.stderr)
    put(rescoring_output(found), form)
    if out is not None:
        written = counted(write_rescored(found.cases, out), "record")
        print(f"Wrote {written} to {one_line(str(out))}", file=sys.stderr)
