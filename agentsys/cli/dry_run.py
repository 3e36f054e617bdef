"""Cost and power of a plan: what `agentsys run --dry-run` shows, and the question before a dear run."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from agentsys.analysis.statistics.planning import PlannedSuite, cases_needed, epochs_needed
from agentsys.analysis.tables.document import Grid, cells
from agentsys.analysis.tables.fit import word_lines
from agentsys.analysis.tables.write_terminal import FittedGrid
from agentsys.catalog import node
from agentsys.cli.output import known_width
from agentsys.cli.terminal import printable
from agentsys.errors import ConfigError
from agentsys.models.card import ModelCard, model_card
from agentsys.records.case import Case
from agentsys.runs.cell import model_node
from agentsys.runs.estimate import CellKey, CostEstimate, can_exceed, estimate, rehearsed
from agentsys.runs.plan import Job
from agentsys.runs.preflight import by_cause
from agentsys.runs.session import Session

_HOW_ESTIMATED = (
    "Estimated from sample cases of each cell played by the simulated model; "
    "a real model talks more: expect up to twice that. Searches are counted as if none succeeded."
)


def show_estimate(session: Session, config_dirs: Sequence[Path], console: Console) -> None:
    """Print what each cell of a rehearsal will cost, and what cannot run here."""
    counts = Counter(_key(job) for job in session.plan.todo)
    with console.status("Estimating tokens on the simulated model ..."):
        estimates = estimate(session.plan.todo, _cards(session, config_dirs))
    needs = {_key(job): job.cell.lacks[0].needs for job in session.plan.todo if job.cell.lacks}
    rows = [cells(*key, str(count), *_told(estimates[key], needs.get(key))) for key, count in counts.items()]
    header = ("model", "defense", "attack", "cases", "tokens (estimated)", "cost (estimated)")
    console.print(FittedGrid(Grid("the plan", header, rows, names=3)), crop=False)
    _print(console, _in_all(sum(counts.values()), estimates))
    for names, why in by_cause(session.obstacles):
        _print(console, f"Cannot run here: {names}. {why}")
    if session.obstacles:
        _print(console, "So the run will be refused; --skip-unavailable runs what can run.")


_RATES = (5.0, 10.0, 30.0, 50.0)
"""Percent: rates from which a difference is planned for."""


def show_power(session: Session, points: float, console: Console) -> None:
    """Print how many cases a true difference needs to be found with 80% power."""
    for line in power_lines((job.case for job in session.plan.jobs), points):
        _print(console, line)


def power_lines(cases: Iterable[Case], points: float) -> Iterator[str]:
    """How many cases a true difference needs, and whether repeating the planned ones is enough.

    Args:
        cases: The plan's, of all its cells; the largest cell counts, attacked ones before benign ones.
        points: The difference, in percentage points.
    """
    suites = planned_suites(cases)
    rates = [rate for rate in _RATES if rate >= points] or [max(50.0, points)]
    if not suites or (len(suites) == 1 and suites[0].users * suites[0].injections == 1):
        return  # a single pair of tasks tells nothing of others
    needed = {rate: cases_needed(suites, rate / 100, (rate - points) / 100) for rate in rates}
    epochs = {rate: epochs_needed(suites, rate / 100, (rate - points) / 100) for rate in rates}
    yield (
        f"A true difference of {points:g} points is found with 80% power by about "
        f"{_listed(needed, 'cases')}. This plan has {sum(suite.cases for suite in suites):,.0f} per model, "
        "defense and attack; more cases mean more tasks, of both kinds where there are two."
    )
    enough = {rate: count for rate, count in epochs.items() if not math.isnan(count)}
    again = f"Its own tasks, run again, are enough: {_listed(enough, 'epochs')}. " if enough else ""
    others = ", ".join(f"{rate:g}%" for rate in rates if rate not in enough)
    never = f"From {others} its own tasks are too few, however often they are run. " if others else ""
    yield (
        f"{again}{never}Assumed: tasks differ as in published runs; where all tasks agree, fewer cases "
        "will do (docs/statistics.md)."
    )


def planned_suites(cases: Iterable[Case]) -> list[PlannedSuite]:
    """Size of the largest cell of a plan, suite by suite; of attacked cases, if there are any."""
    cells: defaultdict[tuple[str, ...], list[Case]] = defaultdict(list)
    for case in cases:
        cells[case.benchmark, case.version, case.model, case.defense, case.attack].append(case)
    if not cells:
        return []
    largest = max(cells.values(), key=lambda found: (found[0].injection_task_id is not None, len(found)))
    by_suite: defaultdict[str, list[Case]] = defaultdict(list)
    for case in largest:
        by_suite[case.suite].append(case)
    return [_planned(found) for found in by_suite.values()]


def _planned(cases: Sequence[Case]) -> PlannedSuite:
    users = len({case.user_task_id for case in cases})
    injections = len({case.injection_task_id for case in cases})
    return PlannedSuite(users, injections, len(cases) / (users * injections))


def _listed(numbers: Mapping[float, float], what: str) -> str:
    """E.g. `454 cases from a rate of 10%, 591 from 30%`."""
    told = {
        rate: "no number of" if math.isnan(number) else f"{number:,.0f}" for rate, number in numbers.items()
    }
    first, *rest = told
    return ", ".join(
        (f"{told[first]} {what} from a rate of {first:g}%", *(f"{told[r]} from {r:g}%" for r in rest))
    )


def refuse_if_dear(session: Session, config_dirs: Sequence[Path], console: Console) -> None:
    """Stop before a plan that is estimated to cost more than `budget.ask_above_usd`.

    Raises:
        ConfigError: If it does, and the run has no budget of its own.
    """
    budget = session.settings[0].budget
    if budget.usd is not None or not can_exceed(session.plan.todo, budget.ask_above_usd):
        return
    with console.status("Estimating the cost on the simulated model ..."):
        jobs = rehearsed(session.plan.todo, session.store, config_dirs)
        found = estimate(jobs, _cards(session, config_dirs)).values()
    usd = sum(guess.cost_usd or 0.0 for guess in found)
    if usd > budget.ask_above_usd:
        raise ConfigError(
            f"This plan is estimated at ${usd:,.2f}, above budget.ask_above_usd={budget.ask_above_usd:g}. "
            "Give it a budget (budget.usd=SUM), or start it with --yes; --dry-run shows the estimate."
        )


def _key(job: Job) -> CellKey:
    return job.case.model, job.case.defense, job.case.attack


def _cards(session: Session, config_dirs: Sequence[Path]) -> dict[str, ModelCard]:
    roles = {name for one in session.settings for name in model_card(model_node(one)).roles.values()}
    return {name: model_card(node("model", name, config_dirs)) for name in roles}


def _told(guess: CostEstimate, needs: str | None) -> tuple[str, str]:
    """Tokens and cost of a cell, as the table has them."""
    if guess.fails is not None:
        return f"needs {needs}" if needs else "cannot run here", "n/a"
    return f"{guess.tokens:,}", "unknown" if guess.cost_usd is None else f"${guess.cost_usd:,.2f}"


def _in_all(cases: int, estimates: Mapping[CellKey, CostEstimate]) -> str:
    able = [guess for guess in estimates.values() if guess.fails is None]
    costs = [guess.cost_usd for guess in able]
    cost = "unknown" if None in costs else f"${sum(cost for cost in costs if cost is not None):,.2f}"
    without = "" if len(able) == len(estimates) else " (without what cannot run here)"
    tokens = sum(guess.tokens for guess in able)
    return f"In all {cases} cases, {tokens:,} tokens, {cost}{without}. {_HOW_ESTIMATED}"


def _print(console: Console, line: str) -> None:
    text = printable(line)
    for part in word_lines(text, known_width() or len(text)):
        console.print(part, markup=False, highlight=False, soft_wrap=True)
