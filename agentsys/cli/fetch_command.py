"""`agentsys fetch`: data that is not ours to ship, from its public source."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from agentsys.cli.cli_output import print_line
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError, unknown_name
from agentsys.extensions import explain_absent_guests, load_extensions

_RUNS = ("agentdojo-runs", "drift-runs")


def _find_benchmarks_data() -> dict[str, str]:
    """Data set -> the function that downloads it (see `Extension.fetch`)."""
    guests = {name: function for guest in load_extensions() for name, function in guest.fetch.items()}
    return {**guests, "asb": "agentsys.benchmarks.fetch_data:fetch_asb"}


def _list_data_sets() -> list[str]:
    return sorted([*_RUNS, *_find_benchmarks_data()])


def fetch_command(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help=f"What to get: {', '.join(_list_data_sets())}.")
    ],
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
    if what not in (known := _list_data_sets()):
        raise ConfigError(unknown_name("data set", what, known) + explain_absent_guests())
    if pipeline is not None and what not in _RUNS:
        raise ConfigError(
            f"fetch {what} takes no PIPELINE; published runs do: fetch agentdojo-runs {pipeline}."
        )
    if what in _RUNS:
        _fetch_runs(what, pipeline, to, source)
    else:
        _fetch_for_benchmark(what, to, source)


def _fetch_for_benchmark(what: str, to: Path | None, source: str | None) -> None:
    module, _, function = _find_benchmarks_data()[what].partition(":")
    done, setting = getattr(import_module(module), function)(to, source)
    said = f"{done.files} files, checksum as expected" if done.fresh else "there already, as expected"
    print_line(escape_to_line(f"{done.folder}: {said}. Use it with {setting}"))


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
