"""`RunTarget`: the defended agent as a search's target; each attempt is stored as it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from agentsys.attacks.attacker import JUDGE, ROLE
from agentsys.attacks.attacker.reply import ReplyFault
from agentsys.attacks.judge import not_tried, together
from agentsys.attacks.search import Attempt, Judgement, Place, Proposal, Quest, SearchedAttack
from agentsys.benchmarks.breaks_environment import InjectionBreaksEnvironment
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.trace import Span, span
from agentsys.records.schema import UNFINISHED, Ahead, AttemptFacts, CaseRecord
from agentsys.runs.build_record import agentdojo_fields, record_of
from agentsys.runs.plan import Job
from agentsys.runs.run_case import CaseRun, SearchFailed, SearchStopped, guarded, new_run, play, scene_of
from agentsys.runs.search.search_job import texts_for
from agentsys.runs.search.search_task import facts_of
from agentsys.runs.search.stored_attempt import (
    StoredAttempt,
    attempt_of,
    proposal_of,
    span_of,
    stored_attempt,
)
from agentsys.runs.store import Store

LASTING = frozenset({ErrorKind.CONTENT_REFUSED, ErrorKind.CONTEXT_LENGTH})
"""Errors that the same candidate would meet again: it counts as refused, or no later run could go on."""


@dataclass
class RunTarget:
    """Numbers, makes and stores the attempts of one search (see agentsys.attacks.search.Target)."""

    homes: Sequence[Job]
    """The cases each candidate is tried on; the first one's attempts hold the whole search."""
    attack: SearchedAttack
    quest: Quest
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

    def attempt(self, place: Place, propose: Callable[[ChatModel], Proposal]) -> Attempt:
        """The stored attempt of the next number, or a new one.

        Raises:
            SearchFailed: If the attempt ended in an error; the next run makes this very attempt again.
            SearchStopped: If the run is ending.
            StoreError: If the attempt cannot be written.
        """
        self.number += 1
        stored = self._stored(self.lead)
        if stored is not None and stored.finished:
            return stored.attempt
        if self.stopping():
            raise SearchStopped
        run = new_run(self.lead)
        run.attempt = _facts(self.number, place, Proposal(""), Judgement(1, ""))
        guarded(run, lambda: self._make(run, place, propose, stored))
        record = self._written(run)
        return attempt_of(record, run.attempt)

    def _stored(self, job: Job) -> StoredAttempt | None:
        return stored_attempt(self.store, job, self.number)

    def _written(self, run: CaseRun) -> CaseRecord:
        record = record_of(run)
        self.store.write(record, agentdojo_fields(run))
        self.made(record)
        if run.error_kind is not None:
            ends = {"ends_run": run.ends_run, "ends_cell": run.ends_cell}
            raise SearchFailed(run.error_kind, run.error or "", **ends)
        return record

    def _make(
        self,
        run: CaseRun,
        place: Place,
        propose: Callable[[ChatModel], Proposal],
        stored: StoredAttempt | None,
    ) -> None:
        if stored is not None and stored.facts.text and stored.facts.fault is None:
            # The attacker was asked before the query failed or was cut short; that is not paid for twice.
            proposal = replace(proposal_of(stored.facts), refused=None)
            run.tracer.spans += [span_of(one) for one in stored.record.spans if one.kind == ROLE]
        else:
            proposal = self._ask(propose)
        if proposal.refused is not None:
            run.attempt = _facts(self.number, place, proposal, not_tried(proposal.refused))
            return
        run.attempt = _facts(self.number, place, proposal, Judgement(1, ""))
        self._keep(run)
        others = [self._elsewhere(job, place, proposal) for job in self.homes[1:]]
        why = self._tried(run, proposal)
        if why is not None:
            run.attempt = _facts(self.number, place, replace(proposal, refused=why), not_tried(why))
            return
        judgement = together([self._judged(run, proposal), *(found.judgement for found in others)])
        done = int(run.security) + sum(found.success for found in others)
        facts = _facts(self.number, place, proposal, judgement)
        run.attempt = facts.model_copy(update={"tried_on": 1 + len(others), "carried_out": done})

    def _tried(self, run: CaseRun, proposal: Proposal) -> str | None:
        """Run a case with a candidate; why it cannot be tried, where it cannot."""
        try:
            play(run, texts_for(run.job, proposal.text))
        except InjectionBreaksEnvironment as error:
            run.written = {}
            return str(error)
        except ModelError as error:
            if error.kind not in LASTING:
                raise
            return str(error)
        return None

    def _elsewhere(self, job: Job, place: Place, proposal: Proposal) -> Attempt:
        """The same candidate on another case, stored there; what can never be run there did not succeed."""
        stored = self._stored(job)
        if stored is not None and stored.finished and stored.facts.text == proposal.text:
            return stored.attempt
        run = new_run(job)
        lead = {"lead": self.lead.case.user_task_id, "ahead": None}
        run.attempt = _facts(self.number, place, proposal, Judgement(1, "")).model_copy(update=lead)

        def make() -> None:
            why = self._tried(run, proposal)
            judgement = not_tried(why) if why is not None else self._judged(run, proposal)
            run.attempt = _facts(self.number, place, proposal, judgement).model_copy(update=lead)

        guarded(run, make)
        return attempt_of(self._written(run), run.attempt)

    def _judged(self, run: CaseRun, proposal: Proposal) -> Judgement:
        with span(JUDGE) as opened:
            model = _Heard(self._model(run.job), opened)
            return self.attack.judged(self.quest, facts_of(run), proposal.text, model)

    def _ask(self, propose: Callable[[ChatModel], Proposal]) -> Proposal:
        with span(ROLE) as opened:
            try:
                return propose(_Heard(self._model(self.lead), opened))
            except ModelError as error:
                if error.kind not in LASTING:
                    raise
                why = f"the attacker gave no proposal: {error}"
                return Proposal("", refused=why, fault=ReplyFault.REFUSED.value)

    @staticmethod
    def _model(job: Job) -> ChatModel:
        return job.cell.stack.for_scene(scene_of(job))

    def _keep(self, run: CaseRun) -> None:
        """Store the candidate before it is tried."""
        draft = replace(run, error_kind=UNFINISHED, error="The query has not ended.")
        self.store.write(record_of(draft), agentdojo_fields(draft))


@dataclass(frozen=True)
class _Heard:
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


def _facts(number: int, place: Place, proposal: Proposal, judgement: Judgement) -> AttemptFacts:
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
        ahead=None if ahead is None else Ahead.model_validate(ahead, from_attributes=True),
        score=judgement.score,
        feedback=judgement.feedback,
    )
