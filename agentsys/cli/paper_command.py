"""`agentsys table` and `agentsys figure`: the paper's, with our numbers beside the printed ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.paper.paper_document import make_paper_document, make_paper_output
from agentsys.analysis.paper.paper_tables import TABLES, fill_table
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.tables.table_document import OutputFormat
from agentsys.cli.cli_output import FormatOption, OutOption, explain_unwritable, write_output
from agentsys.cli.stored_runs import ErrorsOption, NamesOption, print_unfinished, read_stored_runs
from agentsys.errors import ConfigError, require_known_name
from agentsys.records.case_reader import LoadedCases

FoldersArgument = Annotated[
    list[Path], typer.Argument(metavar="DIR...", help="Folders of runs, ours or published ones.")
]

_FIGURES_FOLDER = Path("results/figures")
_PICTURES = {".pdf", ".png", ".svg", ".csv", ".jpg", ".eps"}


def table_command(
    number: Annotated[str, typer.Argument(metavar="1|2|3|4|5|6|7", help="The paper's table.")],
    folders: FoldersArgument,
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    errors: ErrorsOption = ErrorRule.REPORT,
    mine: Annotated[
        bool, typer.Option("--mine", help="Only rows that ran, without the paper's others.")
    ] = False,
    names: NamesOption = None,
) -> None:
    """Show a table of the paper: our numbers with 95% intervals beside the printed ones."""
    chosen = TABLES[int(require_known_name("table", number, [str(known) for known in TABLES]))]
    reading = read_stored_runs(folders, names, whole_names=form.for_programs)
    if form.for_programs:
        print_unfinished(reading)
    filled = fill_table(chosen, reading.cases, errors, mine=mine)
    logdir = _suggest_logdir(folders, reading)
    document = make_paper_document(filled, reading, errors, logdir=logdir)
    write_output(make_paper_output(filled, document), form, out)


def _suggest_logdir(folders: Sequence[Path], reading: LoadedCases) -> str:
    """The first folder with runs of ours: a folder of published runs is no place for new ones."""
    ours = [case.source for case in reading.cases if not case.foreign]
    return next(
        (str(f) for f in folders if any(Path(s).is_relative_to(f) for s in ours)), "results/runs/paper"
    )


def figure_command(
    name: Annotated[str, typer.Argument(metavar="2|3|4|table1|tokens", help="Which figure.")],
    folders: FoldersArgument,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the PDF, the PNG and the plotted numbers (CSV).")
    ] = _FIGURES_FOLDER,
    model: Annotated[
        str | None, typer.Option(help="Whose runs to show; by default the paper's model, else the largest.")
    ] = None,
    defense: Annotated[
        str | None,
        typer.Option(help="Defenses to show, separated by commas; by default all of the runs."),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Without title and notes, for a paper; a simulation stays marked.")
    ] = False,
    errors: ErrorsOption = ErrorRule.REPORT,
    names: NamesOption = None,
) -> None:
    """Draw a figure of the paper from stored runs."""
    from agentsys.analysis.figures.drawing import save_figure
    from agentsys.analysis.figures.figure_catalog import FIGURES, make_figure

    if out.suffix in _PICTURES:
        raise ConfigError(f"--out {out}: a figure is three files. Name their folder: --out {out.parent}")
    kind = FIGURES[require_known_name("figure", name, FIGURES)]
    defenses = defense.split(",") if defense else ()
    reading = read_stored_runs(folders, names, whole_names=True)
    print_unfinished(reading)
    drawn = make_figure(kind, reading.cases, errors, model=model, defenses=defenses, bare=plain)
    with explain_unwritable(out, _FIGURES_FOLDER):
        for path in save_figure(drawn, out):
            print(path)
