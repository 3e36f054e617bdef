"""The search that a case's text comes from, and the cases that it is made on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from pathlib import PurePosixPath
from typing import NamedTuple, cast

from agentsys.attacks.literal import written_for
from agentsys.attacks.search import SearchedAttack, is_searched
from agentsys.attacks.search_options import TEMPLATE, TRANSFER
from agentsys.attacks.template import filled
from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import NotInjectable, Suite, UserTask
from agentsys.runs.plan import Job, Jobs


class SearchKey(NamedTuple):
    """One search."""

    pipeline: str
    """Model, defense, benchmark and epoch."""
    attack: str
    suite: str
    injection_task: str
    """`""`: one search for all pairs of the suite."""
    user_task: str | None
    """None: one search for all user tasks."""


def needs_search(job: Job) -> bool:
    """Say whether a case's text has to be searched for. A model that replays runs dictates texts itself."""
    attacked = job.case.injection_task_id is not None
    return attacked and is_searched(job.cell.attack) and not job.cell.stack.dictates


def searching(jobs: Jobs) -> Jobs:
    """The cases of the cells some of whose texts have to be searched for."""
    return jobs.of(lambda cell: is_searched(cell.attack) and not cell.stack.dictates)


def searched_attack(job: Job) -> SearchedAttack:
    """The attack of a case that needs a search."""
    return cast(SearchedAttack, job.cell.attack)


def search_key(job: Job) -> SearchKey:
    """The search of a case that needs one."""
    case, mode = job.case, searched_attack(job).mode
    goal = "" if mode == TEMPLATE else str(case.injection_task_id)
    own = None if mode in (TRANSFER, TEMPLATE) else case.user_task_id
    return SearchKey(case.pipeline, case.attack, case.suite, goal, own)


def search_homes(job: Job) -> list[Job]:
    """The cases that a case's search is made on; the first one leads: its attempts hold the whole search.

    In mode `transfer` they are a sample of the suite's user tasks that can show an injection, in mode
    `template` a sample of its pairs of tasks, whatever tasks the run was limited to: another limit must not
    change the text that finished cases were run with.

    Raises:
        NotInjectable: If there is none.
    """
    attack, case = searched_attack(job), job.case
    if attack.mode not in (TRANSFER, TEMPLATE):
        return [job]
    suite = job.cell.benchmark.suite(case.suite)
    able = [str(task_id) for task_id, task in suite.user_tasks.items() if _shows(suite, task)]
    if not able:
        raise NotInjectable(f"No user task of {case.suite} shows an injection vector.")
    # The same in every run: searches under another seed are then comparable, and found to be another's.
    if attack.mode == TEMPLATE:
        draw = random.Random(f"{case.version}\n{case.suite}\n{TEMPLATE}")
        pairs = _pairs(able, list(suite.injection_tasks), attack.search_on, draw)
        return [_at(job, user, injection) for user, injection in pairs]
    draw = random.Random(f"{case.version}\n{case.suite}\n{case.injection_task_id}")
    homes = draw.sample(able, min(attack.search_on, len(able)))
    return [_at(job, home, str(case.injection_task_id)) for home in homes]


def _pairs(
    users: Sequence[str], injections: Sequence[str], count: int, draw: random.Random
) -> list[tuple[str, str]]:
    """Draw pairs so that every injection task has its turn before one has a second; user tasks likewise."""
    taken: list[tuple[str, str]] = []
    shuffled = draw.sample(list(users), len(users))
    goals = cycle(draw.sample(list(injections), len(injections)))
    for injection in islice(goals, min(count, len(users) * len(injections))):
        user = next(user for user in shuffled if (user, injection) not in taken)
        taken.append((user, injection))
        shuffled.remove(user)
        shuffled.append(user)
    return taken


def _at(job: Job, user_task: str, injection_task: str) -> Job:
    tasks = {"user_task_id": user_task, "injection_task_id": injection_task}
    return replace(job, case=job.case.model_copy(update=tasks))


def queries_per_attempt(job: Job) -> int:
    """Cases that each candidate of a case's search is tried on at once.

    Raises:
        NotInjectable: If there is none.
    """
    homes = search_homes(job)
    return 1 if searched_attack(job).mode == TEMPLATE else len(homes)


def attempt_key(job: Job, number: int) -> str:
    """Path, under the log folder, of an attempt of a search that is made on this case."""
    whole = searched_attack(job).mode == TEMPLATE
    return job.case.suite_attempt_key(number) if whole else job.case.attempt_key(number)


def attempt_folders(job: Job) -> list[str]:
    """The folders, under the log folder, that the attempts of a case's search lie in.

    Raises:
        NotInjectable: If there is nothing that it could be made on.
    """
    keys = [attempt_key(home, 1) for home in search_homes(job)]
    return list(dict.fromkeys(str(PurePosixPath(key).parent) for key in keys))


def texts_for(job: Job, text: str) -> dict[str, str]:
    """A search's text in every injection vector of a case's user task; a template is filled in for the case.

    Raises:
        NotInjectable: If there is none.
    """
    suite = job.cell.benchmark.suite(job.case.suite)
    user_task = suite.user_tasks[job.case.user_task_id]
    if searched_attack(job).mode == TEMPLATE:
        injection_task = suite.injection_tasks[str(job.case.injection_task_id)]
        text = written_for(suite, filled(text, user_task, injection_task, job.cell.victim))
    return dict.fromkeys(injectable_vectors(suite, user_task), text)


def _shows(suite: Suite, task: UserTask) -> bool:
    try:
        return bool(injectable_vectors(suite, task))
    except NotInjectable:
        return False
