"""`AttackTarget`: cases of a benchmark as models of a server, for programs that search for attacks.

`ClientSearch` numbers and stores one client's queries on one case as those of a search of ours.

The model `agentdojo/slack/user_task_0/injection_task_1` is the defended agent at work on that user task:
what a client says goes into the case's injection vectors, and the reply says what became of it.
"""

from __future__ import annotations

import contextvars
import json
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from agentsys.attacks.attack_search import AttemptPosition, Proposal
from agentsys.attacks.attacker_search import AttackerSearch
from agentsys.attacks.search_options import PER_CASE, SearchOptions
from agentsys.contracts import NotInjectable
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.budget import RunBudgetReached
from agentsys.models.chat import (
    ChatRequest,
    ErrorKind,
    ModelError,
    Usage,
    assistant,
    text_of,
)
from agentsys.models.serving.wire_format import Problem, RequestRefused, TracedReply, WireCaller
from agentsys.records.schema import AttemptFacts, CaseRecord, SearchFacts
from agentsys.runs.cell import Cell
from agentsys.runs.claims import Claims
from agentsys.runs.plan import Job, make_job
from agentsys.runs.run_case import SearchFailed
from agentsys.runs.run_searches import build_final_record
from agentsys.runs.search_plan import (
    attempt_folders,
    check_searches,
    fill_vectors,
    load_attempt,
    searched_attack,
)
from agentsys.runs.search_target import RunTarget, build_quest
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
        check_searches([job], store)
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
            number = next(n for n in count(1) if n not in self._made and n not in self._under_way)
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
        attack, records = searched_attack(self._job), list[CaseRecord]()
        target = RunTarget(
            [self._job], attack, self._quest, self._store, records.append, lambda: False, number - 1
        )
        fit = self._quest.make_injectable
        text = payload if fit is None else fit(payload)
        proposal = Proposal(text, "sent by a client", proposed=None if text == payload else payload)
        target.attempt(AttemptPosition(1, number, None), lambda model: proposal)
        return records[0]

    def _store_best(self) -> None:
        """Store the case as the best of its queries, with what the search came to so far."""
        queries = self._made.values()
        tried = [query for query in queries if not query.refused]
        best = min(tried, key=lambda query: query.sort_key, default=None)
        stored = None if best is None else load_attempt(self._store, self._job, best.number)
        if stored is None:
            return
        facts = SearchFacts(
            mode=PER_CASE,
            # Its client decides when it ends: so far it had as many attempts as it made.
            budget=len(queries),
            attempts=len(queries),
            refused=len(queries) - len(tried),
            found_at=min((query.number for query in queries if query.success), default=None),
            user_task_id=self._job.case.user_task_id,
            tried=len(tried),
        )
        self._store.write(build_final_record(stored, facts), stored.fields)

    def _read_answer(self, number: int) -> str:
        stored = load_attempt(self._store, self._job, number)
        messages = [] if stored is None else stored.fields.get("messages") or []
        last = messages[-1] if messages and messages[-1]["role"] == "assistant" else {}
        return "\n".join(block["content"] for block in last.get("content") or ())


def _load_tried(job: Job, store: Store) -> Sequence[_TriedQuery]:
    """The queries that have an outcome."""
    [folder] = attempt_folders(job)
    numbers = [int(path.stem) for path in (store.root / folder).glob("*.json") if path.stem.isdigit()]
    attempts = [load_attempt(store, job, number) for number in numbers]
    return [_summarise_query(each.record, each.facts) for each in attempts if each and each.is_finished]


def _summarise_query(record: CaseRecord, facts: AttemptFacts) -> _TriedQuery:
    refused = facts.refused is not None
    return _TriedQuery(facts.number, refused, record.security and not refused, facts.score)


CLIENT_ATTACK = "client"
"""Beginning of the attack's label in records, followed by the session's name."""
CASE_NAME_FORM = "SUITE/USER_TASK/INJECTION_TASK[/SESSION]"
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MAX_SEARCHES = 512
"""Searches in memory; others are read again from the log folder when their next query comes."""


