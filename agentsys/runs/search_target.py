"""The defended agent as the target of a search: the search's task, its attempts, and the facts of each query."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
from agentsys.contracts import Defense, InjectionTask, Suite, UserTask
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
    """Build the task of the search on these cases (in mode `transfer` one case per user task).

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
    """Return eight hexadecimal digits that identify a search without revealing anything about it."""
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
    """Compute the calls of a task's ground truth in the clean environment; empty if that fails."""
    try:
        calls = task.ground_truth(suite.load_and_inject_default_environment({}))
    except Exception:  # noqa: BLE001 - a foreign suite may raise anything; the judge can do without
        return ()
    return tuple(ToolCall(call.function, dict(call.args)) for call in calls)


def describe_defense(defense: Defense) -> str:
    """Return a defense's own description; else its class's first docstring line and its prompts' names."""
    if description := defense.description():
        return description
    docs = (inspect.getdoc(each) for each in type(defense).__mro__ if each not in Defense.__mro__)
    first = next(filter(None, docs), "").strip().partition("\n")[0]
    names = ", ".join(defense.prompts())
    return f"{first} It speaks to models through: {names}." if names else first


def collect_query_facts(run: CaseRun) -> QueryFacts:
    """Collect the facts of a finished query for the judge."""
    exposure = run.watch.summarize()
    suite = run.job.cell.benchmark.suite(run.job.case.suite)
    own = find_ground_truth_calls(suite, suite.user_tasks[run.job.case.user_task_id])
    answers = [text_of(message) for message in run.messages if message["role"] == "assistant"]
    return QueryFacts(
        success=run.security,
        returned=exposure.exposed_raw,
        shown=exposure.exposed_shown,
        calls=find_calls_after_exposure(run.tracer, exposure.raw_round),
        answer=answers[-1] if answers else "",
        blocked=tuple(list_blocked(run.tracer.spans)),
        own_calls=own,
    )


def find_calls_after_exposure(tracer: Tracer, exposing: int | None) -> tuple[ToolCall, ...]:
    """List the executed calls that the agent decided on after a tool had returned the candidate.

    Args:
        tracer: The case's trace.
        exposing: Number of the executed call that first returned it, from 1; None: no call did. Later calls of
            the same reply were decided on before it, and do not count.
    """
    if exposing is None:
        return ()
    reply = tracer.decision_points[exposing - 1]
    later = zip(tracer.executed_calls[exposing:], tracer.decision_points[exposing:], strict=True)
    return tuple(ToolCall(name, args) for (name, args, _), of in later if of != reply)


def list_blocked(spans: Sequence[Span]) -> Iterator[str]:
    """Yield one line for each thing that a defense denied, cut or withheld, from the decisions in its spans."""
    for span_ in spans:
        if done := _describe_block(span_.decision):
            where = f" ({span_.name})" if span_.name else ""
            yield f"{span_.kind}{where} {done}"


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
"""Errors that the same candidate would cause again. It counts as refused, so that a later run can go on."""


@dataclass
class RunTarget:
    """Makes, numbers and stores the attempts of one search (a `SearchTarget`)."""

    homes: Sequence[Job]
    """The cases that each candidate is tried on; the attempts of the first one hold the whole search."""
    attack: SearchedAttack
    quest: SearchTask
    store: Store
    made: Callable[[CaseRecord], None]
    """Called with the record of every new attempt, from the search's thread."""
    stopping: Callable[[], bool]
    """Returns True if the run is ending."""
    number: int = 0

    @property
    def lead(self) -> Job:
        """The case whose attempts hold the whole search."""
        return self.homes[0]

    def attempt(self, position: AttemptPosition, propose: Callable[[ChatModel], Proposal]) -> Attempt:
        """Return the next attempt: the stored one of that number, or a new one.

        Raises:
            SearchFailed: If the attempt ended in an error; the next run repeats it.
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
        run.attempt = _build_attempt_facts(self.number, position, Proposal(""), Judgement(1, ""))
        run_guarded(run, lambda: self._make_attempt(run, position, propose, stored))
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
        position: AttemptPosition,
        propose: Callable[[ChatModel], Proposal],
        stored: StoredAttempt | None,
    ) -> None:
        if stored is not None and stored.facts.text and stored.facts.fault is None:
            # An earlier query failed or was cut short after the attacker's proposal, which is reused.
            proposal = replace(to_proposal(stored.facts), refused=None)
            run.tracer.spans += [to_span(old) for old in stored.record.spans if old.kind == ATTACKER_ROLE]
        else:
            proposal = self._ask_attacker(propose)
        if proposal.refused is not None:
            judgement = judge_refused(proposal.refused)
            run.attempt = _build_attempt_facts(self.number, position, proposal, judgement)
            return
        run.attempt = _build_attempt_facts(self.number, position, proposal, Judgement(1, ""))
        # Stored before the query, so that the proposal survives a crash.
        draft = replace(run, error_kind=UNFINISHED, error="The query has not ended.")
        self.store.write(build_record(draft), build_agentdojo_fields(draft))
        others = [self._try_on_other_case(job, position, proposal) for job in self.homes[1:]]
        why = self._try_candidate(run, proposal)
        if why is not None:
            run.attempt = _build_attempt_facts(
                self.number, position, replace(proposal, refused=why), judge_refused(why)
            )
            return
        judgement = combine_judgements(
            [self._judge_query(run, proposal), *(attempt.judgement for attempt in others)]
        )
        done = int(run.security) + sum(attempt.success for attempt in others)
        facts = _build_attempt_facts(self.number, position, proposal, judgement)
        run.attempt = facts.model_copy(update={"tried_on": 1 + len(others), "carried_out": done})

    def _try_candidate(self, run: CaseRun, proposal: Proposal) -> str | None:
        """Run a case with a candidate; return the reason if it cannot be tried, else None."""
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

    def _try_on_other_case(self, job: Job, position: AttemptPosition, proposal: Proposal) -> Attempt:
        """Try the candidate on another case and store the attempt; one that cannot be run there counts as failed."""
        stored = self._load_stored(job)
        if stored is not None and stored.is_finished and stored.facts.text == proposal.text:
            return stored.attempt
        run = make_case_run(job)
        lead = {"lead": self.lead.case.user_task_id, "ahead": None}
        facts = _build_attempt_facts(self.number, position, proposal, Judgement(1, ""))
        run.attempt = facts.model_copy(update=lead)

        def make() -> None:
            why = self._try_candidate(run, proposal)
            judgement = judge_refused(why) if why is not None else self._judge_query(run, proposal)
            facts = _build_attempt_facts(self.number, position, proposal, judgement)
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


def _build_attempt_facts(
    number: int, position: AttemptPosition, proposal: Proposal, judgement: Judgement
) -> AttemptFacts:
    ahead = proposal.ahead
    return AttemptFacts(
        number=number,
        **vars(position),
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
