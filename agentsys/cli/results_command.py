"""`agentsys results`: what stored runs say, as a table or for other programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agentsys.analysis.metrics.attack_success import pool_attacks
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.tables.result_frame import ResultFrame, make_variants
from agentsys.analysis.tables.results_document import make_results_output
from agentsys.analysis.tables.results_screen import make_results_screen, write_spent_line
from agentsys.analysis.tables.table_document import FILE_WIDTH, LongForm, Output, OutputFormat
from agentsys.cli.cli_output import (
    ConfigDirOption,
    FormatOption,
    OutOption,
    PluginPathOption,
    find_table_width,
    print_line,
    write_next_step,
    write_output,
)
from agentsys.cli.stored_runs import (
    CasesOption,
    ErrorsOption,
    MetricOption,
    NamesOption,
    list_ledger_lines,
    load_own_metrics,
    print_unfinished,
    read_stored_runs,
)
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError
from agentsys.records.case_reader import describe_skipped
from agentsys.records.case_row import CaseRow

ByOption = Annotated[
    str | None,
    typer.Option(
        metavar="cost|budget|TAG",
        help="cost: tokens, money and untrusted text. budget: success by the queries a search may make."
        " Else a tag of the tasks, e.g. action_open.",
    ),
]
_SHOWN_ELSEWHERE = {
    "suite": "every suite has a column with --full",
    **{axis: f"agentsys compare DIR --by {axis}" for axis in ("defense", "model", "attack", "run")},
}
"""What `--by` is asked for -> where it stands."""
TogetherOption = Annotated[
    str | None,
    typer.Option(
        "--together", metavar="PATTERN", help="Attacks of such names, e.g. 'opi_*', as one: their mean."
    ),
]


def results_command(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Log, pipeline or suite folders: ours or AgentDojo's published runs."
        ),
    ],
    form: FormatOption = OutputFormat.TABLE,
    out: OutOption = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Also suites, further tables and all notes; files have them always."),
    ] = False,
    errors: ErrorsOption = ErrorRule.REPORT,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Beside the official scores, those under repaired checks.")
    ] = False,
    by: ByOption = None,
    as_one: TogetherOption = None,
    metric: MetricOption = None,
    config_dir: ConfigDirOption = None,
    plugin_path: PluginPathOption = None,
    names: NamesOption = None,
    of_version: CasesOption = None,
) -> None:
    """Show utility, attack success and defense quality of stored runs, with 95% intervals."""
    if by == "budget":
        _write_budget(folders, form, out)
        return
    if by == "cost":
        _write_costs(folders, names, form, out)
        return
    if by in _SHOWN_ELSEWHERE:
        raise ConfigError(f"--by {by}: {_SHOWN_ELSEWHERE[by]}")
    own = load_own_metrics(metric, config_dir, plugin_path)
    reading = read_stored_runs(folders, names, whole_names=form.for_programs, version=of_version)
    if form.for_programs:
        print_unfinished(reading)
    if as_one is not None:
        reading = replace(reading, cases=pool_attacks(reading.cases, as_one))
    frame = ResultFrame(reading, errors, own=own, brief=form is OutputFormat.TABLE and not full)
    if fixed or by is not None:
        variants = make_variants(reading.cases, fixed=fixed, tag=by)
        frame = ResultFrame(reading, errors, own=own, variants=variants)
        for note in variants.notes if form.for_programs else ():
            print(escape_to_line(note), file=sys.stderr)
    if form is OutputFormat.TABLE and not full:
        screen = make_results_screen(frame, find_table_width() if out is None else FILE_WIDTH)
        output = Output("agentsys results", screen, LongForm({}, []))
    else:
        output = make_results_output(frame, for_programs=form.for_programs)
    write_output(output, form, out)
    if form is OutputFormat.TABLE and out is None:
        _print_below(reading.cases, folders, full=full)


def _print_below(cases: Sequence[CaseRow], folders: Sequence[Path], *, full: bool) -> None:
    for line in (write_spent_line(cases), *list_ledger_lines(folders), write_next_step(folders, full=full)):
        print_line(line)


def _write_costs(folders: list[Path], names: Path | None, form: OutputFormat, out: Path | None) -> None:
    from agentsys.analysis.tables.cost_documents import make_cost_output

    reading = read_stored_runs(folders, names, whole_names=form.for_programs)
    print_unfinished(reading)
    write_output(make_cost_output(reading.cases), form, out)
    if form is OutputFormat.TABLE:
        for line in list_ledger_lines(folders):
            print_line(line)


def _write_budget(folders: list[Path], form: OutputFormat, out: Path | None) -> None:
    from agentsys.analysis.metrics.search_budget import measure_budgets, read_searches
    from agentsys.analysis.tables.cost_documents import make_budget_output

    searches = read_searches(folders)
    for line in describe_skipped(searches.skipped):
        print(escape_to_line(line), file=sys.stderr)
    write_output(make_budget_output(measure_budgets(searches.found), searches), form, out)
