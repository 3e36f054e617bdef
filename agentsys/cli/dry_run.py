"""Cost of a plan: what `agentsys run --dry-run` shows, and the question before a dear run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from agentsys.analysis.tables.table_document import Grid, make_cells
from agentsys.analysis.tables.write_terminal import GridTables
from agentsys.base.config_catalog import load_config
from agentsys.base.grouping import format_count
from agentsys.cli.cli_output import print_to_console
from agentsys.errors import ConfigError
from agentsys.models.build_model import ModelCard, parse_card
from agentsys.runs.cell import CellLabels
from agentsys.runs.preflight import BlockedCell, group_by_cause
from agentsys.runs.preview import CostEstimate, can_cost_more, estimate_costs, rehearse_jobs
from agentsys.runs.run_session import Session

_ESTIMATE_NOTE = (
    "Estimated from sample cases of each cell played by the simulated model; "
    "a real model talks more: expect up to twice that. Searches are counted as if none succeeded."
)


def show_estimate(session: Session, config_dirs: Sequence[Path], console: Console) -> None:
    """Print what each cell of a rehearsal will cost, and what cannot run here."""
    jobs = session.plan.open_jobs
    with console.status("Estimating tokens on the simulated model ..."):
        estimates = estimate_costs(jobs, _load_role_cards(session, config_dirs))
    needs = {block.first.labels: block.cell.lacks[0].needs for block in jobs.blocks if block.cell.lacks}
    counts = jobs.count_by_labels()
    rows = [
        make_cells(*key, str(count), *_write_estimate_columns(estimates[key], needs.get(key)))
        for key, count in counts.items()
    ]
    header = ("model", "defense", "attack", "cases", "tokens (estimated)", "cost (estimated)")
    console.print(GridTables(Grid("the plan", header, rows, names=3)), crop=False)
    print_to_console(console, _write_total_line(sum(counts.values()), estimates))
    print_causes(session.unavailable_cells, "Cannot run here", console)
    if session.unavailable_cells:
        print_to_console(console, "So the run will be refused; --skip-unavailable runs what can run.")


def print_causes(obstacles: Sequence[BlockedCell], intro: str, console: Console) -> None:
    """Print what stands in the way of cells, each cause once."""
    for names, why in group_by_cause(obstacles):
        print_to_console(console, f"{intro}: {names}. {why}")


def refuse_if_expensive(session: Session, config_dirs: Sequence[Path], console: Console) -> None:
    """Stop before a plan that is estimated to cost more than `budget.ask_above_usd`.

    Raises:
        ConfigError: If it does, and the run has no budget of its own.
    """
    budget = session.settings[0].budget
    if budget.usd is not None or not can_cost_more(session.plan.open_jobs, budget.ask_above_usd):
        return
    with console.status("Estimating the cost on the simulated model ..."):
        jobs = rehearse_jobs(session.plan.open_jobs, session.store, config_dirs)
        found = estimate_costs(jobs, _load_role_cards(session, config_dirs)).values()
    usd = sum(guess.cost_usd or 0.0 for guess in found)
    if usd > budget.ask_above_usd:
        raise ConfigError(
            f"This plan is estimated at ${usd:,.2f}, above budget.ask_above_usd={budget.ask_above_usd:g}. "
            "Give it a budget (budget.usd=SUM), or start it with --yes; --dry-run shows the estimate."
        )


def _load_role_cards(session: Session, config_dirs: Sequence[Path]) -> dict[str, ModelCard]:
    roles = {name for cell in session.cells for name in cell.card.roles.values()}
    return {name: parse_card(load_config("model", name, config_dirs)) for name in roles}


def _write_estimate_columns(guess: CostEstimate, needs: str | None) -> tuple[str, str]:
    if guess.fails is not None:
        return f"needs {needs}" if needs else "cannot run here", "n/a"
    return f"{guess.tokens:,}", "unknown" if guess.cost_usd is None else f"${guess.cost_usd:,.2f}"


def _write_total_line(cases: int, estimates: Mapping[CellLabels, CostEstimate]) -> str:
    able = [guess for guess in estimates.values() if guess.fails is None]
    costs = [guess.cost_usd for guess in able]
    cost = f"${sum(cost for cost in costs if cost is not None):,.2f}"
    if None in costs:
        unpriced = dict.fromkeys(key.model for key, guess in estimates.items() if guess.cost_usd is None)
        cost = f"cost unknown (no price: {', '.join(unpriced)})"
    without = "" if len(able) == len(estimates) else " (without what cannot run here)"
    tokens = sum(guess.tokens for guess in able)
    return f"In all {format_count(cases, 'case')}, {tokens:,} tokens, {cost}{without}. {_ESTIMATE_NOTE}"
