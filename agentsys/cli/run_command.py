"""`agentsys run`: plan, run what is missing, print the table."""

from __future__ import annotations

import io
import logging
import os
import sys
import time
import warnings
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agentsys.base.grouping import format_count
from agentsys.base.ledger import sum_ledgers
from agentsys.cli import complete_overrides
from agentsys.cli.cli_output import PluginPathOption, find_table_width, print_to_console, write_next_step
from agentsys.cli.terminal import escape_controls, raise_on_stop_signals
from agentsys.errors import ConfigError
from agentsys.extensions import OUR_PACKAGES

if TYPE_CHECKING:
    from rich.console import Console

    from agentsys.runs.run_session import Session
    from agentsys.runs.run_totals import RunOutcome


_DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and an estimate; run nothing.")
]

_YesOption = Annotated[
    bool, typer.Option("--yes", help="Start also where the estimate is above budget.ask_above_usd.")
]
_QuietOption = Annotated[
    bool, typer.Option("-q", "--quiet", help="No plan and no progress: results and last lines alone.")
]
_VerboseOption = Annotated[bool, typer.Option("-v", "--verbose", help="A line for every case that ends.")]
_LogLevelOption = Annotated[
    Literal["debug", "info", "warning", "error"],
    typer.Option("--log-level", help="What our own modules log on standard error."),
]


def run_cases_command(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Hydra overrides, e.g. model=simulated defense=none,agentsys limit_per_suite=10 experiment=NAME",
            autocompletion=complete_overrides,
        ),
    ] = None,
    config_dir: Annotated[
        list[Path] | None,
        typer.Option("--config-dir", help="Your own config folder (defense/, attack/, model/, ...)."),
    ] = None,
    plugin_path: PluginPathOption = None,
    dry_run: _DryRunOption = False,
    again: Annotated[
        bool,
        typer.Option("--again", help="Run finished cases anew as well; their old records are kept aside."),
    ] = False,
    skip_unavailable: Annotated[
        bool,
        typer.Option("--skip-unavailable", help="Leave out cells that cannot run here, and run the others."),
    ] = False,
    yes: _YesOption = False,
    quiet: _QuietOption = False,
    verbose: _VerboseOption = False,
    log_level: _LogLevelOption = "warning",
) -> None:
    """Run every case that is not finished yet, then print the table.

    Comma lists sweep (defense=none,agentsys); experiment=NAME loads a preset.
    The same command again resumes: only what is missing, or ended in an error, is run.
    """
    console, chatter = _make_consoles(quiet, verbose, log_level)
    with chatter.status("Loading the benchmark ..."):
        from agentsys.runs.run_session import prepare_session

        session = prepare_session(
            overrides or [],
            config_dirs=config_dir or [],
            plugin_paths=plugin_path or [],
            rehearsal=dry_run,
            again=again,
            skip_unavailable=skip_unavailable,
        )
    _print_plan(session, chatter)
    if dry_run:
        from agentsys.cli.dry_run import show_estimate

        show_estimate(session, config_dir or [], console)
        return
    # A run that is finished, or simulated throughout, does without estimates.
    if not yes and any(not card.simulated for cell in session.cells for card in cell.stack.cards):
        from agentsys.cli.dry_run import refuse_if_expensive

        refuse_if_expensive(session, config_dir or [], chatter)
    with chatter.status("Asking each model one question ..."):
        session = session.preflight(skip_unavailable=skip_unavailable)
    _run_and_print(session, console, chatter, verbose=verbose)


