"""A search's task (`build_quest`), and the facts of each query for its judge."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.attacks.attack_search import (
    CaseKnowledge,
    QueryFacts,
    SearchTask,
    ToolCall,
    describe_situation,
    list_signatures,
)
from agentsys.benchmarks.environment_loader import mend_text
from agentsys.contracts import Defense, InjectionTask, Suite, UserTask
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, text_of
from agentsys.models.trace import Span, Tracer
from agentsys.runs.case_outcome import CaseOutcome
from agentsys.runs.cell import Job


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
        make_injectable=None if cell.benchmark.injection == "exact" else mend_text,
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


def collect_query_facts(outcome: CaseOutcome) -> QueryFacts:
    """Collect the facts of a finished query for the judge."""
    exposure, job = outcome.watch.summarize(), outcome.job
    suite = job.cell.benchmark.suite(job.case.suite)
    own = find_ground_truth_calls(suite, suite.user_tasks[job.case.user_task_id])
    answers = [text_of(message) for message in outcome.messages if message["role"] == "assistant"]
    return QueryFacts(
        success=outcome.security,
        returned=exposure.exposed_raw,
        shown=exposure.exposed_shown,
        calls=find_calls_after_exposure(outcome.tracer, exposure.raw_round),
        answer=answers[-1] if answers else "",
        blocked=tuple(list_blocked(outcome.tracer.spans)),
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


@dataclass(frozen=True)
class ProposalRecorder:
    """Wraps the attacker's model and keeps requests of the span's own role, with their replies, in the span."""

    model: ChatModel
    span: Span

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the model."""
        kept = request.role == self.span.kind
        if kept:
            self.span.messages = request.messages
        reply = self.model.complete(request)
        if kept:
            self.span.messages = [*request.messages, reply.message]
        return reply
