"""What a plan will cost, before anything is paid: sample cases of each cell played by the simulated model.

The pipelines, prompts and tool schemas are the real ones, and the simulated model follows the ground
truth, so calls and prompt sizes come out near a real model's; how much that one talks is not known.
A search counts with its whole budget, as if no candidate succeeded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agentsys.models.card import ModelCard, model_card
from agentsys.models.chat import Usage
from agentsys.models.price import cost_usd
from agentsys.records.schema import RoleUsage
from agentsys.runs.build_record import usage_by_role
from agentsys.runs.cell import Cell, CellBuilder, model_node
from agentsys.runs.plan import Job
from agentsys.runs.run_case import CaseRun, run_case
from agentsys.runs.search.search_estimate import attacker_usage, queries_of
from agentsys.runs.store import Store

SAMPLES = 2
"""Cases played per cell and suite."""

CellKey = tuple[str, str, str]
"""Labels of model, defense and attack."""


@dataclass(frozen=True)
class Estimate:
    """A guess about one cell."""

    tokens: int
    """Prompt and completion tokens of all its cases."""
    cost_usd: float | None
    """US dollars; None where a model behind it has no price."""
    fails: str | None = None
    """Why its cases cannot run here; then nothing is known of what they cost."""


def rehearsed(jobs: Sequence[Job], store: Store, config_dirs: Sequence[Path] = ()) -> list[Job]:
    """The same cases over the simulated model, to estimate what they will cost."""
    builder = CellBuilder(store, tuple(config_dirs), rehearsal=True)
    cells = {id(job.cell): job.cell for job in jobs}
    twins = {key: builder.build(cell.settings) for key, cell in cells.items()}
    return [replace(job, cell=twins[id(job.cell)]) for job in jobs]


_MOST = Usage(prompt=200_000, completion=5_000)
"""More than a case takes under any shipped defense."""


def can_exceed(jobs: Sequence[Job], usd: float) -> bool:
    """Whether some cases could cost more than this. Quick and generous: if not, no estimate is needed."""
    by_cell: defaultdict[int, list[Job]] = defaultdict(list)
    for job in jobs:
        by_cell[id(job.cell)].append(job)
    return sum((len(some) + queries_of(some)) * _dearest(some[0].cell) for some in by_cell.values()) > usd


def _dearest(cell: Cell) -> float:
    return max(cost_usd(_MOST, card.price) or 0.0 for card in cell.stack.cards)


def estimate(jobs: Sequence[Job], cards: Mapping[str, ModelCard]) -> dict[CellKey, Estimate]:
    """Tokens and cost of every cell among `jobs`.

    Args:
        jobs: Cases over the simulated model (a session prepared as a rehearsal), in the plan's order.
        cards: Model name -> card, for the models that play single roles.
    """
    grouped: defaultdict[CellKey, defaultdict[str, list[Job]]] = defaultdict(lambda: defaultdict(list))
    for job in jobs:
        grouped[job.case.model, job.case.defense, job.case.attack][job.case.suite].append(job)
    return {key: _cell(list(suites.values()), cards) for key, suites in grouped.items()}


def _cell(suites: Sequence[Sequence[Job]], cards: Mapping[str, ModelCard]) -> Estimate:
    tokens, cost = 0.0, 0.0
    known = True
    for jobs in suites:
        card = model_card(model_node(jobs[0].cell.settings))
        played = [run_case(jobs[i * len(jobs) // SAMPLES]) for i in range(min(SAMPLES, len(jobs)))]
        for run in played:
            if run.ends_cell:
                return Estimate(0, None, run.error)
        samples = [_usage(run) for run in played]
        # Queries of searches are runs of the same agent; what their attacker costs comes on top.
        runs = (len(jobs) + queries_of(jobs)) / len(samples)
        weighed = [(runs, *item) for sample in samples for item in sample.items()]
        for weight, role, usage in [*weighed, *attacker_usage(jobs)]:
            tokens += weight * (usage.prompt + usage.completion)
            price = cards.get(card.roles.get(role, ""), card).price
            spent = cost_usd(Usage(usage.prompt, usage.completion), price)
            known = known and spent is not None
            cost += weight * (spent or 0.0)
    return Estimate(round(tokens), cost if known else None)


def _usage(run: CaseRun) -> Mapping[str, RoleUsage]:
    return usage_by_role([call for span in run.tracer.spans for call in span.calls])
