"""The defended agent as a search sees it: its task (`Quest`), target, and what each query showed."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentsys.abilities import DescribesItself, NamesPrompts
from agentsys.attacks.attack_search import (
    Attempt,
    AttemptPosition,
    Judgement,
    Proposal,
    QueryFacts,
    SearchedAttack,
    SearchTask,
    ToolCall,
)
from agentsys.attacks.attacker_knowledge import CaseKnowledge, describe_situation, list_signatures
from agentsys.attacks.attacker_prompt import ATTACKER_ROLE, JUDGE_ROLE
from agentsys.attacks.attacker_reply import ReplyFault
from agentsys.attacks.search_judge import combine_judgements, judge_refused
from agentsys.benchmarks.environment_loader import InjectionBreaksEnvironment, mend_text
from agentsys.contracts import InjectionTask, Suite, UserTask
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ErrorKind, ModelError, text_of
from agentsys.models.trace import Span, Tracer, span
from agentsys.records.schema import UNFINISHED, AttemptFacts, CaseRecord, EarlyProposal
from agentsys.runs.build_record import CaseRun, build_agentdojo_fields, build_record, make_case_run
from agentsys.runs.plan import Job
from agentsys.runs.run_case import SearchFailed, SearchStopped, make_case_scene, play_case, run_guarded
from agentsys.runs.search_plan import (
    StoredAttempt,
    fill_vectors,
    load_attempt,
    to_attempt,
    to_proposal,
    to_span,
)
from agentsys.runs.store import Store


def build_quest(jobs: Sequence[Job]) -> SearchTask:
    """Describe what the search made on these cases (in mode `transfer` one per user task) is to bring about.

    Raises:
        NotInjectable: If no vector of a user task can carry an injection.
    """
    case, cell = jobs[0].case, jobs[0].cell
    suite = cell.benchmark.suite(case.suite)
    injection_task = suite.injection_tasks[str(case.injection_task_id)]
    first = cell.attack.injections(suite, suite.user_tasks[case.user_task_id], injection_task, cell.victim)
    calls = find_ground_truth_calls(suite, injection_task)
    return SearchTask(
        goal=injection_task.GOAL,
        goal_calls=calls,
        start_text=next(iter(first.values())),
        defense=describe_defense(cell.defense),
        id=make_search_id(jobs[0]),
        tool=str(getattr(injection_task, "attack_tool", None) or ""),
        make_injectable=None if cell.injection_mode == "exact" else mend_text,
        case_knowledge=_build_surroundings(suite, jobs, calls),
    )


def make_search_id(lead: Job) -> str:
    """Eight digits that no other search has; they say nothing of it."""
    case = lead.case
    key = "\n".join([case.pipeline, case.attack, case.key, str(lead.cell.settings.seed)])
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:8]


def _build_surroundings(suite: Suite, jobs: Sequence[Job], calls: Sequence[ToolCall]) -> CaseKnowledge:
    victim, wanted = jobs[0].cell.victim, {call.function for call in calls}
    return CaseKnowledge(
        user_name=victim.user_name,
        model_name=victim.model_name,
        situations=tuple(describe_situation(suite, suite.user_tasks[job.case.user_task_id]) for job in jobs),
        tools=list_signatures(suite.tools),
        goal_tools=list_signatures([tool for tool in suite.tools if tool.name in wanted]),
    )


def find_ground_truth_calls(suite: Suite, task: InjectionTask | UserTask) -> tuple[ToolCall, ...]:
    """The calls of a task's ground truth in the clean environment; empty where none can be worked out."""
    try:
        calls = task.ground_truth(suite.load_and_inject_default_environment({}))
    except Exception:  # noqa: BLE001 - a suite from outside may raise anything; the judge does without
        return ()
    return tuple(ToolCall(call.function, dict(call.args)) for call in calls)


def describe_defense(defense: object) -> str:
    """Quote what a defense says of itself; else its class's first docstring line and its prompts' names."""
    if isinstance(defense, DescribesItself):
        return defense.description()
    doc = inspect.getdoc(type(defense)) or ""
    first = doc.strip().partition("\n")[0]
    names = ", ".join(defense.prompts()) if isinstance(defense, NamesPrompts) else ""
    return f"{first} It speaks to models through: {names}." if names else first


