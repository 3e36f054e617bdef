"""`agentsys view`: the report's page of runs that may still be going on, on loopback."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from agentsys.cli.output import say
from agentsys.cli.stored_runs import NamesOption
from agentsys.cli.terminal import one_line
from agentsys.errors import ConfigError
from agentsys.records.names_file import Names
from agentsys.view.server import ViewServer

DEFAULT_FOLDER = Path("results/runs")


def view(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR]...", help=f"Folders of runs, also of one that goes on: {DEFAULT_FOLDER}."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="A loopback address.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8322,
    names: NamesOption = None,
) -> None:
    """Show runs in the browser, live: tables, every case, two defenses side by side; till Ctrl-C."""
    followed = folders or [DEFAULT_FOLDER]
    for folder in followed:
        if not folder.exists():
            raise ConfigError(f"No folder '{folder}'. Give the log folder of a run, e.g. results/runs.")
    with ViewServer(followed, Names(names), host=host, port=port) as server:
        listed = ", ".join(str(folder) for folder in followed)
        say(one_line(f"{listed}: open {server.address} (only from this machine); Ctrl-C stops."))
        sys.stdout.flush()
        wait_for_interrupt()


def wait_for_interrupt() -> None:
    """Return when the user has had enough: Ctrl-C, or `kill`."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()
