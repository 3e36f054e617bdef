"""What a search is told of its case (`Quest`) and of each query (`QueryFacts`)."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agentdojo.base_tasks import BaseInjectionTask
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.attacks.search import QueryFacts, Quest, ToolCall, start_text
from agentsys.contracts import Described
from agentsys.models.chat import text_of
from agentsys.models.trace import Span
from agentsys.runs.plan import Job
from agentsys.runs.run_case import CaseRun


def quest_of(job: Job) -> Quest:
    """What the search made on this case is to bring about.

    Raises:
        NotInjectable: If no vector of the user task can carry an injection.
    """
    case, cell = job.case, job.cell
    suite = cell.benchmark.suite(case.suite)
    user_task = suite.user_tasks[case.user_task_id]
    injection_task = suite.injection_tasks[str(case.injection_task_id)]
    return Quest(
        goal=injection_task.GOAL,
        goal_calls=_goal_calls(suite, injection_task),
        start=start_text(cell.attack, suite, user_task, injection_task, cell.victim),
        defense=description(cell.defense),
    )


def _goal_calls(suite: TaskSuite[Any], task: BaseInjectionTask[Any]) -> tuple[ToolCall, ...]:
    try:
        calls = task.ground_truth(suite.load_and_inject_default_environment({}))
    except Exception:  # noqa: BLE001 - a suite from outside may raise anything; the judge does without
        return ()
    return tuple(ToolCall(call.function, dict(call.args)) for call in calls)


def description(defense: object) -> str:
    """What a defense says of itself; of one that says nothing, its class's first docstring line and the
    names of its prompts."""
    if isinstance(defense, Described):
        return defense.description()
    doc = inspect.getdoc(type(defense)) or ""
    first = doc.strip().partition("\n")[0]
    prompts = getattr(defense, "prompts", None)
    names = ", ".join(prompts()) if callable(prompts) else ""
    return f"{first} It speaks to models through: {names}." if names else first


def facts_of(run: CaseRun) -> QueryFacts:
    """What a finished query showed."""
    seen = run.watch.seen()
    later = run.tracer.executed[seen.raw_round :] if seen.raw_round is not None else []
    said = [text_of(message) for message in run.messages if message["role"] == "assistant"]
    return QueryFacts(
        success=run.security,
        returned=seen.exposed_raw,
        shown=seen.exposed_shown,
        calls=tuple(ToolCall(name, args) for name, args, _ in later),
        answer=said[-1] if said else "",
        blocked=tuple(blocked(run.tracer.spans)),
    )


def blocked(spans: Sequence[Span]) -> Iterator[str]:
    """What defenses denied, cut or withheld, one line each, read from the decisions of their spans."""
    for span in spans:
        done = _blocked(span.decision)
        if done:
            where = f" ({span.name})" if span.name else ""
            yield f"{span.kind}{where} {done}"


def _blocked(decision: Mapping[str, Any]) -> str | None:
    if decision.get("allow") is False:
        return "denied a call"
    if decision.get("spans_cut"):
        return f"cut {decision['spans_cut']} passages"
    if decision.get("withheld") or decision.get("injected"):
        return "withheld an output"
    if decision.get("failure"):
        return f"ended with {decision['failure']}"
    return "ended the conversation" if decision.get("aborted") else None
