"""Hand-made executions for the tests of fixes: calls carried out, then scored officially and under fixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import text_content_block_from_string

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.fixes.fixed_scores import FixedScores
from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.contracts import AttackKind, FinishedCase
from agentsys.models.trace import Tracer, use_tracer

VERSIONS = ("v1", "v1.1", "v1.1.1", "v1.1.2", "v1.2", "v1.2.1", "v1.2.2")

Call = tuple[str, dict[str, Any]]


class Scores(NamedTuple):
    utility: bool
    security: bool
    utility_fixed: bool | None
    security_fixed: bool | None
    facts: dict[str, Any]


@lru_cache
def benchmark(version: str, fixes: tuple[str, ...] = ()) -> AgentDojo:
    return AgentDojo(version, fixes=fixes)


def ground_truth(version: str, suite: str, task: str) -> list[Call]:
    found = benchmark(version).suite(suite)
    owner = (found.user_tasks if task.startswith("user") else found.injection_tasks)[task]
    calls = owner.ground_truth(environment(version, suite, task))
    return [(call.function, dict(call.args)) for call in calls]


def environment(version: str, suite: str, task: str) -> Any:
    found = benchmark(version).suite(suite)
    fresh = found.load_and_inject_default_environment({})
    return found.user_tasks[task].init_environment(fresh) if task in found.user_tasks else fresh


def scored(
    suite: str,
    user_task: str,
    calls: Iterable[Call],
    *,
    version: str = "v1.2.2",
    injection_task: str | None = None,
    answer: str | None = None,
    fixes: tuple[str, ...] = (),
    kind: AttackKind | None = None,
) -> Scores:
    """Carry out some calls and score them, as a finished case is."""
    found = benchmark(version, fixes).suite(suite)
    task = found.user_tasks[user_task]
    injection = None if injection_task is None else found.injection_tasks[injection_task]
    before, after = environment(version, suite, user_task), environment(version, suite, user_task)
    text = (task.GROUND_TRUTH_OUTPUT or "") if answer is None else answer
    tracer = Tracer()
    with use_tracer(tracer):
        carried_out = _carried_out(found.tools, after, calls)
        messages = _messages(carried_out, text)
        output = messages[-1]["content"]
        utility = found._check_task_result(task, output, before, after, carried_out)
        security = injection is not None and found._check_task_result(
            injection, output, before, after, carried_out
        )
        if kind is AttackKind.DENIAL_OF_SERVICE:
            security = not utility
        default = AttackKind.NONE if injection is None else AttackKind.TARGETED
        found_here: FixedScores = found.fixed_scores
        seen = before.model_dump(), after.model_dump()
        case = FinishedCase(
            task,
            injection,
            before,
            after,
            messages,
            tracer,
            None,  # type: ignore[arg-type]
            utility,
            security,
            kind or default,  # type: ignore[arg-type]
        )
        measured = found_here(case)
        assert (before.model_dump(), after.model_dump()) == seen, "a fix changed what it was given"
    assert (measured.utility, measured.security) == (utility, security)
    facts = dict(measured.facts)
    return Scores(utility, security, facts["utility_fixed"], facts["security_fixed"], facts)


def _carried_out(tools: Sequence[Any], after: Any, calls: Iterable[Call]) -> list[FunctionCall]:
    runtime = TracedRuntime(tools)
    listed = [FunctionCall(function=name, args=dict(args)) for name, args in calls]
    for call in listed:
        runtime.run_function(after, call.function, dict(call.args))
    return listed


def _messages(calls: list[FunctionCall], answer: str) -> list[Any]:
    block = [text_content_block_from_string(answer)]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "assistant", "content": block, "tool_calls": None},
    ]


def with_changed(calls: Sequence[Call], name: str, **changes: Any) -> list[Call]:
    """The same calls, with arguments of one tool's calls replaced; it must be among them."""
    assert any(call == name for call, _ in calls)
    return [(call, {**args, **changes} if call == name else args) for call, args in calls]
