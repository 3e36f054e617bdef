"""Cost and power of a plan: what `agentsys run --dry-run` shows, and the question before a dear run."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from agentsys.analysis.statistics.planning import PlannedSuite, cases_needed, epochs_needed
from agentsys.analysis.tables.document import Grid, cells
from agentsys.analysis.tables.write_terminal import FittedGrid
from agentsys.catalog import node
from agentsys.cli.output import tell
from agentsys.errors import ConfigError
from agentsys.models.card import ModelCard, model_card
from agentsys.records.case import Case
from agentsys.runs.cell import model_node
from agentsys.runs.estimate import CellKey, CostEstimate, can_exceed, estimate, rehearsed
from agentsys.runs.plan import Jobs
from agentsys.runs.preflight import by_cause
from agentsys.runs.session import Session

_HOW_ESTIMATED = (
    "Estimated from sample cases of each cell played by the simulated model; "
    "a real model talks more: expect up to twice that. Searches are counted as if none succeeded."
)


def show_estimate(session: Session, config_dirs: Sequence[Path], console: Console) -> None:
    """Print what each cell of a rehearsal will cost, and what cannot run here."""
    counts = counts_by_cell(session.plan.todo)
    with console.status("Estimating tokens on the simulated model ..."):
        estimates = estimate(session.plan.todo, _cards(session, config_dirs))
    blocks = session.plan.todo.blocks
    needs = {block.labels: block.cell.lacks[0].needs for block in blocks if block.cell.lacks}
    rows = [cells(*key, str(count), *_told(estimates[key], needs.get(key))) for key, count in counts.items()]
    header = ("model", "defense", "attack", "cases", "tokens (estimated)", "cost (estimated)")
    console.print(FittedGrid(Grid("the plan", header, rows, names=3)), crop=False)
    tell(console, _in_all(sum(counts.values()), estimates))
    for names, why in by_cause(session.obstacles):
        tell(console, f"Cannot run here: {names}. {why}")
    if session.obstacles:
        tell(console, "So the run will be refused; --skip-unavailable runs what can run.")


_RATES = (5.0, 10.0, 30.0, 50.0)
"""Percent: rates from which a difference is planned for."""


def show_power(session: Session, points: float, console: Console) -> None:
    """Print how many cases a true difference needs to be found with 80% power."""
    for line in power_lines((job.case for job in session.plan.jobs), points):
        tell(console, line)


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
    found: defaultdict[tuple[str, ...], _Shape] = defaultdict(_Shape)
    for case in cases:
        found[case.benchmark, case.version, case.model, case.defense, case.attack].add(case)
    if not found:
        return []
    largest = max(found.values(), key=lambda shape: (shape.attacked, shape.cases))
    return [
        PlannedSuite(len(users), len(injections), count / (len(users) * len(injections)))
        for users, injections, count in zip(
            largest.users.values(), largest.injections.values(), largest.counts.values(), strict=True
        )
    ]


class _Shape:
    """The tasks of one cell by suite, and how many cases they make."""

    def __init__(self) -> None:
        self.users: defaultdict[str, set[str]] = defaultdict(set)
        self.injections: defaultdict[str, set[str | None]] = defaultdict(set)
        self.counts: Counter[str] = Counter()
        self.attacked = False
        """Whether its first case is attacked, and so all are."""

    @property
    def cases(self) -> int:
        return self.counts.total()

    def add(self, case: Case) -> None:
        if not self.counts:
            self.attacked = case.injection_task_id is not None
        self.users[case.suite].add(case.user_task_id)
        self.injections[case.suite].add(case.injection_task_id)
        self.counts[case.suite] += 1


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


def counts_by_cell(jobs: Jobs) -> Counter[CellKey]:
    """How many cases each cell has."""
    counts: Counter[CellKey] = Counter()
    for block in jobs.blocks:
        counts[block.labels] += len(block)
    return counts


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
