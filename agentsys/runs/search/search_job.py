"""The search that a case's text comes from, and the cases that it is made on."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, NamedTuple, cast

from agentdojo.base_tasks import BaseUserTask
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
    """Say whether a case's text has to be searched for. A model that replays runs dictates texts itself."""
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


def search_homes(job: Job) -> list[Job]:
    """The cases that a case's search is made on; the first one leads: its attempts hold the whole search.

    In mode `transfer` they are a sample of the suite's user tasks that can show an injection, whatever tasks
    the run was limited to: another limit must not change the text that finished cases were run with.

    Raises:
        NotInjectable: If there is none.
    """
    attack = searched_attack(job)
    if attack.mode != TRANSFER:
        return [job]
    able = _injectable(job.cell.benchmark.suite(job.case.suite))
    if not able:
        raise NotInjectable(f"No user task of {job.case.suite} shows an injection vector.")
    # The same in every run: searches under another seed are then comparable, and found to be another's.
    draw = random.Random(f"{job.case.version}\n{job.case.suite}\n{job.case.injection_task_id}")
    homes = draw.sample(able, min(attack.search_on, len(able)))
    return [replace(job, case=job.case.model_copy(update={"user_task_id": home})) for home in homes]


def texts_for(job: Job, text: str) -> dict[str, str]:
    """A text in every injection vector of a case's user task.

    Raises:
        NotInjectable: If there is none.
    """
    suite = job.cell.benchmark.suite(job.case.suite)
    return dict.fromkeys(injectable_vectors(suite, suite.user_tasks[job.case.user_task_id]), text)


def _injectable(suite: TaskSuite[Any]) -> list[str]:
    return [str(task_id) for task_id, task in suite.user_tasks.items() if _shows(suite, task)]


def _shows(suite: TaskSuite[Any], task: BaseUserTask[Any]) -> bool:
    try:
        return bool(injectable_vectors(suite, task))
    except NotInjectable:
        return False
