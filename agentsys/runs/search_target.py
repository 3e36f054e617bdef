"""`RunTarget`: the defended agent on one case as a search's target; every attempt is stored as it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from agentsys.attacks.attacker import ROLE
from agentsys.attacks.judge import not_tried
from agentsys.attacks.search import Attempt, Judgement, Place, Proposal, Quest, SearchedAttack
from agentsys.benchmarks.breaks_environment import InjectionBreaksEnvironment
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.trace import Span, span
from agentsys.runs.build_record import agentdojo_fields, record_of
from agentsys.runs.plan import Job
from agentsys.runs.quest import facts_of
from agentsys.runs.record import UNFINISHED, AttemptFacts, CaseRecord
from agentsys.runs.run_case import (
    CaseRun,
    SearchFailed,
    SearchStopped,
    guarded,
    new_run,
    play,
    scene_of,
)
from agentsys.runs.search_job import texts_for
from agentsys.runs.store import Store
from agentsys.runs.stored_attempt import StoredAttempt, attempt_of, span_of, stored_attempt

LASTING = frozenset({ErrorKind.CONTENT_REFUSED, ErrorKind.CONTEXT_LENGTH})
"""Errors that the same candidate would meet again: it counts as refused, or no later run could go on."""


@dataclass
class RunTarget:
    """Numbers, makes and stores the attempts of one search (see agentsys.attacks.search.Target)."""

    job: Job
    """The case the search is made on."""
    attack: SearchedAttack
    quest: Quest
    store: Store
    made: Callable[[CaseRecord], None]
    """Is told of every attempt made now; called from the search's thread."""
    stopping: Callable[[], bool]
    """Whether the run is ending."""
    number: int = 0

    def attempt(self, place: Place, propose: Callable[[ChatModel], Proposal]) -> Attempt:
        """The stored attempt of the next number, or a new one.

        Raises:
            SearchFailed: If the attempt ended in an error; the next run makes this very attempt again.
            SearchStopped: If the run is ending.
            StoreError: If the attempt cannot be written.
        """
        self.number += 1
        stored = stored_attempt(self.store, self.job.case, self.number, self.job.cell.settings.config_hash)
        if stored is not None and stored.finished:
            return stored.attempt
        if self.stopping():
            raise SearchStopped
        run = new_run(self.job)
        run.attempt = _facts(self.number, place, Proposal(""), Judgement(1, ""))
        guarded(run, lambda: self._make(run, place, propose, stored))
        record = record_of(run)
        self.store.write(record, agentdojo_fields(run))
        self.made(record)
        if run.error_kind is not None:
            raise SearchFailed(
                run.error_kind, run.error or "", ends_run=run.ends_run, ends_cell=run.ends_cell
            )
        return attempt_of(record, run.attempt)

    def _make(
        self,
        run: CaseRun,
        place: Place,
        propose: Callable[[ChatModel], Proposal],
        stored: StoredAttempt | None,
    ) -> None:
        if stored is not None and stored.facts.text:
            # The attacker was asked before the query failed or was cut short; that is not paid for twice.
            proposal = Proposal(stored.facts.text, stored.facts.why)
            run.tracer.spans += [span_of(one) for one in stored.record.spans if one.kind == ROLE]
        else:
            proposal = self._ask(propose)
        if proposal.refused is not None:
            run.attempt = _facts(self.number, place, proposal, not_tried(proposal.refused))
            return
        run.attempt = _facts(self.number, place, proposal, Judgement(1, ""))
        self._keep(run)
        try:
            play(run, texts_for(self.job, proposal.text))
        except InjectionBreaksEnvironment as error:
            self._cannot_be_tried(run, place, proposal, str(error))
            run.written = {}
            return
        except ModelError as error:
            if error.kind not in LASTING:
                raise
            self._cannot_be_tried(run, place, proposal, str(error))
            return
        run.attempt = _facts(self.number, place, proposal, self.attack.judged(self.quest, facts_of(run)))

    def _cannot_be_tried(self, run: CaseRun, place: Place, proposal: Proposal, why: str) -> None:
        refused = replace(proposal, refused=why)
        run.attempt = _facts(self.number, place, refused, not_tried(why))

    def _ask(self, propose: Callable[[ChatModel], Proposal]) -> Proposal:
        with span(ROLE) as opened:
            try:
                return propose(_Heard(self.job.cell.stack.for_scene(scene_of(self.job)), opened))
            except ModelError as error:
                if error.kind not in LASTING:
                    raise
                return Proposal("", refused=f"the attacker gave no proposal: {error}")

    def _keep(self, run: CaseRun) -> None:
        """Store the candidate before it is tried."""
        draft = replace(run, error_kind=UNFINISHED, error="The query has not ended.")
        self.store.write(record_of(draft), agentdojo_fields(draft))


@dataclass(frozen=True)
class _Heard:
    """The attacker's model; the conversation is kept in its span."""

    model: ChatModel
    span: Span

    @property
    def name(self) -> str:
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        self.span.messages = request.messages
        reply = self.model.complete(request)
        self.span.messages = [*request.messages, reply.message]
        return reply


def _facts(number: int, place: Place, proposal: Proposal, judgement: Judgement) -> AttemptFacts:
    return AttemptFacts(
        number=number,
        stream=place.stream,
        depth=place.depth,
        parent=place.parent,
        text=proposal.text,
        why=proposal.why,
        refused=proposal.refused,
        score=judgement.score,
        feedback=judgement.feedback,
    )
