"""`agentsys figure`: a figure of the paper, with our numbers filled and the printed ones hollow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.cli.stored_runs import (
    ErrorsOption,
    FoldersArgument,
    NamesOption,
    RunsOption,
    require_folders,
    read_stored_runs,
    print_unfinished,
)
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.names_file import RunNames


def figure_command(
    name: Annotated[str, typer.Argument(metavar="2|3|4|table1|tokens", help="Which figure.")],
    folders: FoldersArgument = None,
    runs: RunsOption = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the PDF, the PNG and the plotted numbers (CSV).")
    ] = Path("results/figures"),
    model: Annotated[
        str | None, typer.Option(help="Whose runs to show; by default the paper's model, else the largest.")
    ] = None,
    defense: Annotated[
        str | None,
        typer.Option(help="Defenses to show, separated by commas; by default what there is room for."),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without title and notes, for a paper; a simulation stays marked.")
    ] = False,
    errors: ErrorsOption = ErrorRule.REPORT,
    names: NamesOption = None,
) -> None:
    """Draw a figure of the paper from stored runs."""
    from agentsys.analysis.figures.catalog import FIGURES, make_figure
    from agentsys.analysis.figures.drawn import save
    from agentsys.analysis.figures.selection import Wish

    if name not in FIGURES:
        raise ConfigError(unknown_name("figure", name, FIGURES))
    wish = Wish(model, tuple(defense.split(",")) if defense else ())
    reading = read_stored_runs(require_folders(folders, runs, "figure"), names, whole_names=True)
    print_unfinished(reading)
    shown = RunNames(names).display_names
    for path in save(make_figure(FIGURES[name], reading.cases, wish, errors, bare=plain, shown=shown), out):
        print(path)
