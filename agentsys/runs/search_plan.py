"""How many searches a plan needs and how many queries they can make at most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsys.contracts import NotInjectable
from agentsys.runs.plan import Job
from agentsys.runs.search_job import needs_search, search_job, search_key, searched_attack
from agentsys.runs.store import Store


@dataclass(frozen=True)
class SearchPlan:
    """The searches behind some cases."""

    searches: int = 0
    attempts: int = 0
    """Most attempts that are still to be made."""

    @property
    def line(self) -> str:
        """One line for the announcement; empty where nothing is searched."""
        if not self.searches:
            return ""
        which = "1 search" if self.searches == 1 else f"{self.searches} searches"
        return (
            f"{which} for an attack's text with at most {self.attempts} queries still to make, each a"
            " question to the attacker and a run of the agent."
        )


def search_plan(jobs: Sequence[Job], store: Store) -> SearchPlan:
    """The searches of cases that are to be run; attempts made in an earlier run are not counted."""
    first = {search_key(job): job for job in reversed(jobs) if needs_search(job)}
    return SearchPlan(len(first), sum(_left(job, store) for job in first.values()))


def _left(job: Job, store: Store) -> int:
    budget = searched_attack(job).budget
    try:
        home = search_job(job).case
    except NotInjectable:
        return 0
    folder = (store.root / home.attempt_key(1)).parent
    return max(budget - len(list(folder.glob("*.json"))), 0)