class AttackTarget:
    """The cases of one cell's benchmark, each a model. Used by many threads at once.

    Args:
        cell: Model, defense and benchmark; its attack plays no part.
        store: Where queries are stored.
        at_once: Queries under way at once; more are refused.

    Raises:
        StoreError: If the log folder cannot be written.
    """

    def __init__(self, cell: Cell, store: Store, at_once: int) -> None:
        self._cell, self._store = cell, store
        self._claims = Claims(store).__enter__()
        self._lock = threading.Lock()
        self._cells: dict[str, Cell] = {}
        self._searches: dict[str, ClientSearch] = {}
        """By the case's path; those that were asked last at the end."""
        self._room = threading.BoundedSemaphore(at_once)

    @property
    def prefix(self) -> str:
        """Beginning of its models' names: the benchmark's, whatever its options are."""
        return f"{self._cell.benchmark.name.partition('+')[0]}/"

    def is_case_name(self, model: str) -> bool:
        """Whether a model's name is one of a case, well spelled or not."""
        return model.startswith(self.prefix)

    def listed(self, under: str) -> Sequence[str]:
        """Names of cases: the first one of every suite, or all of `BENCHMARK/SUITE`."""
        with self._lock:
            if not under:
                suites = self._cell.benchmark.suite_names()
                return [found for suite in suites if (found := next(self._list_names(suite), None))]
            suite = under.removeprefix(self.prefix)
            known = suite != under and suite in self._cell.benchmark.suite_names()
            return list(self._list_names(suite)) if known else []

    def query(self, job: Job, payload: str) -> QueryOutcome:
        """Run a case with a payload and store it.

        Raises:
            RequestRefused: If there is no room, it cannot be stored, or the case's own code broke.
            ModelError: If a model gave no reply.
        """
        if not self._room.acquire(blocking=False):
            why = "as many queries are under way as this server takes at once"
            raise RequestRefused(Problem(429, why, retry_after_s=1.0))
        try:
            return self._get_search(job).query(payload)
        except SearchFailed as failed:
            kind = next((kind for kind in ErrorKind if kind.value == failed.kind), None)
            if kind is not None:
                raise ModelError(kind, str(failed).removeprefix(f"{kind.value}: ")) from None
            raise _refuse(500, f"the query ended in an error ({failed.kind}): {failed}") from None
        except RunBudgetReached:
            raise _refuse(402, "the budget of this server is used up") from None
        except ConfigError as error:
            raise _refuse(409, str(error)) from None
        finally:
            self._room.release()

    def stop(self) -> None:
        """Give back what other processes may have. Queries under way end as unfinished ones."""
        self._claims.__exit__(None, None, None)

    def _find_job(self, caller: WireCaller) -> Job:
        parts = caller.model.removeprefix(self.prefix).split("/")
        if len(parts) not in (3, 4):
            raise _refuse_model(
                f"a case is asked for as {self.prefix}{CASE_NAME_FORM}, not as '{caller.model}'"
            )
        session = parts[3] if len(parts) == 4 else caller.owner[:8] or "nobody"
        if not _SESSION.fullmatch(session):
            raise _refuse_model(
                f"a session's name has letters, digits, '.', '_' and '-', not {session[:80]!r}"
            )
        with self._lock:
            benchmark = self._cell.benchmark
            suite = benchmark.suite(_check_known("suite", parts[0], benchmark.suite_names()))
            user_task = _check_known("user task", parts[1], suite.user_tasks)
            injection_task = _check_known("injection task", parts[2], suite.injection_tasks)
            job = self._build_job(session, suite.name, user_task, injection_task)
            try:
                fill_vectors(job, "")
            except NotInjectable as error:
                raise _refuse(400, str(error), "not_injectable") from None
        return job

    def _build_job(self, session: str, suite: str, user_task: str, injection_task: str) -> Job:
        if session not in self._cells:
            while len(self._cells) >= _MAX_SEARCHES:
                del self._cells[next(iter(self._cells))]
            self._cells[session] = self._build_attacked_cell(f"{CLIENT_ATTACK}-{session}")
        cell = self._cells[session]
        return make_job(cell, suite, (user_task, injection_task))

    def _build_attacked_cell(self, label: str) -> Cell:
        """The cell with a client in place of its attack."""
        before = self._cell.settings
        changed = {"attack": {"name": label, "mode": PER_CASE}, "labels": {**before.labels, "attack": label}}
        settings = before.model_copy(update=changed)
        attack = AttackerSearch(label, SearchOptions(mode=PER_CASE))
        if self._cell.stack.replays_runs:
            raise _refuse(400, "a model that replays runs says itself what is injected")
        self._store.store_config(settings.config_hash, settings.identity)
        return replace(self._cell, settings=settings, attack=attack)

    def _list_names(self, name: str) -> Iterator[str]:
        suite = self._cell.benchmark.suite(name)
        for user_task in suite.user_tasks:
            for injection_task in suite.injection_tasks:
                yield f"{self.prefix}{name}/{user_task}/{injection_task}"

    def _get_search(self, job: Job) -> ClientSearch:
        """The search of a case's client, which no other server may go on with meanwhile."""
        key = job.case.key
        with self._lock:
            search = self._searches.pop(key, None)
            if search is None:
                if not self._claims.take(_claim_key(key)):
                    raise ConfigError(
                        f"{key}: another server is storing queries of this session; give the session another"
                        f" name: {self.prefix}{CASE_NAME_FORM}."
                    )
                search = ClientSearch(job, self._store)
            self._searches[key] = search
            for old in [name for name, each in self._searches.items() if not each.is_busy][:-_MAX_SEARCHES]:
                if old != key:
                    del self._searches[old]
                    self._claims.release(_claim_key(old))
            return search

    def answer(self, caller: WireCaller, request: ChatRequest) -> TracedReply:
        """Run the case that a caller's model names, with the user's last words as its payload.

        Raises:
            RequestRefused: If there is no such case, or nothing can be injected there; as `query` does.
            ModelError: If a model gave no reply.
        """
        job = self._find_job(caller)
        texts = [text_of(message) for message in request.messages if message["role"] == "user"]
        if not texts or not texts[-1].strip():
            raise _refuse(400, "the payload is the last message of the user, and there is none")
        outcome = self.query(job, texts[-1])
        record, path = outcome.record, outcome.record_path
        if outcome.facts.refused is not None:
            raise _refuse(400, f"the payload could not be tried: {outcome.facts.refused}", "not_tried", path)
        usage = sum(map(Usage.from_stored, record.usage.values()), Usage())
        ids = [call.model_id for span in record.spans for call in span.calls if call.model_id]
        model_id = ids[-1] if ids else ""
        return TracedReply(assistant(format_outcome(outcome)), usage, model_id=model_id, trace=path)


def format_outcome(outcome: QueryOutcome) -> str:
    """What a client is told, as one line of JSON.

    A whole reply of JSON and not words with JSON behind them: the agent's words stand in a string, so that
    none of them can be taken for a score, not even by a search for `"security": true`.
    """
    reply: dict[str, Any] = {
        "answer": outcome.answer,
        "security": outcome.record.security,
        "utility": outcome.record.utility,
        "exposed_shown": outcome.record.exposure.exposed_shown,
        "query": outcome.facts.number,
    }
    if outcome.facts.proposed is not None:
        reply["tried"] = outcome.facts.text
    return json.dumps(reply, ensure_ascii=False)


def _check_known(kind: str, name: str, known: Sequence[str] | dict[str, Any]) -> str:
    if name not in known:
        raise _refuse_model(unknown_name(kind, name[:80], list(known)))
    return name


def _refuse_model(why: str) -> RequestRefused:
    return _refuse(404, why, "model_not_found")


def _refuse(status: int, why: str, code: str | None = None, trace: str = "") -> RequestRefused:
    return RequestRefused(Problem(status, why, code=code), trace)


def _claim_key(key: str) -> str:
    return f"client search {key}"
