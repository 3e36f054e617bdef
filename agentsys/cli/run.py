"""`agentsys run`: plan, run what is missing, print the table."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentsys.cli.errors import asked_to_end
from agentsys.cli.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console

    from agentsys.runs.execute import Outcome
    from agentsys.runs.session import Session


def run(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Hydra overrides, e.g. model=simulated defense=none,agentsys limit=10 +experiment=NAME"
        ),
    ] = None,
    config_dir: Annotated[
        list[Path] | None,
        typer.Option("--config-dir", help="Your own config folder (defense/, attack/, model/, ...)."),
    ] = None,
    plugin_path: Annotated[
        list[Path] | None, typer.Option("--plugin-path", help="Folder your own modules are imported from.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and an estimate; run nothing.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option("--again", help="Run finished cases anew as well; their old records are kept aside."),
    ] = False,
) -> None:
    """Run every case that is not finished yet, then print the table.

    Comma lists sweep (defense=none,agentsys); +experiment=NAME loads a preset. Run the same command
    again to resume: only what is missing, or ended in an error, is run.
    """
    from rich.console import Console

    from agentsys.cli.stored_runs import FILE_WIDTH

    # This very stream, also while standard output is redirected; a pipe or a file has no width of its own.
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else FILE_WIDTH)
    with console.status("Loading the benchmark ..."):
        from agentsys.runs.session import prepare

        session = prepare(
            overrides or [],
            config_dirs=config_dir or [],
            plugin_paths=plugin_path or [],
            rehearsal=dry_run,
            again=again,
        )
    _announce(session, console)
    if dry_run:
        _estimate(session, config_dir or [], console)
        return
    outcome = _execute(session, console)
    if outcome.finished or outcome.elsewhere or session.plan.finished or session.plan.failed_before:
        _table(session, console)
    _conclude(session, outcome, console)


def _announce(session: Session, console: Console) -> None:
    plan = session.plan
    again = f", {plan.failed_before} of them after an error" if plan.failed_before else ""
    _say(
        console,
        f"{len(plan.jobs)} cases in {len(session.settings)} cells; {plan.finished} finished before, "
        f"{len(plan.todo)} to run{again}. Records: {session.store.root}",
    )
    if plan.replaced:
        aside = session.store.own / "aside"
        _say(
            console,
            f"{plan.replaced} of them have a record: it is kept in {aside} and counts in"
            " no table. Should this run stop, go on without --again.",
        )
    for left_out in plan.skipped:
        _say(console, left_out.line)
    if session.searches.line:
        _say(console, session.searches.line)
    for key in plan.corrupt[:5]:
        _say(
            console,
            f"{session.store.root / key} does not parse: it is run again, the old file kept as .corrupt",
        )


def _estimate(session: Session, config_dirs: list[Path], console: Console) -> None:
    from rich.table import Table

    from agentsys.catalog import node
    from agentsys.models.card import model_card
    from agentsys.runs.cell import model_node
    from agentsys.runs.estimate import estimate

    counts = Counter((j.case.model, j.case.defense, j.case.attack) for j in session.plan.todo)
    with console.status("Estimating tokens on the simulated model ..."):
        roles = {name for one in session.settings for name in model_card(model_node(one)).roles.values()}
        cards = {name: model_card(node("model", name, config_dirs)) for name in roles}
        estimates = estimate(session.plan.todo, cards)
    table = Table("model", "defense", "attack", "cases", "tokens (estimated)", "cost (estimated)")
    for key, count in counts.items():
        guess = estimates[key]
        cost = "unknown" if guess.cost_usd is None else f"${guess.cost_usd:,.2f}"
        table.add_row(*(_escaped(part) for part in key), str(count), f"{guess.tokens:,}", cost)
    console.print(table)
    total = [guess.cost_usd for guess in estimates.values()]
    cost = "unknown" if None in total else f"${sum(c for c in total if c is not None):,.2f}"
    tokens = sum(guess.tokens for guess in estimates.values())
    _say(console, f"In all {sum(counts.values())} cases, {tokens:,} tokens, {cost}. {_HOW_ESTIMATED}")


_HOW_ESTIMATED = (
    "Estimated from sample cases of each cell played by the simulated model; "
    "a real model talks more: expect up to twice that. Searches are counted as if none succeeded."
)


def _execute(session: Session, console: Console) -> Outcome:
    from agentsys.cli.progress import LiveProgress, PlainProgress
    from agentsys.runs.totals import Totals

    totals = Totals(len(session.plan.todo))
    show = LiveProgress if console.is_terminal else PlainProgress
    try:
        # Some of AgentDojo's checkers print, and it warns of empty answers; the records hold both.
        warnings.filterwarnings("ignore", message="Model output was None")
        with asked_to_end(), show(totals, console) as progress, redirect_stdout(io.StringIO()):
            return session.execute(progress)
    except KeyboardInterrupt:
        _say(console, f"Stopped. {totals.done} cases are on disk. {_RESUME}")
        # Cases under way sit in threads that wait for a model; nothing of theirs is half written.
        os._exit(130)


_RESUME = "To go on, run the same command again: only what is missing is run."


def _table(session: Session, console: Console) -> None:
    from agentsys.analysis.reading import read_cases
    from agentsys.analysis.report import report
    from agentsys.analysis.report_table import report_table
    from agentsys.analysis.unfinished import unfinished_in

    folders = [folder for folder in session.folders if folder.is_dir()]
    if folders:
        # Pipelines that were not begun have no folder, and are missing all the same.
        reading = replace(read_cases(folders), unfinished=unfinished_in(session.folders))
        console.print(report_table(report(reading)), crop=False)


def _conclude(session: Session, outcome: Outcome, console: Console) -> None:
    for text in outcome.tracebacks:
        _say(console, f"Code broke; its cases are errors, and each record keeps this:\n{printable(text)}")
    if outcome.errors:
        _say(console, f"{outcome.errors} cases ended in an error and are in no rate. {_RESUME}")
    if outcome.fatal is not None:
        _say(console, f"Stopped early: {outcome.fatal} {_RESUME}")
        raise typer.Exit(1)
    if outcome.interrupted:
        _say(console, f"Interrupted: {outcome.finished} cases finished in this run are on disk. {_RESUME}")
        raise typer.Exit(128 + outcome.signal)
    if outcome.elsewhere:
        _say(console, f"{outcome.elsewhere} cases of this plan were run by other processes meanwhile.")
    for path in session.artefacts:
        _say(console, f"Searched texts: {path}")
    if session.artefacts:
        _say(console, _HOW_REPLAYED)
    _say(console, f"Show this again with: agentsys results {session.store.root}")


_HOW_REPLAYED = (
    "To use such texts again without an attacker, give the file to the same attack, in both kinds of quotes: "
    """'attack.artefact="FILE"'"""
)


def _say(console: Console, line: str) -> None:
    from agentsys.models.secrets import without_credentials

    console.print(without_credentials(printable(line)), markup=False, highlight=False, soft_wrap=True)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
