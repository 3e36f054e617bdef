"""`agentsys fetch`: data that is not ours to ship, from its public source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsys.cli.terminal import one_line
from agentsys.errors import ConfigError, unknown_name

_KNOWN = ("asb",)


def fetch(
    what: Annotated[str, typer.Argument(help="What to get: asb (Agent Security Bench's data files).")],
    to: Annotated[
        Path | None, typer.Option(help="The folder. Default: agentsys/asb in the user's data folder.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Address of another copy of the folder that holds the files.")
    ] = None,
) -> None:
    """Download data at a pinned commit and check its SHA-256. What differs is not kept."""
    from agentsys.benchmarks.asb.fetch import fetch as download
    from agentsys.benchmarks.asb.source import URL, fetched_folder

    if what not in _KNOWN:
        raise ConfigError(unknown_name("data set", what, _KNOWN))
    done = download(to or fetched_folder(), source or URL)
    said = f"{len(done.files)} files, checksums as expected" if done.files else "there already, as expected"
    option = "fetched" if to is None else str(to)
    print(one_line(f"{done.folder}: {said}. Use them with benchmark=asb benchmark.data={option}"))
