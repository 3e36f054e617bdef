"""Searches for attack texts as they are planned and stored: the cases of one, its attempts, its artefact.

Nothing here runs a case: a session that has nothing left to do needs no more than this.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast

import orjson
from pydantic import ValidationError

from agentsys.attacks.attack_search import Attempt, AttemptPosition, Judgement, Proposal, SearchedAttack
from agentsys.attacks.injection_vectors import find_injectable_vectors
from agentsys.attacks.search_options import TRANSFER, Artefact, ArtefactEntry, read_artefact
from agentsys.base.atomic_file import write_atomically
from agentsys.contracts import NotInjectable, Suite, UserTask
from agentsys.errors import ConfigError
from agentsys.models.chat import Usage
from agentsys.models.trace import ModelCall, Span
from agentsys.records.case import make_safe_name
from agentsys.records.schema import AttemptFacts, CaseRecord, StoredSpan
from agentsys.runs.claims import Claims
from agentsys.runs.plan import Job, write_stale_message
from agentsys.runs.store import Store


class SearchKey(NamedTuple):
    """One search."""

    pipeline: str
    """Model, defense, benchmark and epoch."""
    attack: str
    suite: str
    injection_task: str
    user_task: str | None
    """None: one search for all user tasks."""


def find_first_of_searches(jobs: Iterable[Job]) -> list[Job]:
    """The first case of each search that some cases need."""
    first: dict[SearchKey, Job] = {}
    for job in (job for job in jobs if job.needs_search):
        first.setdefault(make_search_key(job), job)
    return list(first.values())


def get_searched_attack(job: Job) -> SearchedAttack:
    """The attack of a case that needs a search."""
    return cast(SearchedAttack, job.cell.attack)


def make_search_key(job: Job) -> SearchKey:
    """The search of a case that needs one."""
    case, mode = job.case, get_searched_attack(job).mode
    own = None if mode == TRANSFER else case.user_task_id
    return SearchKey(case.pipeline, case.attack, case.suite, str(case.injection_task_id), own)


def find_search_cases(job: Job) -> list[Job]:
    """The cases that a case's search is made on; the first one leads: its attempts hold the whole search.

    In mode `transfer` they are a sample of the suite's user tasks that can show an injection, whatever tasks
    the run was limited to: another limit must not change the text that finished cases were run with.

    Raises:
        NotInjectable: If there is none.
    """
    attack, case = get_searched_attack(job), job.case
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


def list_attempt_folders(job: Job) -> list[str]:
    """The folders, under the log folder, that the attempts of a case's search lie in.

    Raises:
        NotInjectable: If there is nothing that it could be made on.
    """
    keys = [home.case.make_attempt_key(1) for home in find_search_cases(job)]
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


@dataclass(frozen=True)
class StoredAttempt:
    """One attempt's file."""

    record: CaseRecord
    facts: AttemptFacts
    fields: dict[str, Any]
    """The top level of the file, as AgentDojo's loader reads it."""

    @property
    def is_finished(self) -> bool:
        """Whether it need not be made again."""
        return self.record.status == "ok"

    @property
    def attempt(self) -> Attempt:
        """The attempt as its search sees it."""
        return to_attempt(self.record, self.facts)


def load_attempt(store: Store, job: Job, number: int) -> StoredAttempt | None:
    """Read what is stored of a case's search under this number.

    None if nothing is, or nothing of this configuration.
    """
    try:
        fields = orjson.loads((store.root / job.case.make_attempt_key(number)).read_bytes())
        record = CaseRecord.model_validate(fields.pop("agentsys"))
    except (OSError, orjson.JSONDecodeError, ValidationError, KeyError, AttributeError, TypeError):
        return None
    if record.attempt is None or record.case != job.case or record.config_hash != job.cell.config_hash:
        return None
    return StoredAttempt(record, record.attempt, fields)


def to_attempt(record: CaseRecord, facts: AttemptFacts) -> Attempt:
    """An attempt's record as its search sees it."""
    carried_out = int(record.security) if facts.carried_out is None else facts.carried_out
    share = carried_out / facts.tried_on if facts.refused is None else 0.0
    return Attempt(
        facts.number,
        AttemptPosition(facts.stream, facts.depth, facts.parent),
        to_proposal(facts),
        share == 1.0,
        Judgement(facts.score, facts.feedback),
        share,
    )


def to_proposal(facts: AttemptFacts) -> Proposal:
    """The candidate that was tried, with the attacker's first proposal where it came before."""
    ahead = None if facts.ahead is None else Proposal(**facts.ahead.model_dump())
    return Proposal(facts.text, facts.why, facts.refused, facts.fault, facts.proposed, facts.strategy, ahead)


def to_span(stored: StoredSpan) -> Span:
    """A stored span as part of a trace that goes on."""
    calls = []
    for call in stored.calls:
        usage = Usage.from_stored(call)
        calls.append(ModelCall(usage=usage, **{k: v for k, v in call if not hasattr(usage, k)}))
    return Span(**{**dict(stored), "calls": calls})


def describe_searches(jobs: Iterable[Job], store: Store) -> str:
    """One line on the searches of cases that are to be run; attempts of an earlier run are not counted."""
    first = find_first_of_searches(jobs)
    which = "1 search" if len(first) == 1 else f"{len(first)} searches"
    queries = sum(_count_queries_left(job, store) for job in first)
    return (
        f"{which} for an attack's text with at most {queries} queries still to make, each a run of the agent."
    )


def check_searches(jobs: Iterable[Job], store: Store) -> None:
    """Refuse to go on with searches that were begun under other settings: their attempts are paid for.

    Raises:
        ConfigError: If a finished attempt was made under another configuration.
    """
    for job in find_first_of_searches(jobs):
        for path in _list_attempt_files(job, store):
            stored = store.read_file_status(path)
            if stored.status == "ok" and stored.config_hash != job.cell.config_hash:
                raise ConfigError(write_stale_message(job, stored.config_hash, store))


def _count_queries_left(job: Job, store: Store) -> int:
    try:
        queries = get_searched_attack(job).budget * len(find_search_cases(job))
    except NotInjectable:
        return 0
    return max(queries - len(_list_attempt_files(job, store)), 0)


def _list_attempt_files(job: Job, store: Store) -> list[Path]:
    try:
        folders = list_attempt_folders(job)
    except NotInjectable:
        return []
    return [path for folder in folders for path in sorted((store.root / folder).glob("*.json"))]


def make_artefact_path(store: Store, job: Job) -> Path:
    """Path of the artefact of a case's agent and attack."""
    return store.own / "searches" / job.case.pipeline / f"{make_safe_name(job.case.attack)}.json"


def add_to_artefact(store: Store, claims: Claims, job: Job, entries: Sequence[ArtefactEntry]) -> None:
    """Put what a search came to into its file, in place of what is there for the same tasks.

    Safe to use from many threads, and beside other runs.

    Raises:
        StoreError: If it cannot be written.
    """
    path = make_artefact_path(store, job)
    with claims.hold(f"artefact {path.relative_to(store.root)}"):
        case, before = job.case, None
        with suppress(ConfigError):  # what cannot be read is written anew from the stored attempts
            before = read_artefact(path) if path.exists() else None
        before = before or Artefact(
            attack=case.attack,
            mode=get_searched_attack(job).mode,
            benchmark=case.benchmark,
            version=case.version,
            model=case.model,
            defense=case.defense,
            entries=(),
        )
        now = before.with_search(entries)
        if now == before and path.exists():
            return
        try:
            write_atomically(path, now.as_json())
        except OSError as error:
            raise store.make_write_error(path, error) from None
