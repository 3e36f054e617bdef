"""`agentsys export`: stored runs for other programs' viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsys.amounts import counted
from agentsys.cli.output import say
from agentsys.cli.stored_runs import NamesOption, read_stored, say_unfinished
from agentsys.cli.terminal import one_line
from agentsys.errors import ConfigError, unknown_name
from agentsys.extras import missing, not_installed

_KNOWN = ("inspect",)


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
    if form not in _KNOWN:
        raise ConfigError(unknown_name("format", form, _KNOWN))
    if missing(["inspect_ai"]):
        raise not_installed("agentsys export inspect", ["inspect_ai"], "inspect")
    reading = read_stored(folders, names, whole_names=True)
    say_unfinished(reading)
    from agentsys.inspect_logs.export import export as written

    done = written(reading.cases, out)
    left = f"; {done.left_out} injection tasks run alone left out" if done.left_out else ""
    say(one_line(f"{done.folder}: {counted(done.logs, 'log')}, {counted(done.cases, 'case')}{left}."))
    say(one_line(f"Look at them: inspect view --log-dir {done.folder} --host 127.0.0.1 --port 7580"))
