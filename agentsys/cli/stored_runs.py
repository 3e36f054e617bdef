"""Shared by the commands that measure stored runs: options, reading, metrics of the user's own."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.own_metric import Metric, checked_metric
from agentsys.analysis.metrics.rates import METRICS
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.cli.terminal import one_line
from agentsys.errors import ConfigError, unknown_name
from agentsys.ledger import spent
from agentsys.named_module import import_from, made_of
from agentsys.records.names_file import Names
from agentsys.records.reading import Reading, read_cases
from agentsys.records.reading_notes import settled_lines, skipped_lines
from agentsys.records.short_names import with_short_names
from agentsys.records.unfinished import unfinished_lines

ErrorsOption = Annotated[
    ErrorRule,
    typer.Option(help="Errored cases: report = left out and counted; agentdojo = failed and attacked."),
]
"""The option of every command that counts outcomes; `ErrorRule.REPORT` as its default."""

NamesOption = Annotated[
    Path | None,
    typer.Option(
        "--names",
        metavar="FILE",
        help="YAML: whose runs other people's folders are, and what tables and figures call things.",
    ),
]
"""The option of every command that reads folders; a command's parameter has None as its default."""


FoldersArgument = Annotated[
    list[Path] | None,
    typer.Argument(metavar="DIR...", help="Folders of runs, ours or published ones.", show_default=False),
]
"""The folders of `table` and `figure`, beside `RunsOption`; None as its default. See `given`."""

RunsOption = Annotated[
    list[Path] | None,
    typer.Option("--runs", metavar="DIR", help="The same, as scripts of earlier versions have it."),
]
"""None as its default."""

MetricOption = Annotated[
    list[str] | None,
    typer.Option("--metric", help="A metric of your own beside the others; may be repeated."),
]
"""The option of commands that show every metric; None as its default."""


def read_stored(folders: Iterable[Path], names: Path | None = None, *, whole_names: bool = False) -> Reading:
    """The cases under some folders.

    On standard error: a line for each file that could not be used, and what folders' names decided.

    Args:
        folders: Or single files.
        names: What the user says of other people's folders.
        whole_names: Whether what is read is for other programs; tables have long names cut.

    Raises:
        ConfigError: If a folder does not exist, none holds a case, or a file of names is not one.
    """
    reading = read_cases(folders, Names(names))
    for line in (*skipped_lines(reading.skipped), *settled_lines(reading.settled)):
        print(one_line(line), file=sys.stderr)
    return reading if whole_names else replace(reading, cases=with_short_names(reading.cases))


def given(folders: list[Path] | None, runs: list[Path] | None, command: str) -> list[Path]:
    """The folders of a command that takes them in two ways.

    Raises:
        ConfigError: If there are none.
    """
    found = [*(runs or []), *(folders or [])]
    if not found:
        raise ConfigError(f"Missing argument 'DIR...'. See agentsys {command} --help.")
    return found


def say_unfinished(reading: Reading) -> None:
    """Tell on standard error which planned cases have no record, beside what has no room for notes."""
    for line in unfinished_lines(reading.unfinished):
        print(one_line(line), file=sys.stderr)


def next_line(folders: Iterable[Path], *, full: bool = False) -> str:
    """What to type next, after some results of these folders; `full`: all of them was shown."""
    names = " ".join(shlex.quote(str(folder)) for folder in folders)
    return f"Next: agentsys report {names}{'' if full else ' (results DIR --full: all notes)'}"


def paid_lines(folders: Iterable[Path]) -> list[str]:
    """What the ledgers of these folders come to; nothing where there are none (simulated runs)."""
    return [line] if (line := spent(folders).line) else []


def own_metrics(
    names: Sequence[str] | None, config_dirs: Sequence[Path] | None, plugin_paths: Sequence[Path] | None
) -> tuple[Metric, ...]:
    """Make the metrics that were asked for by their configs' names; standard ones' are passed over.

    Raises:
        ConfigError: If there is no such config, or what it describes is no metric.
    """
    import_from(plugin_paths or ())
    if not names and not config_dirs:
        return ()
    from agentsys.catalog import known, node  # here, because it brings YAML along, and few ask for a metric

    made: list[Metric] = []
    listed = known("metric", config_dirs or ())
    for name in dict.fromkeys(name for name in names or () if name not in METRICS):
        if name not in listed:
            raise ConfigError(unknown_name("metric", name, [*listed, *METRICS]))
        config = node("metric", name, config_dirs or ())
        taken = {*METRICS, *(one.name for one in made)}
        made.append(checked_metric(made_of("metric", config), name, taken))
    return tuple(made)