def _run_and_print(session: Session, console: Console, chatter: Console, *, verbose: bool) -> None:
    """Run the cases with a display, then print the table and the last lines."""
    for warning in session.preflight_warnings:
        print_to_console(chatter, warning)
    if session.unavailable_cells:
        from agentsys.cli.dry_run import print_causes

        print_causes(session.unavailable_cells, "Left out", chatter)
    started = time.monotonic()
    outcome = _run_with_progress(session, chatter, verbose=verbose)
    spent = ""
    if outcome.finished or outcome.elsewhere or session.plan.finished or session.plan.failed_before:
        spent = _print_results(session, console, time.monotonic() - started)
    try:
        _print_conclusion(session, outcome, console)
    finally:
        # The same last lines in a terminal and in a log, however the run ended.
        if spent:
            before = f"; {session.plan.finished} of them finished before" if session.plan.finished else ""
            print_to_console(console, f"{spent}{before}")
            print_to_console(console, write_next_step([session.store.root]))


def _make_consoles(quiet: bool, verbose: bool, log_level: str) -> tuple[Console, Console]:
    """Where results go, and where plan and progress go; what our modules log is set as well."""
    if quiet and verbose:
        raise ConfigError("-q and -v contradict each other: leave one out.")
    from rich.console import Console

    # AgentDojo warns of empty answers; the records hold them, and a rehearsal's are nobody's.
    warnings.filterwarnings("ignore", message="Model output was None")
    for package in OUR_PACKAGES:
        logging.getLogger(package).setLevel(log_level.upper())
    # This very stream, also while standard output is redirected.
    console = Console(file=sys.stdout, width=find_table_width())
    return console, Console(file=sys.stdout, width=find_table_width(), quiet=quiet)


def _print_plan(session: Session, console: Console) -> None:
    """Print how many cases there are, and what is odd about them."""
    plan = session.plan
    again = f", {plan.failed_before} of them after an error" if plan.failed_before else ""
    print_to_console(
        console,
        f"{format_count(len(plan.jobs), 'case')} in {format_count(len(session.settings), 'cell')}; "
        f"{plan.finished} finished before, "
        f"{len(plan.open_jobs)} to run{again}. Records: {session.store.root}",
    )
    if plan.replaced:
        aside = session.store.own / "aside"
        print_to_console(
            console,
            f"{plan.replaced} of them have a record: it is kept in {aside} and counts in"
            " no table. Should this run stop, go on without --again.",
        )
    from agentsys.models.pricing import describe_last_days

    configs = (config for one in session.settings for config in (one.model, *one.others.values()))
    models = describe_last_days(configs, date.today())
    for line in (*models, *(left_out.summary_line for left_out in plan.skipped)):
        print_to_console(console, line)
    if plan.open_jobs.searched:
        from agentsys.runs.search_plan import describe_searches

        print_to_console(console, describe_searches(plan.open_jobs.searched, session.store))
    for key in plan.corrupt[:5]:
        print_to_console(
            console,
            f"{session.store.root / key} does not parse: it is run again, the old file kept as .corrupt",
        )


def _run_with_progress(session: Session, console: Console, *, verbose: bool) -> RunOutcome:
    """Run the cases under the display that fits the terminal; a second Ctrl-C ends the process."""
    from agentsys.cli.run_progress import LiveProgress, PlainProgress, RunningTotals, VerboseProgress
    from agentsys.records.case_reader import WORTH_AN_INDEX

    if len(session.plan.jobs) < WORTH_AN_INDEX:  # A larger folder's table is made from the index.
        session.store.rows = {}
    totals = RunningTotals.of_jobs(session.plan.open_jobs)
    meter = None if session.usage_log is None else session.usage_log.meter
    show = VerboseProgress if verbose else LiveProgress if console.is_terminal else PlainProgress
    try:
        # Some of AgentDojo's checkers print; the records hold it.
        with (
            raise_on_stop_signals(),
            show(totals, console, meter) as progress,
            redirect_stdout(io.StringIO()),
        ):
            return session.execute(progress)
    except KeyboardInterrupt:
        print_to_console(
            console, f"Stopped. Finished and on disk: {format_count(totals.done, 'case')}. {_RESUME_HINT}"
        )
        # Cases under way sit in threads that wait for a model; nothing of theirs is half written.
        os._exit(130)