def collect_query_facts(run: CaseRun) -> QueryFacts:
    """Collect what a finished query showed."""
    seen = run.watch.summarize()
    suite = run.job.cell.benchmark.suite(run.job.case.suite)
    own = find_ground_truth_calls(suite, suite.user_tasks[run.job.case.user_task_id])
    said = [text_of(message) for message in run.messages if message["role"] == "assistant"]
    return QueryFacts(
        success=run.security,
        returned=seen.exposed_raw,
        shown=seen.exposed_shown,
        calls=find_calls_after_exposure(run.tracer, seen.raw_round),
        answer=said[-1] if said else "",
        blocked=tuple(list_blocked(run.tracer.spans)),
        own_calls=own,
    )


def find_calls_after_exposure(tracer: Tracer, exposing: int | None) -> tuple[ToolCall, ...]:
    """The executed calls that were decided on after one had returned the candidate.

    Args:
        tracer: The case's trace.
        exposing: Which executed call returned it first, from 1; None: none did. Those that were part of the
            same reply as this one were decided on before.
    """
    if exposing is None:
        return ()
    reply = tracer.decision_points[exposing - 1]
    later = zip(tracer.executed_calls[exposing:], tracer.decision_points[exposing:], strict=True)
    return tuple(ToolCall(name, args) for (name, args, _), of in later if of != reply)


def list_blocked(spans: Sequence[Span]) -> Iterator[str]:
    """List what defenses denied, cut or withheld, one line each, read from the decisions of their spans."""
    for one in spans:
        if done := _describe_block(one.decision):
            where = f" ({one.name})" if one.name else ""
            yield f"{one.kind}{where} {done}"


def _describe_block(decision: Mapping[str, Any]) -> str | None:
    if decision.get("allow") is False:
        return "denied a call"
    if decision.get("spans_cut"):
        return f"cut {decision['spans_cut']} passages"
    if decision.get("withheld") or decision.get("injected"):
        return "withheld an output"
    if decision.get("flagged"):
        return "took an output for an injection"
    if decision.get("failure"):
        return f"ended with {decision['failure']}"
    return "ended the conversation" if decision.get("aborted") else None


LASTING_ERRORS = frozenset({ErrorKind.CONTENT_REFUSED, ErrorKind.CONTEXT_LENGTH})
"""Errors that the same candidate would meet again: it counts as refused, or no later run could go on."""


@dataclass
class RunTarget:
    """Numbers, makes and stores the attempts of one search (a `SearchTarget` of attacks)."""

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
        run = make_case_run(self.lead)
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
        draft = replace(run, error_kind=UNFINISHED, error="The query has not ended.")  # before it is tried
        self.store.write(build_record(draft), build_agentdojo_fields(draft))
        others = [self._try_on_other_case(job, place, proposal) for job in self.homes[1:]]
        why = self._try_candidate(run, proposal)
        if why is not None:
            run.attempt = _build_attempt_facts(
                self.number, place, replace(proposal, refused=why), judge_refused(why)
            )
            return
        judgement = combine_judgements(
            [self._judge_query(run, proposal), *(found.judgement for found in others)]
        )
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
        run = make_case_run(job)
        lead = {"lead": self.lead.case.user_task_id, "ahead": None}
        facts = _build_attempt_facts(self.number, place, proposal, Judgement(1, ""))
        run.attempt = facts.model_copy(update=lead)

        def make() -> None:
            why = self._try_candidate(run, proposal)
            judgement = judge_refused(why) if why is not None else self._judge_query(run, proposal)
            facts = _build_attempt_facts(self.number, place, proposal, judgement)
            run.attempt = facts.model_copy(update=lead)

        run_guarded(run, make)
        return to_attempt(self._store_attempt(run), run.attempt)

    def _judge_query(self, run: CaseRun, proposal: Proposal) -> Judgement:
        with span(JUDGE_ROLE) as opened:
            model = _RecordingModel(self._make_case_model(run.job), opened)
            return self.attack.judge(self.quest, collect_query_facts(run), proposal.text, model)

    def _ask_attacker(self, propose: Callable[[ChatModel], Proposal]) -> Proposal:
        with span(ATTACKER_ROLE) as opened:
            try:
                return propose(_RecordingModel(self._make_case_model(self.lead), opened))
            except ModelError as error:
                if error.kind not in LASTING_ERRORS:
                    raise
                why = f"the attacker gave no proposal: {error}"
                return Proposal("", refused=why, fault=ReplyFault.REFUSED.value)

    @staticmethod
    def _make_case_model(job: Job) -> ChatModel:
        return job.cell.stack.for_scene(make_case_scene(job))


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


def _build_attempt_facts(
    number: int, place: AttemptPosition, proposal: Proposal, judgement: Judgement
) -> AttemptFacts:
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
