"""`RunTarget`: the defended agent as a search's target; each attempt is stored as it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agentsys.attacks.attacker import JUDGE_ROLE, ATTACKER_ROLE
from agentsys.attacks.attacker.reply import ReplyFault
from agentsys.attacks.judge import judge_refused, combine_judgements
from agentsys.attacks.search import Attempt, Judgement, AttemptPosition, Proposal, SearchTask, SearchedAttack
from agentsys.benchmarks.breaks_environment import InjectionBreaksEnvironment
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.trace import Span, span
from agentsys.records.schema import UNFINISHED, EarlyProposal, AttemptFacts, CaseRecord
from agentsys.runs.build_record import build_agentdojo_fields, build_record
from agentsys.runs.plan import Job
from agentsys.runs.run_case import CaseRun, SearchFailed, SearchStopped, run_guarded, new_case_run, play_case, case_scene
from agentsys.runs.search.search_job import fill_vectors
from agentsys.runs.search.search_task import collect_query_facts
from agentsys.runs.search.stored_attempt import (
    StoredAttempt,
    to_attempt,
    to_proposal,
    to_span,
    load_attempt,
)
from agentsys.runs.store import Store

LASTING_ERRORS = frozenset({ErrorKind.CONTENT_REFUSED, ErrorKind.CONTEXT_LENGTH})
"""Errors that the same candidate would meet again: it counts as refused, or no later run could go on."""


@dataclass
class RunTarget:
    """Numbers, makes and stores the attempts of one search (see agentsys.attacks.search.SearchTarget)."""

    homes: Sequence[Job]
    """The cases each candidate is tried on; the first one's attempts hold the whole search."""
    attack: SearchedAttack
    quest: SearchTask
    store: Store
    made: Callable[[CaseRecord], None]
    """Is told of every attempt made now; called from the search's thread."""
    stopping: Callable[[], bool]
    """Whether the run is ending."""
    number: int = 0

    @property
    def lead(self) -> Job:
        """The case whose attempts hold the whole search."""
        return self.homes[0]

    def attempt(self, place: AttemptPosition, propose: Callable[[ChatModel], Proposal]) -> Attempt:
        """The stored attempt of the next number, or a new one.

        Raises:
            SearchFailed: If the attempt ended in an error; the next run makes this very attempt again.
            SearchStopped: If the run is ending.
            StoreError: If the attempt cannot be written.
        """
        self.number += 1
        stored = self._load_stored(self.lead)
        if stored is not None and stored.is_finished:
            return stored.attempt
        if self.stopping():
            raise SearchStopped
        run = new_case_run(self.lead)
        run.attempt = _build_attempt_facts(self.number, place, Proposal(""), Judgement(1, ""))
        run_guarded(run, lambda: self._make_attempt(run, place, propose, stored))
        record = self._store_attempt(run)
        return to_attempt(record, run.attempt)

    def _load_stored(self, job: Job) -> StoredAttempt | None:
        return load_attempt(self.store, job, self.number)

    def _store_attempt(self, run: CaseRun) -> CaseRecord:
        record = build_record(run)
        self.store.write(record, build_agentdojo_fields(run))
        self.made(record)
        if run.error_kind is not None:
            ends = {"ends_run": run.ends_run, "ends_cell": run.ends_cell}
            raise SearchFailed(run.error_kind, run.error or "", **ends)
        return record

    def _make_attempt(
        self,
        run: CaseRun,
        place: AttemptPosition,
        propose: Callable[[ChatModel], Proposal],
        stored: StoredAttempt | None,
    ) -> None:
        if stored is not None and stored.facts.text and stored.facts.fault is None:
            # The attacker was asked before the query failed or was cut short; that is not paid for twice.
            proposal = replace(to_proposal(stored.facts), refused=None)
            run.tracer.spans += [to_span(one) for one in stored.record.spans if one.kind == ATTACKER_ROLE]
        else:
            proposal = self._ask_attacker(propose)
        if proposal.refused is not None:
            run.attempt = _build_attempt_facts(self.number, place, proposal, judge_refused(proposal.refused))
            return
        run.attempt = _build_attempt_facts(self.number, place, proposal, Judgement(1, ""))
        self._store_draft(run)
        others = [self._try_on_other_case(job, place, proposal) for job in self.homes[1:]]
        why = self._try_candidate(run, proposal)
        if why is not None:
            run.attempt = _build_attempt_facts(self.number, place, replace(proposal, refused=why), judge_refused(why))
            return
        judgement = combine_judgements([self._judge_query(run, proposal), *(found.judgement for found in others)])
        done = int(run.security) + sum(found.success for found in others)
        facts = _build_attempt_facts(self.number, place, proposal, judgement)
        run.attempt = facts.model_copy(update={"tried_on": 1 + len(others), "carried_out": done})

    def _try_candidate(self, run: CaseRun, proposal: Proposal) -> str | None:
        """Run a case with a candidate; why it cannot be tried, where it cannot."""
        try:
            play_case(run, fill_vectors(run.job, proposal.text))
        except InjectionBreaksEnvironment as error:
            run.written = {}
            return str(error)
        except ModelError as error:
            if error.kind not in LASTING_ERRORS:
                raise
            return str(error)
        return None

    def _try_on_other_case(self, job: Job, place: AttemptPosition, proposal: Proposal) -> Attempt:
        """The same candidate on another case, stored there; what can never be run there did not succeed."""
        stored = self._load_stored(job)
        if stored is not None and stored.is_finished and stored.facts.text == proposal.text:
            return stored.attempt
        run = new_case_run(job)
        lead = {"lead": self.lead.case.user_task_id, "ahead": None}
        run.attempt = _build_attempt_facts(self.number, place, proposal, Judgement(1, "")).model_copy(update=lead)

        def make() -> None:
            why = self._try_candidate(run, proposal)
            judgement = judge_refused(why) if why is not None else self._judge_query(run, proposal)
            run.attempt = _build_attempt_facts(self.number, place, proposal, judgement).model_copy(update=lead)

        run_guarded(run, make)
        return to_attempt(self._store_attempt(run), run.attempt)

    def _judge_query(self, run: CaseRun, proposal: Proposal) -> Judgement:
        with span(JUDGE_ROLE) as opened:
            model = _RecordingModel(self._case_model(run.job), opened)
            return self.attack.judge(self.quest, collect_query_facts(run), proposal.text, model)

    def _ask_attacker(self, propose: Callable[[ChatModel], Proposal]) -> Proposal:
        with span(ATTACKER_ROLE) as opened:
            try:
                return propose(_RecordingModel(self._case_model(self.lead), opened))
            except ModelError as error:
                if error.kind not in LASTING_ERRORS:
                    raise
                why = f"the attacker gave no proposal: {error}"
                return Proposal("", refused=why, fault=ReplyFault.REFUSED.value)

    @staticmethod
    def _case_model(job: Job) -> ChatModel:
        return job.cell.stack.for_scene(case_scene(job))

    def _store_draft(self, run: CaseRun) -> None:
        """Store the candidate before it is tried."""
        draft = replace(run, error_kind=UNFINISHED, error="The query has not ended.")
        self.store.write(build_record(draft), build_agentdojo_fields(draft))


@dataclass(frozen=True)
class _RecordingModel:
    """The attacker's model; what it is asked to propose is kept in the span."""

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


def _build_attempt_facts(number: int, place: AttemptPosition, proposal: Proposal, judgement: Judgement) -> AttemptFacts:
    ahead = proposal.ahead
    return AttemptFacts(
        number=number,
        **vars(place),
        text=proposal.text,
        proposed=proposal.proposed,
        why=proposal.why,
        strategy=proposal.strategy,
        refused=proposal.refused,
        fault=proposal.fault,
        ahead=None if ahead is None else EarlyProposal.model_validate(ahead, from_attributes=True),
        score=judgement.score,
        feedback=judgement.feedback,
    )