_RESUME_HINT = "To go on, run the same command again: only what is missing is run."
_REPLAY_HINT = (
    "To use such texts again without an attacker, give the file to the same attack, in both kinds of quotes: "
    """'attack.artefact="FILE"'"""
)


def _print_results(session: Session, console: Console, seconds: float) -> str:
    """Show what the run's folders hold; what that took is handed back, to be said last."""
    from agentsys.analysis.tables.result_frame import ResultFrame
    from agentsys.analysis.tables.results_screen import make_results_screen, write_spent_line
    from agentsys.analysis.tables.write_terminal import arrange_for_terminal
    from agentsys.records.case_reader import WORTH_AN_INDEX, read_cases
    from agentsys.records.case_row import shorten_names
    from agentsys.records.stored_plan import find_unfinished

    folders = [folder for folder in session.folders if folder.exists()]
    if not folders:
        return ""
    many = len(session.plan.jobs) >= WORTH_AN_INDEX  # then the plan was looked up in the log folder's index
    # Pipelines that were not begun have no folder, and are missing all the same.
    if many:
        read = read_cases([session.store.root], only=session.folders, looked=session.plan.index_table)
    else:
        held = session.store.rows
        read = replace(read_cases(folders, held=held), unfinished=find_unfinished(session.folders))
    reading = replace(read, cases=shorten_names(read.cases))
    screen = make_results_screen(ResultFrame(reading, brief=True), console.width)
    console.print(arrange_for_terminal(screen), crop=False)
    return write_spent_line(reading.cases, seconds)


def _print_conclusion(session: Session, outcome: RunOutcome, console: Console) -> None:
    """Print how the run ended, and exit with a status other than 0 if it did not end well."""
    for text in outcome.tracebacks:
        print_to_console(
            console, f"Code broke; its cases are errors, and each record keeps this:\n{escape_controls(text)}"
        )
    for cell in outcome.ended_cells:
        left = format_count(cell.left, "case")
        print_to_console(console, f"Given up: {' / '.join(cell.labels)}, {left} not started: {cell.why}")
    if paid := sum_ledgers([session.store.root]).summary_line:
        print_to_console(console, paid)
    if outcome.summary:
        print_to_console(console, outcome.summary)
    if outcome.no_text:
        print_to_console(
            console,
            f"Without a text: {format_count(outcome.no_text, 'case')}, for the attacker gave none to try "
            "(attacker_refused, attacker_unreadable); in no rate. Take another one: attack.attacker=NAME",
        )
    if outcome.errors > outcome.no_text:
        failed = outcome.errors - outcome.no_text
        print_to_console(
            console, f"Ended in an error and in no rate: {format_count(failed, 'case')}. {_RESUME_HINT}"
        )
    if outcome.fatal is not None:
        print_to_console(console, f"Stopped early: {outcome.fatal} {_RESUME_HINT}")
        raise typer.Exit(1)
    if outcome.interrupted:
        done = format_count(outcome.finished, "case")
        print_to_console(console, f"Interrupted: {done} finished in this run, and on disk. {_RESUME_HINT}")
        raise typer.Exit(128 + outcome.signal)
    if outcome.elsewhere:
        print_to_console(
            console,
            f"Run by other processes meanwhile: {format_count(outcome.elsewhere, 'case')} of this plan.",
        )
    if outcome.budget is not None:
        print_to_console(console, f"Ended by its budget: {outcome.budget} {_RESUME_HINT}")
        return
    if artefacts := session.artefacts:
        for path in artefacts:
            print_to_console(console, f"Searched texts: {path}")
        print_to_console(console, _REPLAY_HINT)
    if outcome.finished and outcome.errors == outcome.finished and not session.plan.finished:
        from agentsys.runs.run_totals import describe_likely_cause

        print_to_console(console, f"Nothing completed: {describe_likely_cause(outcome.troubles)}")
        raise typer.Exit(1)
    if outcome.ended_cells:
        raise typer.Exit(1)
