"""The case as its search is told of it (`Quest`), and what each query showed (`QueryFacts`)."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentsys.abilities import DescribesItself, NamesPrompts
from agentsys.attacks.knowledge import CaseKnowledge, list_signatures, describe_situation
from agentsys.attacks.search import QueryFacts, SearchTask, ToolCall
from agentsys.benchmarks.loading.double_quoted import mend_text
from agentsys.contracts import InjectionTask, Suite, UserTask
from agentsys.models.chat import text_of
from agentsys.models.trace import Span, Tracer
from agentsys.runs.plan import Job
from agentsys.runs.run_case import CaseRun


def build_quest(jobs: Sequence[Job]) -> SearchTask:
    """Describe what the search made on these cases is to bring about.

    Args:
        jobs: One case, or in mode `transfer` one per user task that candidates are tried on.

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
        id=search_id(jobs[0]),
        tool=str(getattr(injection_task, "attack_tool", None) or ""),
        make_injectable=None if cell.injection_mode == "exact" else mend_text,
        case_knowledge=_build_surroundings(suite, jobs, calls),
    )


def search_id(lead: Job) -> str:
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
        calls=calls_after_exposure(run.tracer, seen.raw_round),
        answer=said[-1] if said else "",
        blocked=tuple(list_blocked(run.tracer.spans)),
        own_calls=own,
    )


def calls_after_exposure(tracer: Tracer, exposing: int | None) -> tuple[ToolCall, ...]:
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
    for span in spans:
        done = _describe_block(span.decision)
        if done:
            where = f" ({span.name})" if span.name else ""
            yield f"{span.kind}{where} {done}"


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
