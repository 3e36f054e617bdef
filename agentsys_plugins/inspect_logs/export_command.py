"""`agentsys export`: stored runs for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsys.base.grouping import format_count
from agentsys.cli.cli_output import print_line
from agentsys.cli.stored_runs import NamesOption, print_unfinished, read_stored_runs
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError, find_missing_packages, make_not_installed_error, require_known_name

_KNOWN_FORMS = ("inspect", "parquet")


def export(
    form: Annotated[
        str,
        typer.Argument(
            metavar="inspect|parquet",
            help="inspect: logs of Inspect (.eval). parquet: a row a case and a row a call.",
        ),
    ],
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Log, pipeline or suite folders.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the files; default: results/FORMAT."),
    ] = None,
    names: NamesOption = None,
) -> None:
    """Write runs as logs that `inspect view` shows, or as tables for DuckDB, Polars and Spark."""
    require_known_name("format", form, _KNOWN_FORMS)
    target = out or Path("results", form)
    if form == "parquet":
        _export_parquet(folders, target, names)
        return
    if find_missing_packages(["inspect_ai"]):
        raise make_not_installed_error("agentsys export inspect", ["inspect_ai"], "inspect")
    reading = read_stored_runs(folders, names, whole_names=True)
    print_unfinished(reading)
    from agentsys_plugins.inspect_logs.inspect_log import export_logs

    done = export_logs(reading.cases, target)
    left = f"; {done.left_out} injection tasks run alone left out" if done.left_out else ""
    written = f"{format_count(done.logs, 'log')}, {format_count(done.cases, 'case')}{left}"
    print_line(escape_to_line(f"{done.folder}: {written}."))
    look = f"inspect view --log-dir {done.folder} --host 127.0.0.1 --port 7580"
    print_line(escape_to_line(f"Look at them: {look}"))


def _export_parquet(folders: list[Path], target: Path, names: Path | None) -> None:
    from agentsys import load_runs
    from agentsys.records.parquet_files import CALLS_FILE, CASES_FILE, check_pyarrow, write_parquet

    check_pyarrow("agentsys export parquet")
    frame = load_runs(folders, names)
    try:
        calls = write_parquet(frame, target)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written ({error.strerror}); try another --out.") from None
    print_line(escape_to_line(f"{target / CASES_FILE}: {format_count(len(frame), 'case')}."))
    print_line(escape_to_line(f"{target / CALLS_FILE}: {format_count(calls, 'tool call')}."))
