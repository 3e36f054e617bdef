"""The search that a case's text comes from, and the cases that it is made on."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple, cast

from agentsys.attacks.search import SearchedAttack, is_searched
from agentsys.attacks.search_options import TRANSFER
from agentsys.attacks.vectors import find_injectable_vectors
from agentsys.contracts import NotInjectable, Suite, UserTask
from agentsys.runs.plan import Job, Jobs


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
    return attacked and is_searched(job.cell.attack) and not job.cell.stack.replays_runs


def select_searched(jobs: Jobs) -> Jobs:
    """The cases of the cells some of whose texts have to be searched for."""
    return jobs.of_cells(lambda cell: is_searched(cell.attack) and not cell.stack.replays_runs)


def searched_attack(job: Job) -> SearchedAttack:
    """The attack of a case that needs a search."""
    return cast(SearchedAttack, job.cell.attack)


def search_key(job: Job) -> SearchKey:
    """The search of a case that needs one."""
    case, mode = job.case, searched_attack(job).mode
    own = None if mode == TRANSFER else case.user_task_id
    return SearchKey(case.pipeline, case.attack, case.suite, str(case.injection_task_id), own)


def find_search_cases(job: Job) -> list[Job]:
    """The cases that a case's search is made on; the first one leads: its attempts hold the whole search.

    In mode `transfer` they are a sample of the suite's user tasks that can show an injection, whatever tasks
    the run was limited to: another limit must not change the text that finished cases were run with.

    Raises:
        NotInjectable: If there is none.
    """
    attack, case = searched_attack(job), job.case
    if attack.mode != TRANSFER:
        return [job]
    suite = job.cell.benchmark.suite(case.suite)
    able = [str(task_id) for task_id, task in suite.user_tasks.items() if _is_injectable(suite, task)]
    if not able:
        raise NotInjectable(f"No user task of {case.suite} shows an injection vector.")
    # The same in every run: searches under another seed are then comparable, and found to be another's.
    draw = random.Random(f"{case.version}\n{case.suite}\n{case.injection_task_id}")
    homes = draw.sample(able, min(attack.search_on, len(able)))
    return [replace(job, case=case.model_copy(update={"user_task_id": home})) for home in homes]


def queries_per_attempt(job: Job) -> int:
    """Cases that each candidate of a case's search is tried on at once.

    Raises:
        NotInjectable: If there is none.
    """
    return len(find_search_cases(job))


def attempt_folders(job: Job) -> list[str]:
    """The folders, under the log folder, that the attempts of a case's search lie in.

    Raises:
        NotInjectable: If there is nothing that it could be made on.
    """
    keys = [home.case.attempt_key(1) for home in find_search_cases(job)]
    return list(dict.fromkeys(str(PurePosixPath(key).parent) for key in keys))


def fill_vectors(job: Job, text: str) -> dict[str, str]:
    """A search's text in every injection vector of a case's user task.

    Raises:
        NotInjectable: If there is none.
    """
    suite = job.cell.benchmark.suite(job.case.suite)
    user_task = suite.user_tasks[job.case.user_task_id]
    return dict.fromkeys(find_injectable_vectors(suite, user_task), text)


def _is_injectable(suite: Suite, task: UserTask) -> bool:
    try:
        return bool(find_injectable_vectors(suite, task))
    except NotInjectable:
        return False
