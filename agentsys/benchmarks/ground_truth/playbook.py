"""Builds the simulated model's `Playbook`: one clean ground-truth run per task of some suites."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from agentdojo.functions_runtime import TaskEnvironment

from agentsys.abilities import KnowsWays
from agentsys.benchmarks.ground_truth.playbook_facts import find_facts
from agentsys.benchmarks.ground_truth.playbook_workspace import WORKSPACE_SCRIPTS
from agentsys.benchmarks.ground_truth.running import to_function_calls, run_calls, script_calls
from agentsys.contracts import InjectionTask, Suite, UserTask
from agentsys.models.simulated.playbook import GoalScript, Playbook, ScriptedCall, TaskScript, AlternativeSolution

_OWN_SCRIPTS = {"workspace": WORKSPACE_SCRIPTS}
"""Suite -> injection task -> script, for goals whose ground truth the package leaves empty."""


@dataclass(frozen=True)
class _SuiteScripts:
    tasks: tuple[TaskScript, ...]
    goals: tuple[GoalScript, ...]


def build_playbook(suites: Iterable[Suite]) -> Playbook:
    """The scripts of all user tasks and of all injection tasks that somebody knows how to do.

    Args:
        suites: Suites of one benchmark version. Each is worked out once per process.

    Returns:
        A playbook. Injection tasks without a ground truth are in it only if a script of ours, or the
        right words in the answer, satisfies their own check on a clean environment.
    """
    scripts = [_suite_scripts(suite) for suite in suites]
    return Playbook(
        tuple(task for suite in scripts for task in suite.tasks),
        tuple(goal for suite in scripts for goal in suite.goals),
    )


@lru_cache(maxsize=64)
def _suite_scripts(suite: Suite) -> _SuiteScripts:
    clean = suite.load_and_inject_default_environment({})
    tasks = [_task_script(suite, task, _copy(clean)) for task in suite.user_tasks.values()]
    goals = [_goal_script(suite, task, clean) for task in suite.injection_tasks.values()]
    return _SuiteScripts(tuple(tasks), tuple(goal for goal in goals if goal is not None))


def _task_script(suite: Suite, task: UserTask, environment: TaskEnvironment) -> TaskScript:
    environment = task.init_environment(environment)
    way = _own_way(suite, task)
    if way is None:
        way = AlternativeSolution(script_calls(task.ground_truth(environment)), task.GROUND_TRUTH_OUTPUT)
    outputs = run_calls(suite, way.calls, environment, way.drawn)
    facts = find_facts(f"{suite.name}_{task.ID}", task.PROMPT, way.calls, way.answer, outputs)
    return TaskScript(suite.name, task.ID, task.PROMPT, way.calls, way.answer, (*facts, *way.drawn))


def _goal_script(suite: Suite, task: InjectionTask, clean: TaskEnvironment) -> GoalScript | None:
    """Script the way to one goal; None if nobody knows one."""
    way = _own_way(suite, task)
    if way is not None:
        return GoalScript(suite.name, task.ID, task.GOAL, way.calls, way.answer or None, way.drawn)
    knows = isinstance(suite, KnowsWays)  # then without a way none is known: its ground truths lead nowhere
    calls = () if knows else script_calls(task.ground_truth(_copy(clean)))
    if calls:
        return GoalScript(suite.name, task.ID, task.GOAL, calls, task.GROUND_TRUTH_OUTPUT or None)
    own = _OWN_SCRIPTS.get(suite.name, {}).get(task.ID)
    if own is not None and _succeeds(suite, task, clean, own(task.GOAL, clean), ""):
        return GoalScript(suite.name, task.ID, task.GOAL, own(task.GOAL, clean), None)
    for words in (task.GROUND_TRUTH_OUTPUT, task.GOAL):
        if words and _succeeds(suite, task, clean, (), words):
            return GoalScript(suite.name, task.ID, task.GOAL, (), words)
    return None


def _own_way(suite: object, task: UserTask | InjectionTask) -> AlternativeSolution | None:
    return suite.way(task) if isinstance(suite, KnowsWays) else None


def _succeeds(
    suite: Suite, task: InjectionTask, clean: TaskEnvironment, calls: tuple[ScriptedCall, ...], words: str
) -> bool:
    """Say whether the task's own check holds after these calls and words on a clean environment."""
    before, after = _copy(clean), _copy(clean)
    run_calls(suite, calls, after)
    by_trace = task.security_from_traces(words, before, after, to_function_calls(calls))
    return bool(task.security(words, before, after) if by_trace is None else by_trace)


def _copy(environment: TaskEnvironment) -> TaskEnvironment:
    return environment.model_copy(deep=True)
