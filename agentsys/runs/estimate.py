"""Estimate of what a plan will cost, before anything is paid: the simulated model plays sample cases.

The pipelines, prompts and tool schemas are the real ones, and the simulated model follows the ground
truth, so calls and prompt sizes come out near a real model's; how much that one talks is not known.
A search counts with its whole budget, as if no candidate succeeded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentsys.attacks.attacker import ROLES
from agentsys.attacks.search import Attempt, Judgement, Place, Proposal
from agentsys.contracts import NotInjectable
from agentsys.models.card import ModelCard, model_card
from agentsys.models.chat import ChatModel, Usage
from agentsys.models.price import cost_usd
from agentsys.models.trace import Tracer, tracing
from agentsys.records.schema import RoleUsage
from agentsys.runs.build_record import usage_by_role
from agentsys.runs.cell import CellBuilder, model_node
from agentsys.runs.plan import Job, Jobs
from agentsys.runs.planning.jobs import Block
from agentsys.runs.run_case import run_case, scene_of
from agentsys.runs.search.search_job import needs_search, search_homes, search_key, searched_attack, searching
from agentsys.runs.search.search_task import quest_of
from agentsys.runs.store import Store

SAMPLES = 2
"""Cases played per cell and suite."""

CellKey = tuple[str, str, str]
"""Labels of model, defense and attack."""


@dataclass(frozen=True)
class CostEstimate:
    """A guess about one cell."""

    tokens: int
    """Prompt and completion tokens of all its cases."""
    cost_usd: float | None
    """US dollars; None where a model behind it has no price."""
    fails: str | None = None
    """Why its cases cannot run here; then nothing is known of what they cost."""


def rehearsed(jobs: Jobs, store: Store, config_dirs: Sequence[Path] = ()) -> Jobs:
    """The same cases over the simulated model, to estimate what they will cost."""
    builder = CellBuilder(store, tuple(config_dirs), rehearsal=True)
    twins = {id(cell): builder.build(cell.settings) for cell in jobs.cells}
    return jobs.over(lambda cell: twins[id(cell)])


_MOST = Usage(prompt=200_000, completion=5_000)
"""More than a case takes under any shipped defense."""


def can_exceed(jobs: Jobs, usd: float) -> bool:
    """Say whether some cases could cost more than this. Quick and generous: if not, no estimate is needed."""
    by_cell = [(cell, Jobs(block for block in jobs.blocks if block.cell is cell)) for cell in jobs.cells]
    most = 0.0
    for cell, some in by_cell:
        dearest = max(cost_usd(_MOST, card.price) or 0.0 for card in cell.stack.cards)
        most += (len(some) + queries_of(some)) * dearest
    return most > usd


def estimate(jobs: Jobs, cards: Mapping[str, ModelCard]) -> dict[CellKey, CostEstimate]:
    """Tokens and cost of every cell among `jobs`.

    Args:
        jobs: Cases over the simulated model (a session prepared as a rehearsal), in the plan's order.
        cards: Model name -> card, for the models that play single roles.
    """
    grouped: defaultdict[CellKey, defaultdict[str, list[Block]]] = defaultdict(lambda: defaultdict(list))
    for block in jobs.blocks:
        grouped[block.labels][block.suite].append(block)
    return {key: _cell([*map(Jobs, suites.values())], cards) for key, suites in grouped.items()}


def _cell(suites: Sequence[Jobs], cards: Mapping[str, ModelCard]) -> CostEstimate:
    tokens, cost = 0.0, 0.0
    known = True
    for jobs in suites:
        card = model_card(model_node(jobs[0].cell.settings))
        played = [run_case(jobs[i * len(jobs) // SAMPLES]) for i in range(min(SAMPLES, len(jobs)))]
        for run in played:
            if run.ends_cell:
                return CostEstimate(0, None, run.error)
        samples = [_usage(run.tracer) for run in played]
        # Queries of searches are runs of the same agent; what their attacker costs comes on top.
        runs = (len(jobs) + queries_of(jobs)) / len(samples)
        weighed = [(runs, *item) for sample in samples for item in sample.items()]
        for weight, role, usage in [*weighed, *attacker_usage(jobs)]:
            tokens += weight * (usage.prompt + usage.completion)
            asked = cards.get(card.roles.get(role, ""), card)
            spent = cost_usd(Usage(usage.prompt, usage.completion), asked.price)
            known = known and spent is not None
            cost += weight * (spent or 0.0)
    return CostEstimate(round(tokens), cost if known else None)


def _usage(tracer: Tracer) -> Mapping[str, RoleUsage]:
    return usage_by_role([call for span in tracer.spans for call in span.calls])


_FEEDBACK = "x" * 450
"""As long as what an attacker is usually told of an attempt."""


def queries_of(jobs: Jobs) -> int:
    """Queries that the searches behind some cases can make."""
    searches = {search_key(job): searched_attack(job) for job in searching(jobs) if needs_search(job)}
    return sum(attack.budget * attack.search_on for attack in searches.values())


def attacker_usage(jobs: Jobs) -> list[tuple[int, str, RoleUsage]]:
    """(searches, role, usage of one whole search) of the attacker behind some cases of one suite.

    Args:
        jobs: Cases over the simulated model, which also plays the attacker.
    """
    first = {search_key(job): job for job in reversed(searching(jobs)) if needs_search(job)}
    for job in first.values():
        try:
            used = _one_search(search_homes(job))
            return [(len(first), role, usage) for role, usage in used.items() if role in ROLES]
        except NotInjectable:
            continue
    return []


def _one_search(homes: Sequence[Job]) -> Mapping[str, RoleUsage]:
    tracer, job = Tracer(), homes[0]
    with tracing(tracer):
        quest = quest_of(homes)
        searched_attack(job).search(quest, _Unmoved(job.cell.stack.for_scene(scene_of(job))))
    return _usage(tracer)


@dataclass
class _Unmoved:
    """A target that nothing succeeds against; no agent is run."""

    model: ChatModel
    number: int = 0

    def attempt(self, place: Place, propose: Callable[[ChatModel], Proposal]) -> Attempt:
        self.number += 1
        proposal = propose(self.model)
        return Attempt(self.number, place, proposal, success=False, judgement=Judgement(1, _FEEDBACK))
