"""`ClientSearch`: one client's queries on one case, numbered and stored as those of a search of ours."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from agentsys.attacks.search import AttemptPosition, Proposal
from agentsys.attacks.search_options import PER_CASE
from agentsys.models.chat import ChatModel
from agentsys.records.schema import AttemptFacts, CaseRecord, SearchFacts
from agentsys.runs.finish_case import build_final_record
from agentsys.runs.planning.jobs import JobBlock, Job, Jobs
from agentsys.runs.search.search_job import attempt_folders, searched_attack, fill_vectors
from agentsys.runs.search.search_plan import check_searches
from agentsys.runs.search.search_target import RunTarget
from agentsys.runs.search.search_task import build_quest
from agentsys.runs.search.stored_attempt import load_attempt
from agentsys.runs.store import Store


@dataclass(frozen=True)
class QueryOutcome:
    """What became of one payload."""

    record: CaseRecord
    facts: AttemptFacts
    answer: str
    """The agent's last words; empty where it said none."""
    record_path: str
    """Path of the record under the log folder."""


@dataclass(frozen=True)
class _TriedQuery:
    """What later queries must know of one that was made."""

    number: int
    refused: bool
    success: bool
    score: int

    @property
    def sort_key(self) -> tuple[bool, int, int]:
        """Sorts the best first: as a search of ours chooses among its attempts."""
        return not self.success, -self.score, self.number


class ClientSearch:
    """The queries of one client on one case. Safe to use from many threads.

    Numbers are given in the order of the queries. A query that ended in an error, or with its server, leaves
    its number to the next one, so that every number that counts has an outcome.

    Raises:
        NotInjectable: If the user task shows no injection.
        ConfigError: If there are queries that were made under other settings.
    """

    def __init__(self, job: Job, store: Store) -> None:
        fill_vectors(job, "")
        check_searches(_plan_one_case(job), store)
        self._job, self._store, self._quest = job, store, build_quest([job])
        self._lock = threading.Lock()
        self._under_way: set[int] = set()
        self._made = {one.number: one for one in _load_tried(job, store)}

    @property
    def is_busy(self) -> bool:
        """Whether a query is under way."""
        return bool(self._under_way)

    def query(self, payload: str) -> QueryOutcome:
        """Run the case with a payload in its injection vectors, and store what became of it.

        Raises:
            SearchFailed: If the run ended in an error.
            StoreError: If it cannot be written.
            RunBudgetReached: If the server may spend no more.
        """
        with self._lock:
            taken = self._made.keys() | self._under_way
            number = next(one for one in count(1) if one not in taken)
            self._under_way.add(number)
        try:
            # An empty context: nothing of this thread's (loggers, tracers) reaches the case, or back.
            record = contextvars.Context().run(self._run_query, number, payload)
            facts = record.attempt
            assert facts is not None
            with self._lock:
                self._made[number] = _summarise_query(record, facts)
                self._store_best()
            return QueryOutcome(record, facts, self._read_answer(number), self._job.case.attempt_key(number))
        finally:
            with self._lock:
                self._under_way.discard(number)

    def _run_query(self, number: int, payload: str) -> CaseRecord:
        # What a query without an outcome left there was another payload's.
        (self._store.root / self._job.case.attempt_key(number)).unlink(missing_ok=True)
        attack, made = searched_attack(self._job), list[CaseRecord]()
        target = RunTarget(
            [self._job], attack, self._quest, self._store, made.append, lambda: False, number - 1
        )
        target.attempt(AttemptPosition(1, number, None), lambda model: self._make_proposal(model, payload))
        return made[0]

    def _make_proposal(self, model: ChatModel, payload: str) -> Proposal:
        mended = payload if self._quest.make_injectable is None else self._quest.make_injectable(payload)
        return Proposal(mended, "sent by a client", proposed=None if mended == payload else payload)

    def _store_best(self) -> None:
        """Store the case as the best of its queries, with what the search came to so far."""
        made = self._made.values()
        best = min((one for one in made if not one.refused), key=lambda one: one.sort_key, default=None)
        stored = None if best is None else load_attempt(self._store, self._job, best.number)
        if stored is not None:
            self._store.write(build_final_record(stored, self._build_search_facts(list(made))), stored.fields)

    def _build_search_facts(self, made: Sequence[_TriedQuery]) -> SearchFacts:
        refused = sum(one.refused for one in made)
        return SearchFacts(
            mode=PER_CASE,
            # Its client decides when it ends: so far it had as many attempts as it made.
            budget=len(made),
            attempts=len(made),
            refused=refused,
            found_at=min((one.number for one in made if one.success), default=None),
            user_task_id=self._job.case.user_task_id,
            tried=len(made) - refused,
        )

    def _read_answer(self, number: int) -> str:
        stored = load_attempt(self._store, self._job, number)
        messages = [] if stored is None else stored.fields.get("messages") or []
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else {}
        return "\n".join(block["content"] for block in last.get("content") or ())


def _plan_one_case(job: Job) -> Jobs:
    """A plan of one attacked case."""
    case = job.case
    return Jobs([JobBlock(job.cell, case.suite, ((case.user_task_id, case.injection_task_id),), range(1))])


def _load_tried(job: Job, store: Store) -> Sequence[_TriedQuery]:
    """The queries that have an outcome."""
    [folder] = attempt_folders(job)
    numbers = [int(path.stem) for path in (store.root / folder).glob("*.json") if path.stem.isdigit()]
    found = [load_attempt(store, job, number) for number in numbers]
    return [_summarise_query(one.record, one.facts) for one in found if one is not None and one.is_finished]


def _summarise_query(record: CaseRecord, facts: AttemptFacts) -> _TriedQuery:
    refused = facts.refused is not None
    return _TriedQuery(facts.number, refused, record.security and not refused, facts.score)
