"""`SearchRunner`: the first case that needs a search for its text makes it; the others wait and hold no worker.

An attempt is made on all cases of its search at once, and later ones (`RunTarget`) ahead of their turn.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from agentsys.attacks.attack_search import (
    Attempt,
    AttemptPosition,
    Judgement,
    Plan,
    Proposal,
    Propose,
    SearchedAttack,
    SearchTask,
    select_attempts,
)
from agentsys.attacks.attacker_prompt import ATTACKER_ROLE, JUDGE_ROLE, ReplyFault
from agentsys.attacks.search_judge import combine_judgements, judge_refused
from agentsys.attacks.search_options import PER_CASE
from agentsys.benchmarks.environment_loader import InjectionBreaksEnvironment
from agentsys.models.chat import ChatModel, ErrorKind, ModelError
from agentsys.models.trace import Span, Tracer, span, use_tracer
from agentsys.records.schema import UNFINISHED, AttemptFacts, CaseRecord
from agentsys.runs.build_record import build_agentdojo_fields, build_case_end, build_record
from agentsys.runs.case_outcome import CaseEnd, CaseError, CaseOutcome, make_tracer
from agentsys.runs.cell import Job
from agentsys.runs.executors import CaseRunner, RunContext, Turn
from agentsys.runs.run_case import explain_error, make_case_scene, run_case
from agentsys.runs.search_plan import (
    AheadLimit,
    SearchFailed,
    SearchKey,
    SearchResult,
    SearchStopped,
    add_to_artefact,
    build_attempt_facts,
    build_final_record,
    build_search_facts,
    fill_vectors,
    find_search_cases,
    get_searched_attack,
    load_attempt,
    make_artefact_entries,
    make_search_key,
    to_attempt,
    to_proposal,
    to_span,
)
from agentsys.runs.search_quest import ProposalRecorder, build_quest, collect_query_facts
from agentsys.runs.store import StoreError

LASTING_ERRORS = frozenset({ErrorKind.CONTENT_REFUSED, ErrorKind.CONTEXT_LENGTH})
"""Errors that the same candidate would cause again. It counts as refused, so that a later run can go on."""
_LOOK_EVERY_S = 0.2
"""Seconds between two looks for idle workers, and for the end of another process's search."""
_FURTHEST_AHEAD = 32
"""Most attempts between the current one and one that is made ahead."""


class SearchRunner:
    """Runs cases whose text a search finds, and others as they are; each search is made once. Thread-safe.

    Args:
        context: The run; attempts and artefacts of earlier runs in its store are used.
        plain: Runs the cases that need no search.
    """

    def __init__(self, context: RunContext, plain: CaseRunner) -> None:
        self._plain, self._context = plain, context
        self._limit, self._lock = AheadLimit(), threading.Lock()
        self._searches: dict[SearchKey, Future[SearchResult]] = {}
        self._next_looks: dict[SearchKey, float] = {}
        """Search that another process makes -> when to look again whether it is done (`time.monotonic`)."""

    @property
    def summary(self) -> str:
        """The queries that were made ahead of their turn and thrown away; `""` if there are none."""
        return self._limit.summary

    def is_ready(self, job: Job) -> bool:
        """False while the search that a case needs is being made, by another case here or by another process."""
        if not job.needs_search:
            return True
        key = make_search_key(job)
        search = self._searches.get(key)
        # No search here: nobody has begun it, or another process has, and `_next_looks` says when to look again.
        return self._next_looks.get(key, 0.0) <= time.monotonic() if search is None else search.done()

    def run(self, job: Job) -> CaseEnd | None:
        """Run a case with the text that its search finds, which is made now if no other case has begun it.

        An error of a search is that of every case that needs it; the next run continues from there.
        """
        if not job.needs_search:
            return self._plain.run(job)
        outcome = CaseOutcome(job=job, tracer=make_tracer(job), started=time.time(), duration_s=0.0)
        facts = None
        try:
            fill_vectors(job, "")  # A user task without a vector fails here, before any search.
            result = self._get_result(job)
            if result is None:
                return None
            facts = result.facts
            if facts.mode == PER_CASE and result.attempt is not None:
                # The chosen attempt was this very case with this text, so its record is used.
                stored = load_attempt(self._context.store, job, result.attempt)
                if stored is not None:
                    return CaseEnd(build_final_record(stored, facts), stored.fields)
            if result.text is None:
                raise SearchFailed(CaseError(str(facts.fault), result.none))
            # A case that the search was made on is run once more with new replies: its earlier result, which made
            # the search choose this text, is biased.
            texts, rerun_index = fill_vectors(job, result.text), int(facts.was_made_on(job.case))
            with self._context.workers.hold():
                outcome = run_case(job, texts, rerun_index, outcome.tracer)
        except SearchStopped:
            return None
        except SearchFailed as failed:
            outcome = outcome.fail(failed.error)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - an errored case must not lose the others
            outcome = outcome.fail(explain_error(error))
        return build_case_end(outcome, facts)

    def _get_result(self, job: Job) -> SearchResult | None:
        """Return the result of a case's search, or raise its error; None while another case or process makes it."""
        key, claims = make_search_key(job), self._context.claims
        name = f"search {'/'.join(map(str, key))}"
        with self._lock:
            begun = self._searches.get(key)
            if begun is None and not claims.take(name):
                self._next_looks[key] = time.monotonic() + _LOOK_EVERY_S
                return None
            search = self._searches.setdefault(key, Future())
        if begun is not None:
            return begun.result() if begun.done() else None
        try:
            search.set_result(self._search(job))
        except BaseException as error:  # noqa: BLE001 - every case that needs the search gets it
            search.set_exception(error)
        finally:
            claims.release(name)
        return search.result()

    def _search(self, job: Job) -> SearchResult:
        homes, attack, store = find_search_cases(job), get_searched_attack(job), self._context.store
        lead, quest = homes[0], build_quest(homes)
        target = RunTarget(homes, attack, quest, self._context, self._limit)
        try:
            attempts = attack.search(quest, target)
        finally:
            target.drop_ahead()
        kept = select_attempts(attack, attempts)
        facts = build_search_facts(homes, attempts)
        # Also stored with the last attempt, whose case may not be in this run.
        last = load_attempt(store, lead, facts.attempts)
        if last is not None and last.record.search != facts:
            store.write(last.record.model_copy(update={"search": facts}), last.fields)
        if not kept:
            why = attempts[0].proposal.refused if attempts else "it made no attempt"
            return SearchResult(None, None, facts, f"The search for a text tried none: {why}.")
        add_to_artefact(store, self._context.claims, lead, make_artefact_entries(lead, facts, kept))
        return SearchResult(kept[0].proposal.text, kept[0].number, facts)


