"""`agentsys fetch`: data that is not ours to ship, from its public source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from agentsys.cli.cli_output import print_line
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError, require_known_name

_DATA_SETS = ("agentdojo-runs", "agentdyn", "asb", "drift-runs")


def fetch_command(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"What to get: {', '.join(_DATA_SETS)}.")],
    pipeline: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE]", help="Of published runs: whose."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(help="The folder. Default: one in agentsys/ of the user's data folder.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Another address: of the archive (.tar.gz); of asb, of the folder with its files."),
    ] = None,
) -> None:
    """Download public data at a pinned state and check its SHA-256. What differs is not kept."""
    require_known_name("data set", what, _DATA_SETS)
    if pipeline is not None and not what.endswith("-runs"):
        raise ConfigError(
            f"fetch {what} takes no PIPELINE; published runs do: fetch agentdojo-runs {pipeline}."
        )
    benchmark = _BENCHMARKS.get(what)
    if benchmark is None:
        _fetch_runs(what, pipeline, to, source)
    else:
        benchmark(to, source)


def _fetch_asb(to: Path | None, source: str | None) -> None:
    from agentsys.benchmarks.asb.asb_data import URL, find_asb_folder
    from agentsys.benchmarks.fetch_data import fetch_asb

    done = fetch_asb(to or find_asb_folder(), source or URL)
    said = f"{done.files} files, checksums as expected" if done.fresh else "there already, as expected"
    option = "fetched" if to is None else str(to)
    print_line(escape_to_line(f"{done.folder}: {said}. Use them with benchmark=asb benchmark.data={option}"))


def _fetch_agentdyn(to: Path | None, source: str | None) -> None:
    from agentsys.benchmarks.fetch_data import fetch_agentdyn

    done = fetch_agentdyn(to, source)
    said = f"{done.files} files" if done.fresh else "there already"
    option = "" if to is None else f" benchmark.source={to}"
    print_line(
        escape_to_line(f"{done.folder}: {said}, checksum as expected. Use it with benchmark=agentdyn{option}")
    )


_BENCHMARKS: Mapping[str, Callable[[Path | None, str | None], None]] = {
    "agentdyn": _fetch_agentdyn,
    "asb": _fetch_asb,
}
"""What is data of a benchmark -> how it is fetched."""


def _fetch_runs(what: str, pipeline: str | None, to: Path | None, source: str | None) -> None:
    from agentsys.benchmarks.fetch_data import fetch_runs

    done, known = fetch_runs(what, pipeline, to, source)
    said = f"{done.files} files" if done.fresh else "there already"
    checked = (
        "checksum as expected"
        if known
        else "no checksum of these is known, so nothing says they are unchanged"
    )
    print_line(escape_to_line(f"{done.folder}: {said}, {checked}."))
    print_line(escape_to_line(f"Next: agentsys results {done.folder}"))
