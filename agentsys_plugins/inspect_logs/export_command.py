"""`agentsys export`: stored runs for other programs' viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsys.base.grouping import format_count
from agentsys.cli.cli_output import print_line
from agentsys.cli.stored_runs import NamesOption, print_unfinished, read_stored_runs
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import find_missing_packages, make_not_installed_error, require_known_name

_KNOWN_FORMS = ("inspect",)


def export(
    form: Annotated[
        str, typer.Argument(metavar="inspect", help="Which program: inspect (Inspect's .eval logs).")
    ],
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Log, pipeline or suite folders.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the logs, one for each cell.")] = Path(
        "results/inspect"
    ),
    names: NamesOption = None,
) -> None:
    """Write runs as logs that `inspect view` shows, with a lane for each agent."""
    require_known_name("format", form, _KNOWN_FORMS)
    if find_missing_packages(["inspect_ai"]):
        raise make_not_installed_error("agentsys export inspect", ["inspect_ai"], "inspect")
    reading = read_stored_runs(folders, names, whole_names=True)
    print_unfinished(reading)
    from agentsys_plugins.inspect_logs.inspect_log import export_logs

    done = export_logs(reading.cases, out)
    left = f"; {done.left_out} injection tasks run alone left out" if done.left_out else ""
    written = f"{format_count(done.logs, 'log')}, {format_count(done.cases, 'case')}{left}"
    print_line(escape_to_line(f"{done.folder}: {written}."))
    look = f"inspect view --log-dir {done.folder} --host 127.0.0.1 --port 7580"
    print_line(escape_to_line(f"Look at them: {look}"))