@dataclass
class RunTarget:
    """Makes, numbers and stores the attempts of one search (a `SearchTarget`).

    An attempt made ahead of its turn is stored when the search comes to it, so that stored attempts are those of a
    search that makes one after the other.
    """

    homes: Sequence[Job]
    """The cases that each candidate is tried on; the attempts of the first one hold the whole search."""
    attack: SearchedAttack
    quest: SearchTask
    context: RunContext
    limit: AheadLimit
    _number: int = 0
    _made: dict[int, Attempt] = field(default_factory=dict)
    _ahead: dict[int, _Trial] = field(default_factory=dict)
    _dearest: tuple[float, float] = (0.0, 0.0)
    """US dollars and tokens of the dearest attempt."""

    def attempt(self, position: AttemptPosition, propose: Propose, plan: Plan | None = None) -> Attempt:
        """Return the next attempt: the stored one of that number, or a new one.

        Raises:
            SearchFailed: If the attempt ended in an error; the next run repeats it.
            SearchStopped: If the run is ending.
            StoreError: If the attempt cannot be written.
        """
        self._number += 1
        trial = self._ahead.pop(self._number, None) or _Trial(self, self._number, position, Turn())
        if trial.stored is not None and trial.stored.is_finished:
            attempt = self._made[self._number] = trial.stored.attempt
            return attempt
        if self.context.is_stopping():
            self.limit.drop(trial)
            raise SearchStopped
        trial.come_to(propose)
        while plan is not None and not trial.future.done():
            self._make_ahead(plan)
            under_way = [ahead.future for ahead in self._ahead.values() if not ahead.future.done()]
            wait([trial.future, *under_way], _LOOK_EVERY_S, FIRST_COMPLETED)
        try:
            attempt = self._made[self._number] = trial.future.result()
        except BaseException:
            self.limit.count(trial, success=False)
            raise
        self.limit.count(trial, success=attempt.success)
        self._dearest = max(self._dearest[0], trial.spent[0]), max(self._dearest[1], trial.spent[1])
        return attempt

    def drop_ahead(self) -> None:
        """Give up the attempts that the search will not come to."""
        for trial in self._ahead.values():
            trial.is_dropped = True
            self.limit.drop(trial)

    def _make_ahead(self, plan: Plan) -> None:
        """Begin later attempts, as far as the plan gives them, workers are idle and the budget has room."""
        ended = (trial for trial in self._ahead.values() if trial.has_ended_well)
        made = self._made | {trial.number: trial.future.result() for trial in ended}
        workers = self.context.workers
        for number in range(self._number + 1, min(self._number + _FURTHEST_AHEAD, self.attack.budget) + 1):
            if workers.idle <= 0 or (number in made and made[number].success):
                return
            if number in self._ahead or (step := plan(number, made)) is None:
                continue
            trial, distance = _Trial(self, number, step[0], Turn(ahead=True)), number - self._number
            if trial.stored is not None and trial.stored.is_finished:
                continue
            if not (self._has_room() and self.limit.admit(trial, distance, len(self.homes))):
                return
            self._ahead[number] = trial
            trial.start(step[1])

    def _has_room(self) -> bool:
        """True if the run's budget has room for the rest of the search, were every attempt as dear as the dearest."""
        meter, left = self.context.meter, self.attack.budget - self._number + 1
        usd, tokens = self._dearest
        return meter is None or not meter.is_limited or meter.has_room(left * usd, left * tokens)


