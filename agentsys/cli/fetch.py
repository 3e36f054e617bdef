"""`agentsys fetch`: data that is not ours to ship, from its public source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from agentsys.cli.output import say
from agentsys.cli.terminal import one_line
from agentsys.errors import ConfigError, unknown_name

_KNOWN = ("agentdojo-runs", "agentdyn", "asb", "drift-runs")


def fetch(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=f"What to get: {', '.join(_KNOWN)}.")],
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
    if what not in _KNOWN:
        raise ConfigError(unknown_name("data set", what, _KNOWN))
    if pipeline is not None and not what.endswith("-runs"):
        raise ConfigError(
            f"fetch {what} takes no PIPELINE; published runs do: fetch agentdojo-runs {pipeline}."
        )
    benchmark = _BENCHMARKS.get(what)
    if benchmark is None:
        _runs(what, pipeline, to, source)
    else:
        benchmark(to, source)


def _asb(to: Path | None, source: str | None) -> None:
    from agentsys.benchmarks.asb.fetch import fetch as download
    from agentsys.benchmarks.asb.source import URL, fetched_folder

    done = download(to or fetched_folder(), source or URL)
    said = f"{len(done.files)} files, checksums as expected" if done.files else "there already, as expected"
    option = "fetched" if to is None else str(to)
    say(one_line(f"{done.folder}: {said}. Use them with benchmark=asb benchmark.data={option}"))


def _agentdyn(to: Path | None, source: str | None) -> None:
    from agentsys.fetched.sources import fetch_agentdyn

    done = fetch_agentdyn(to, source)
    said = f"{done.files} files" if done.fresh else "there already"
    option = "" if to is None else f" benchmark.source={to}"
    say(one_line(f"{done.folder}: {said}, checksum as expected. Use it with benchmark=agentdyn{option}"))


_BENCHMARKS: Mapping[str, Callable[[Path | None, str | None], None]] = {"agentdyn": _agentdyn, "asb": _asb}
"""What is data of a benchmark -> how it is fetched."""


def _runs(what: str, pipeline: str | None, to: Path | None, source: str | None) -> None:
    from agentsys.fetched.sources import fetch_runs

    done, known = fetch_runs(what, pipeline, to, source)
    said = f"{done.files} files" if done.fresh else "there already"
    checked = (
        "checksum as expected"
        if known
        else "no checksum of these is known, so nothing says they are unchanged"
    )
    say(one_line(f"{done.folder}: {said}, {checked}."))
    say(one_line(f"Next: agentsys results {done.folder}"))
