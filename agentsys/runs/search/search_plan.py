"""Number of searches that a plan needs, and of queries that they can make at most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentsys.contracts import NotInjectable
from agentsys.errors import ConfigError
from agentsys.runs.plan import Job, Jobs, stale_message
from agentsys.runs.search.search_job import (
    attempt_folders,
    needs_search,
    queries_per_attempt,
    search_key,
    searched_attack,
    select_searched,
)
from agentsys.runs.store import Store


@dataclass(frozen=True)
class SearchPlan:
    """The searches behind some cases."""

    searches: int = 0
    attempts: int = 0
    """Most queries that are still to be made."""

    @property
    def summary_line(self) -> str:
        """One line for the announcement; empty where nothing is searched."""
        if not self.searches:
            return ""
        which = "1 search" if self.searches == 1 else f"{self.searches} searches"
        return (
            f"{which} for an attack's text with at most {self.attempts} queries still to make, each"
            " a run of the agent."
        )


def plan_searches(jobs: Jobs, store: Store) -> SearchPlan:
    """The searches of cases that are to be run; attempts made in an earlier run are not counted."""
    first = {search_key(job): job for job in reversed(select_searched(jobs)) if needs_search(job)}
    return SearchPlan(len(first), sum(_count_queries_left(job, store) for job in first.values()))


def check_searches(jobs: Jobs, store: Store) -> None:
    """Refuse to go on with searches that were begun under other settings: their attempts are paid for.

    Raises:
        ConfigError: If a finished attempt was made under another configuration.
    """
    for job in {search_key(job): job for job in select_searched(jobs) if needs_search(job)}.values():
        for path in _list_attempt_files(job, store):
            stored = store.look_at(path)
            if stored.status == "ok" and not job.cell.made(stored.config_hash):
                raise ConfigError(stale_message(job, stored.config_hash, store))


def _count_queries_left(job: Job, store: Store) -> int:
    try:
        queries = searched_attack(job).budget * queries_per_attempt(job)
    except NotInjectable:
        return 0
    return max(queries - len(_list_attempt_files(job, store)), 0)


def _list_attempt_files(job: Job, store: Store) -> list[Path]:
    """The files of the attempts that a case's search has made so far."""
    try:
        folders = attempt_folders(job)
    except NotInjectable:
        return []
    return [path for folder in folders for path in sorted((store.root / folder).glob("*.json"))]
