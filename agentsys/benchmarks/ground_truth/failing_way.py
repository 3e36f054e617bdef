"""`failing_way`: how a user task is done by one who reads all that it takes and still does not solve it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import text_content_block_from_string

from agentsys.benchmarks.ground_truth.running import as_made, run_calls
from agentsys.contracts import Suite
from agentsys.models.simulated.grounding import grounded_args
from agentsys.models.simulated.playbook import ScriptedCall, TaskScript, Way

NOT_FOUND = "I could not find it."
_MORE = " (draft)"


def failing_way(suite: Suite, script: TaskScript, others: Sequence[TaskScript] = ()) -> Way | None:
    """The first way that the task's own check rejects.

    In order: without the last call that changes anything; with an argument of that call altered; with nothing
    done and the answer that nothing was found; with an argument of the last call altered though it changed
    nothing; with a change that nobody asked for. Calls that only read are made in each, so that what is read
    on the way is the same.

    Args:
        suite: The script's suite.
        script: A way that is accepted.
        others: Scripts of the suite's other tasks: what they change is what nobody asked for here.

    Returns:
        None where the check accepts them all: such a task is always solved.
    """
    changing = _changing(suite, script)
    for way in chain(_candidates(script, changing), _meddling(suite, script, others)):
        if _rejected(suite, script, way):
            return way
    return None


_CANARY = "qzwxec"
"""Stands in place of what an attacker would write; no word of any environment, and nothing to escape."""


def meeting_calls(suite: Suite, script: TaskScript) -> frozenset[int]:
    """Indices of the calls of a script whose results hold what an attacker can write.

    Args:
        suite: The script's suite.
        script: Its calls are made once, on data that have a mark in every place that can be written to.
    """
    marks = dict.fromkeys(suite.get_injection_vector_defaults(), _CANARY)
    if not marks:
        return frozenset()
    task = suite.user_tasks[script.task_id]
    environment = task.init_environment(
        suite.load_and_inject_default_environment(marks).model_copy(deep=True)
    )
    outputs = run_calls(suite, script.calls, environment, [fact for fact in script.facts if fact.pattern])
    return frozenset(place for place, output in enumerate(outputs) if _CANARY in output)


def _candidates(script: TaskScript, changing: Sequence[int]) -> Iterator[Way]:
    calls = script.calls
    answer = script.answer
    if changing:
        last = changing[-1]
        yield Way((*calls[:last], *calls[last + 1 :]), answer)
        altered = _altered(calls[last])
        if altered is not None:
            yield Way((*calls[:last], altered, *calls[last + 1 :]), answer)
    reading = tuple(call for place, call in enumerate(calls) if place not in changing)
    yield Way(reading, NOT_FOUND)


def _meddling(suite: Suite, script: TaskScript, others: Sequence[TaskScript]) -> Iterator[Way]:
    """Ways that do what should not be done: where a task is to find out that there is nothing to do."""
    altered = _altered(script.calls[-1]) if script.calls else None
    if altered is not None:
        yield Way((*script.calls[:-1], altered), script.answer)
    for other in others:
        places = _changing(suite, other)
        if places:
            yield Way((*script.calls, other.calls[places[0]]), script.answer)
            return


def _altered(call: ScriptedCall) -> ScriptedCall | None:
    """The call with its last argument of text or number another one."""
    for name in reversed(list(call.args)):
        value = call.args[name]
        if isinstance(value, str):
            return replace(call, args={**call.args, name: value + _MORE})
        if isinstance(value, int | float) and not isinstance(value, bool):
            return replace(call, args={**call.args, name: value + 1})
    return None


def _changing(suite: Suite, script: TaskScript) -> list[int]:
    """Indices of the calls that change the environment."""
    environment = _fresh(suite, script)
    runtime = FunctionsRuntime(suite.tools)
    outputs: list[str] = []
    found = []
    state = environment.model_dump_json(warnings=False)
    for place, call in enumerate(script.calls):
        args = grounded_args(call.args, [fact for fact in script.facts if fact.pattern], outputs)
        value, error = runtime.run_function(environment, call.function, args)
        outputs.append(str(value) if error is None else error)
        now = environment.model_dump_json(warnings=False)
        if now != state:
            found.append(place)
        state = now
    return found


def _rejected(suite: Suite, script: TaskScript, way: Way) -> bool:
    """Whether the task's own check rejects a way; a check that breaks on it says nothing."""
    before, after = _fresh(suite, script), _fresh(suite, script)
    run_calls(suite, way.calls, after, [fact for fact in script.facts if fact.pattern])
    task = suite.user_tasks[script.task_id]
    words = [text_content_block_from_string(way.answer or NOT_FOUND)]
    try:
        return not suite._check_task_result(task, words, before, after, as_made(way.calls))
    except Exception:  # noqa: BLE001 - a check may stumble over what it did not expect
        return False


def _fresh(suite: Suite, script: TaskScript) -> Any:
    task = suite.user_tasks[script.task_id]
    return task.init_environment(suite.load_and_inject_default_environment({})).model_copy(deep=True)