class _Trial:
    """One attempt: the attacker is asked, then the agent runs with its text on every case of the search at once."""

    def __init__(self, target: RunTarget, number: int, position: AttemptPosition, turn: Turn) -> None:
        self.number = number
        self.stored = load_attempt(target.context.store, target.homes[0], number)
        self.queries = 0
        """Runs of the agent that were begun."""
        self.is_dropped = self._is_started = False
        self.future: Future[Attempt] = Future()
        self._target, self._turn = target, turn
        self._workers = target.context.workers
        self._build_facts = partial(build_attempt_facts, number, position)
        self._tracers: list[Tracer] = []
        self._records: dict[str, tuple[CaseRecord, dict[str, Any]]] = {}
        """Key of a case -> what is stored of it once the search comes to the attempt, the leading case's last."""
        self._lock = threading.Lock()

    def start(self, propose: Propose) -> None:
        """Begin the attempt in threads of its own."""
        place = self._workers.enqueue(self._turn)
        self.future, self._is_started = self._workers.start(lambda: self._run(place, propose)), True

    def come_to(self, propose: Propose) -> None:
        """Count the attempt from now on, begun now or before: it waits no longer than others, and is stored."""
        if not self._is_started:
            self.start(propose)
        with self._lock:
            self._workers.promote(self._turn)
            for record, fields in self._records.values():
                self._write(record, fields)

    @property
    def has_ended_well(self) -> bool:
        """True if its result is there."""
        return self.future.done() and self.future.exception() is None

    @property
    def spent(self) -> tuple[float, float]:
        """US dollars, as far as they are known, and tokens of all its requests so far."""
        calls = [call for tracer in self._tracers for call in tracer.all_calls]
        return sum(call.cost_usd or 0.0 for call in calls), sum(tracer.tokens for tracer in self._tracers)

    def _run(self, place: int, propose: Propose) -> Attempt:
        lead, began = self._target.homes[0], (time.time(), time.perf_counter())
        tracer = self._note(make_tracer(lead))

        def end(outcome: CaseOutcome, proposal: Proposal, judgement: Judgement, **facts: Any) -> Attempt:
            timed = replace(outcome, started=began[0], duration_s=time.perf_counter() - began[1])
            return self._store(timed, self._build_facts(proposal, judgement).model_copy(update=facts))

        outcome = CaseOutcome(job=lead, tracer=tracer, started=began[0], duration_s=0.0)
        try:
            with self._hold_worker(place), use_tracer(tracer):
                proposal = self._get_proposal(tracer, propose)
        except SearchStopped:
            raise
        except Exception as error:  # noqa: BLE001 - it becomes the attempt's
            return end(outcome.fail(explain_error(error)), Proposal(""), _UNJUDGED)
        if proposal.refused is not None:
            return end(outcome, proposal, judge_refused(proposal.refused))
        # Stored before the query, so that the proposal survives a crash.
        draft = replace(outcome, error=CaseError(UNFINISHED, "The query has not ended."))
        self._keep(build_record(draft, self._build_facts(proposal, _UNJUDGED)), build_agentdojo_fields(draft))
        others, query = self._query_homes(tracer, proposal)
        try:
            attempts = [other.result() for other in others]
        except SearchFailed as failed:
            return end(outcome.fail(failed.error), proposal, _UNJUDGED)
        if query.outcome.error is not None or query.proposal.refused is not None:
            return end(*query)
        judgement = combine_judgements([query.judgement, *(attempt.judgement for attempt in attempts)])
        done = int(query.outcome.security) + sum(attempt.success for attempt in attempts)
        return end(query.outcome, proposal, judgement, tried_on=1 + len(attempts), carried_out=done)

    def _note(self, tracer: Tracer) -> Tracer:
        self._tracers.append(tracer)
        return tracer

    def _query_homes(self, tracer: Tracer, proposal: Proposal) -> tuple[list[Future[Attempt]], _Query]:
        """Try a candidate on all cases; the leading one is the last to get a worker, as it holds the results."""
        lead, *homes = self._target.homes
        others = [self._start_on_other_case(job, proposal) for job in homes]
        place = self._workers.enqueue(self._turn)
        try:
            return others, self._query(lead, self._note(tracer.branch()), place, proposal)
        finally:
            wait(others)

    def _start_on_other_case(self, job: Job, proposal: Proposal) -> Future[Attempt]:
        """Try the candidate on another case and store the attempt; one that cannot be run there counts as failed."""
        stored = load_attempt(self._target.context.store, job, self.number)
        if stored is not None and stored.is_finished and stored.facts.text == proposal.text:
            ended = Future[Attempt]()
            ended.set_result(stored.attempt)
            return ended
        place = self._workers.enqueue(self._turn)

        def run() -> Attempt:
            query = self._query(job, self._note(make_tracer(job)), place, proposal)
            facts = self._build_facts(query.proposal, query.judgement)
            lead = {"lead": self._target.homes[0].case.user_task_id, "ahead": None}
            return self._store(query.outcome, facts.model_copy(update=lead))

        return self._workers.start(run)

    def _query(self, job: Job, tracer: Tracer, place: int, proposal: Proposal) -> _Query:
        """Run a case with a candidate and judge the run."""
        with self._hold_worker(place):
            self.queries += 1
            outcome = run_case(job, fill_vectors(job, proposal.text), tracer=tracer)
            cause = outcome.error and outcome.error.cause
            breaks = isinstance(cause, InjectionBreaksEnvironment)
            if breaks or (isinstance(cause, ModelError) and cause.kind in LASTING_ERRORS):
                written = {} if breaks else outcome.written
                refused = replace(proposal, refused=str(cause))
                return _Query(
                    replace(outcome, error=None, written=written), refused, judge_refused(str(cause))
                )
            if outcome.error is not None:
                return _Query(outcome, proposal, _UNJUDGED)
            try:
                with use_tracer(tracer), span(JUDGE_ROLE) as opened:
                    model, facts = self._make_model(job, opened), collect_query_facts(outcome)
                    judgement = self._target.attack.judge(self._target.quest, facts, proposal.text, model)
            except Exception as error:  # noqa: BLE001 - it becomes the attempt's
                return _Query(outcome.fail(explain_error(error)), proposal, _UNJUDGED)
            return _Query(outcome, proposal, judgement)

    def _get_proposal(self, tracer: Tracer, propose: Propose) -> Proposal:
        stored = self.stored
        if stored is not None and stored.facts.text and stored.facts.fault is None:
            # An earlier query failed or was cut short after the attacker's proposal, which is reused.
            tracer.spans += [to_span(old) for old in stored.record.spans if old.kind == ATTACKER_ROLE]
            return replace(to_proposal(stored.facts), refused=None)
        with span(ATTACKER_ROLE) as opened:
            try:
                return propose(self._make_model(self._target.homes[0], opened))
            except ModelError as error:
                if error.kind not in LASTING_ERRORS:
                    raise
                why = f"the attacker gave no proposal: {error}"
                return Proposal("", refused=why, fault=ReplyFault.REFUSED.value)

    @contextmanager
    def _hold_worker(self, place: int) -> Iterator[None]:
        with self._workers.hold(place):
            if self.is_dropped or (self._turn.ahead and self._target.context.is_stopping()):
                raise SearchStopped
            yield

    @staticmethod
    def _make_model(job: Job, opened: Span) -> ChatModel:
        return ProposalRecorder(job.cell.stack.for_scene(make_case_scene(job)), opened)

    def _store(self, outcome: CaseOutcome, facts: AttemptFacts) -> Attempt:
        record = build_record(outcome, facts)
        self._keep(record, build_agentdojo_fields(outcome))
        if outcome.error is not None:
            raise SearchFailed(outcome.error)
        return to_attempt(record, facts)

    def _keep(self, record: CaseRecord, fields: dict[str, Any]) -> None:
        with self._lock:
            if self._turn.ahead:
                self._records.pop(record.case.key, None)  # A draft; the new record goes to the end.
                self._records[record.case.key] = record, fields
            else:
                self._write(record, fields)

    def _write(self, record: CaseRecord, fields: dict[str, Any]) -> None:
        self._target.context.store.write(record, fields)
        if record.error_kind != UNFINISHED:
            self._target.context.report_attempt(record)


_UNJUDGED = Judgement(1, "")


class _Query(NamedTuple):
    """One run of the agent with a candidate."""

    outcome: CaseOutcome
    proposal: Proposal
    """The candidate, refused if it cannot be tried."""
    judgement: Judgement
