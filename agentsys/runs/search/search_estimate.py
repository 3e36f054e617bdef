"""What the searches of a plan will cost at most, before anything is paid: every budget spent to the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentsys.attacks.attacker import ROLES
from agentsys.attacks.search import Attempt, Judgement, Place, Proposal
from agentsys.contracts import NotInjectable
from agentsys.models.chat import ChatModel
from agentsys.models.trace import Tracer, tracing
from agentsys.records.schema import RoleUsage
from agentsys.runs.build_record import usage_by_role
from agentsys.runs.plan import Job
from agentsys.runs.run_case import scene_of
from agentsys.runs.search.search_job import needs_search, search_homes, search_key, searched_attack
from agentsys.runs.search.search_task import quest_of

_FEEDBACK = "x" * 450
"""As long as what an attacker is usually told of an attempt."""


def queries_of(jobs: Sequence[Job]) -> int:
    """Queries that the searches behind some cases can make."""
    searches = {search_key(job): searched_attack(job) for job in jobs if needs_search(job)}
    return sum(attack.budget * attack.search_on for attack in searches.values())


def attacker_usage(jobs: Sequence[Job]) -> list[tuple[int, str, RoleUsage]]:
    """(searches, role, usage of one whole search) of the attacker behind some cases of one suite.

    Args:
        jobs: Cases over the simulated model, which also plays the attacker.
    """
    first = {search_key(job): job for job in reversed(jobs) if needs_search(job)}
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
    return usage_by_role([call for span in tracer.spans for call in span.calls])


@dataclass
class _Unmoved:
    """A target that nothing succeeds against; no agent is run."""

    model: ChatModel
    number: int = 0

    def attempt(self, place: Place, propose: Callable[[ChatModel], Proposal]) -> Attempt:
        self.number += 1
        proposal = propose(self.model)
        return Attempt(self.number, place, proposal, success=False, judgement=Judgement(1, _FEEDBACK))
