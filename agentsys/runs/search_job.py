"""Which search a case's text comes from, and on which case that search is made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple, cast

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.attacks.search import SearchedAttack, is_searched
from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import NotInjectable
from agentsys.runs.plan import Job

TRANSFER = "transfer"


class SearchKey(NamedTuple):
    """One search."""

    pipeline: str
    """Model, defense, benchmark and epoch."""
    attack: str
    suite: str
    injection_task: str
    user_task: str | None
    """None: one search for all user tasks."""


def needs_search(job: Job) -> bool:
    """Whether a case's text has to be searched for. A model that replays runs dictates texts itself."""
    attacked = job.case.injection_task_id is not None
    return attacked and is_searched(job.cell.attack) and not job.cell.stack.dictates


def searched_attack(job: Job) -> SearchedAttack:
    """The attack of a case that needs a search."""
    return cast(SearchedAttack, job.cell.attack)


def search_key(job: Job) -> SearchKey:
    """The search of a case that needs one."""
    case = job.case
    own = None if searched_attack(job).mode == TRANSFER else case.user_task_id
    return SearchKey(case.pipeline, case.attack, case.suite, str(case.injection_task_id), own)


def search_job(job: Job) -> Job:
    """The case that a case's search is made on.

    In mode `transfer` it is the suite's first injectable user task, whatever tasks the run was limited
    to: another limit must not change the text that finished cases were run with.

    Raises:
        NotInjectable: If there is none.
    """
    if searched_attack(job).mode != TRANSFER:
        return job
    first = _first_injectable(job.cell.benchmark.suite(job.case.suite))
    return replace(job, case=job.case.model_copy(update={"user_task_id": first}))


def texts_for(job: Job, text: str) -> dict[str, str]:
    """A text in every injection vector of a case's user task.

    Raises:
        NotInjectable: If there is none.
    """
    suite = job.cell.benchmark.suite(job.case.suite)
    return dict.fromkeys(injectable_vectors(suite, suite.user_tasks[job.case.user_task_id]), text)


def _first_injectable(suite: TaskSuite[Any]) -> str:
    for task_id, task in suite.user_tasks.items():
        try:
            injectable_vectors(suite, task)
        except NotInjectable:
            continue
        return str(task_id)
    raise NotInjectable(f"No user task of {suite.name} shows an injection vector.")
