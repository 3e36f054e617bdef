"""Reading stored runs for a command, and how wide what it prints may be."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from agentsys.analysis.reading import Reading, read_cases, skipped_lines
from agentsys.cli.terminal import one_line

FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, where no terminal sets the width."""


def read_stored(folders: Iterable[Path]) -> Reading:
    """The cases under some folders; a line on standard error for each file that could not be used.

    Raises:
        ConfigError: If a folder does not exist or none holds a case.
    """
    reading = read_cases(folders)
    for line in skipped_lines(reading.skipped):
        print(one_line(line), file=sys.stderr)
    return reading


def shown_width() -> int:
    """Columns of standard output."""
    return Console().width if sys.stdout.isatty() else FILE_WIDTH
