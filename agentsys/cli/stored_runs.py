"""Reading stored runs for a command."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.cli.terminal import one_line
from agentsys.ledger import spent
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
        "--names", metavar="FILE", help="YAML: model, defense, version of other people's folders, by pattern."
    ),
]
"""The option of every command that reads folders; a command's parameter has None as its default."""


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


def say_unfinished(reading: Reading) -> None:
    """Tell on standard error which planned cases have no record, beside what has no room for notes."""
    for line in unfinished_lines(reading.unfinished):
        print(one_line(line), file=sys.stderr)


def tell_spent(folders: Iterable[Path]) -> None:
    """Print what the ledgers of these folders come to; nothing where there are none (simulated runs)."""
    if line := spent(folders).line:
        print(line)
