"""`RunTarget`: the attempts of one search, each made on all of its cases at once, later ones ahead of their turn."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
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
)
from agentsys.attacks.attacker_prompt import ATTACKER_ROLE, JUDGE_ROLE
from agentsys.attacks.attacker_reply import ReplyFault
from agentsys.attacks.search_judge import combine_judgements, judge_refused
from agentsys.benchmarks.environment_loader import InjectionBreaksEnvironment
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ErrorKind, ModelError
from agentsys.models.trace import Span, Tracer, span, use_tracer
from agentsys.records.schema import UNFINISHED, AttemptFacts, CaseRecord, EarlyProposal
from agentsys.runs.build_record import (
    CaseError,
    CaseOutcome,
    build_agentdojo_fields,
    build_record,
    make_tracer,
)
from agentsys.runs.case_runner import RunContext, Turn
from agentsys.runs.cell import Job
from agentsys.runs.run_case import explain_error, make_case_scene, play_case
from agentsys.runs.search_plan import (
    StoredAttempt,
    fill_vectors,
    load_attempt,
    to_attempt,
    to_proposal,
    to_span,
)
from agentsys.runs.search_quest import collect_query_facts

LASTING_ERRORS = frozenset({ErrorKind.CONTENT_REFUSED, ErrorKind.CONTEXT_LENGTH})
"""Errors that the same candidate would cause again. It counts as refused, so that a later run can go on."""
MOST_THROWN_AWAY = 0.15
"""Expected share of queries made ahead of their turn for nothing, above which none is made ahead."""
_LOOK_EVERY_S = 1.0
"""Seconds between two looks for idle workers."""
_FURTHEST_AHEAD = 32
"""Most attempts between the current one and one that is made ahead."""


class SearchFailed(Exception):
    """An attempt of a search ended in an error, and so do the cases that need the search."""

    def __init__(self, error: CaseError) -> None:
        super().__init__(error.message)
        self.error = replace(error, traceback=None)  # The attempt's record has it.


class SearchStopped(Exception):
    """The run is ending; the next run continues the search from here."""


class AheadLimit:
    """Counts a run's queries, and bounds those that are expected to be made for nothing. Thread-safe."""

    def __init__(self) -> None:
        self.counted = 0
        """Queries of attempts that their search came to."""
        self._attempts = self._successes = 0
        self._dropped: list[_Trial] = []
        self._ahead: dict[_Trial, float] = {}
        """Attempt made ahead of its turn -> its queries that are expected to be made for nothing."""
        self._lock = threading.RLock()

    @property
    def thrown_away(self) -> int:
        """Queries of attempts that no search came to."""
        return sum(trial.queries for trial in self._dropped)

    def admit(self, trial: _Trial, distance: int, queries: int) -> bool:
        """Return True if an attempt may be made `distance` attempts before its turn."""
        with self._lock:
            # Laplace's rule, as if one attempt in four had succeeded before the first.
            chance = (self._successes + 1) / (self._attempts + 4)
            risk = queries * (1 - (1 - chance) ** distance)
            expected = self.thrown_away + sum(self._ahead.values()) + risk
            if expected > MOST_THROWN_AWAY * (self.counted + expected):
                return False
            self._ahead[trial] = risk
            return True

    def count(self, trial: _Trial, attempt: Attempt) -> None:
        """Count an attempt that its search came to."""
        with self._lock:
            self._ahead.pop(trial, None)
            self.counted += trial.queries
            self._attempts += 1
            self._successes += attempt.success

    def drop(self, trial: _Trial) -> None:
        """Count an attempt that its search did not come to."""
        with self._lock:
            self._ahead.pop(trial, None)
            self._dropped.append(trial)


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
        stored = load_attempt(self.context.store, self.homes[0], self._number)
        if stored is not None and stored.is_finished:
            self._made[self._number] = stored.attempt
            return stored.attempt
        if self.context.is_stopping():
            raise SearchStopped
        trial = self._ahead.pop(self._number, None)
        if trial is None:
            trial = _Trial(self, self._number, position, Turn(), stored)
            trial.start(propose)
        trial.come_to()
        while plan is not None and not trial.future.done():
            self._make_ahead(plan)
            under_way = [ahead.future for ahead in self._ahead.values() if not ahead.future.done()]
            wait([trial.future, *under_way], _LOOK_EVERY_S, FIRST_COMPLETED)
        try:
            attempt = self._made[self._number] = trial.future.result()
        except BaseException:
            self.limit.drop(trial)
            raise
        self.limit.count(trial, attempt)
        self._dearest = max(self._dearest[0], trial.usd), max(self._dearest[1], trial.tokens)
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
            stored = load_attempt(self.context.store, self.homes[0], number)
            if stored is not None and stored.is_finished:
                continue
            trial = _Trial(self, number, step[0], Turn(ahead=True), stored)
            distance = number - self._number
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

    def __init__(
        self,
        target: RunTarget,
        number: int,
        position: AttemptPosition,
        turn: Turn,
        stored: StoredAttempt | None,
    ) -> None:
        self.number = number
        self.queries = 0
        """Runs of the agent that were begun."""
        self.is_dropped = False
        """True: nothing further of it is begun."""
        self.future: Future[Attempt] = Future()
        self._target, self._position, self._turn, self._stored = target, position, turn, stored
        self._workers = target.context.workers
        self._tracers: list[Tracer] = []
        self._records: dict[str, tuple[CaseRecord, dict[str, Any]]] = {}
        """Key of a case -> what is stored of it once the search comes to the attempt, the leading case's last."""
        self._lock = threading.Lock()

    def start(self, propose: Propose) -> None:
        """Begin the attempt in threads of its own."""
        place = self._workers.enqueue(self._turn)
        self.future = self._workers.start(lambda: self._run(place, propose))

    def come_to(self) -> None:
        """Count the attempt from now on: it waits no longer than others, and is stored."""
        with self._lock:
            self._workers.promote(self._turn)
            for record, fields in self._records.values():
                self._write(record, fields)

    @property
    def has_ended_well(self) -> bool:
        """True if its result is there."""
        return self.future.done() and self.future.exception() is None

    @property
    def tokens(self) -> float:
        """Tokens of all its requests so far."""
        return sum(tracer.tokens for tracer in self._tracers)

    @property
    def usd(self) -> float:
        """US dollars of all its requests so far, as far as they have a price."""
        return sum(call.cost_usd or 0.0 for tracer in self._tracers for call in tracer.all_calls)

    def _run(self, place: int, propose: Propose) -> Attempt:
        lead, began = self._target.homes[0], (time.time(), time.perf_counter())
        tracer = self._note(make_tracer(lead))

        def end(outcome: CaseOutcome, proposal: Proposal, judgement: Judgement, **facts: Any) -> Attempt:
            timed = replace(outcome, started=began[0], duration_s=time.perf_counter() - began[1])
            return self._store(timed, self._build_facts(proposal, judgement, **facts))

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
            outcome = play_case(job, tracer, fill_vectors(job, proposal.text))
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
        stored = self._stored
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
        return _RecordingModel(job.cell.stack.for_scene(make_case_scene(job)), opened)

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

    def _build_facts(self, proposal: Proposal, judgement: Judgement, **further: Any) -> AttemptFacts:
        ahead = proposal.ahead
        return AttemptFacts(
            number=self.number,
            **vars(self._position),
            text=proposal.text,
            proposed=proposal.proposed,
            why=proposal.why,
            strategy=proposal.strategy,
            refused=proposal.refused,
            fault=proposal.fault,
            ahead=None if ahead is None else EarlyProposal.model_validate(ahead, from_attributes=True),
            score=judgement.score,
            feedback=judgement.feedback,
            **further,
        )


_UNJUDGED = Judgement(1, "")


class _Query(NamedTuple):
    """One run of the agent with a candidate."""

    outcome: CaseOutcome
    proposal: Proposal
    """The candidate, refused if it cannot be tried."""
    judgement: Judgement


@dataclass(frozen=True)
class _RecordingModel:
    """Wraps the attacker's model and keeps requests of the span's own role, with their replies, in the span."""

    model: ChatModel
    span: Span

    @property
    def name(self) -> str:
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        kept = request.role == self.span.kind
        if kept:
            self.span.messages = request.messages
        reply = self.model.complete(request)
        if kept:
            self.span.messages = [*request.messages, reply.message]
        return reply
