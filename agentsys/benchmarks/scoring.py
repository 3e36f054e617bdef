"""Runs the checks of finished cases on copies of the environments, with the calls that really ran.

`take_judged_messages` selects the messages for checks. `copy_environments` makes copies that share unchanged parts:
AgentDojo's Workspace and Travel checks compare the environments before and after with DeepDiff, which visits every
mail, file and hotel (40% of a run's CPU time in Workspace) but stops if both sides are the same object.
"""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from typing import Any, TypeAlias

from agentdojo.functions_runtime import FunctionCall, TaskEnvironment
from agentdojo.types import ChatMessage, MessageContentBlock
from pydantic import BaseModel

from agentsys.contracts import InjectionTask, UserTask
from agentsys.models.providers.wire_parts import NOTE_PREFIX, OPENAI_ITEM_PREFIX
from agentsys.models.trace import Tracer, get_current_tracer

_LEAVES = frozenset(
    (str, bytes, int, float, bool, type(None), datetime.datetime, datetime.date, datetime.time)
)


def copy_environments(
    before: TaskEnvironment, after: TaskEnvironment
) -> tuple[TaskEnvironment, TaskEnvironment]:
    """Copy two environments; parts of the second that equal those of the first *are* those of the first.

    Equal means the same types in the same order at all depths, so comparing the copies gives the same result as
    comparing the originals, as long as they are not changed.
    """
    first, shared = copy_deeply(before), dict[int, Any]()
    try:
        _find_same(first, after, shared)
        # deepcopy takes the parts in its memo, most of a large environment, without copying them.
        return first, deepcopy(after, shared)
    except RecursionError:  # It contains itself.
        return copy_deeply(before), copy_deeply(after)


def copy_deeply(environment: TaskEnvironment) -> TaskEnvironment:
    """Copy an environment without sharing anything with the original."""
    try:
        # Pickling, where possible, takes half the time of a deep copy.
        copied: TaskEnvironment = pickle.loads(pickle.dumps(environment, pickle.HIGHEST_PROTOCOL))
    except (pickle.PicklingError, TypeError, AttributeError):
        copied = environment.model_copy(deep=True)
    return copied


def are_equal(first: object, second: object) -> bool:
    """True if two environments are equal, even if they contain themselves (AgentDyn's do).

    Pydantic's `==` recurses without end then; the fallback compares each pair of parts once.
    """
    try:
        return bool(first == second)
    except RecursionError:
        return _are_parts_equal(first, second)


def _are_parts_equal(first: object, second: object) -> bool:
    """Compare two environments part by part, each pair once."""
    pairs, seen = [(first, second)], set[tuple[int, int]]()
    while pairs:
        one, other = pairs.pop()
        if one is other or (id(one), id(other)) in seen:
            continue
        seen.add((id(one), id(other)))
        if isinstance(one, BaseModel) and isinstance(other, BaseModel) and type(one) is type(other):
            pairs += zip(_list_state(one), _list_state(other), strict=True)
        elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            pairs += [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
            pairs += zip(one, other, strict=True)
        elif isinstance(one, BaseModel | dict | list | tuple) or one != other:
            return False
    return True


def _list_state(model: BaseModel) -> tuple[object, ...]:
    """Return the parts of a pydantic model that its `==` compares."""
    return vars(model), model.__pydantic_extra__, model.__pydantic_private__


def _find_same(first: Any, second: Any, shared: dict[int, Any]) -> bool:
    """Collect the parts of `second` that equal those of `first` at the same position; True if all of it does.

    `shared`: identity of a part of the second environment -> the equal part of the first.
    """
    kind = type(second)
    if kind is not type(first):
        return False
    if kind in _LEAVES:
        return bool(first == second)
    if shared.get(id(second)) is first:  # Reachable by two paths (a mail in its list and under its number).
        return True
    if kind is dict:
        same = _has_same_items(first, second, shared)
    elif kind is list:
        same_items = [_find_same(one, other, shared) for one, other in zip(first, second, strict=False)]
        same = len(first) == len(second) and all(same_items)
    elif BaseModel in kind.__mro__:  # Pydantic's `isinstance` takes longer than comparing most models.
        # The dict of a model's fields is compared but never shared: it belongs to one model. Pydantic's extra and
        # private attributes are rare, and taken to differ.
        beside = first.__pydantic_extra__ or second.__pydantic_extra__
        beside = beside or first.__pydantic_private__ or second.__pydantic_private__
        same = _has_same_items(vars(first), vars(second), shared) and not beside
        same = same and first.model_fields_set == second.model_fields_set
    else:
        return isinstance(first, Enum) and first == second
    if same:
        shared[id(second)] = first
    return same


def _has_same_items(first: dict[Any, Any], second: dict[Any, Any], shared: dict[int, Any]) -> bool:
    """Compare two dicts as `_find_same` does: True if keys, their order and all values are the same."""
    same = [*first] == [*second] and [*map(type, first)] == [*map(type, second)]
    for key, other in second.items():
        if key in first:
            one = first[key]
            # Most are leaves; a function call for each would take longer than the comparison.
            if type(other) in _LEAVES:
                same = same and type(one) is type(other) and bool(one == other)
            else:
                same = _find_same(one, other, shared) and same
    return same


def take_judged_messages(messages: Sequence[ChatMessage], *, with_thoughts: bool) -> Sequence[ChatMessage]:
    """Return the conversation for checks: its last answer without the model's thoughts.

    An answer of thoughts only becomes what AgentDojo's element for that vendor returns: an empty list for Anthropic,
    no content for the others. AgentDojo runs a pipeline again if there is no content.

    Args:
        messages: A pipeline's messages, or those of a record.
        with_thoughts: True: thoughts are judged too, as in AgentDojo's own runs and DRIFT's.
    """
    last = next((at for at in reversed(range(len(messages))) if messages[at]["role"] == "assistant"), None)
    content = None if last is None else messages[last]["content"]
    if last is None or content is None or with_thoughts:
        return messages
    texts = [block for block in content if block["type"] == "text"]
    if len(texts) == len(content):
        return messages
    answer = texts or ([] if any(map(_is_of_anthropic, content)) else None)
    return [*messages[:last], {**messages[last], "content": answer}, *messages[last + 1 :]]


def _is_of_anthropic(thought: MessageContentBlock) -> bool:
    signed = thought["type"] == "thinking" and thought["id"]
    return thought["type"] == "redacted_thinking" or bool(
        signed and not signed.startswith((OPENAI_ITEM_PREFIX, NOTE_PREFIX))
    )


SuiteTask: TypeAlias = UserTask | InjectionTask
SuiteCheck = Callable[
    [SuiteTask, list[MessageContentBlock], TaskEnvironment, TaskEnvironment, Sequence[FunctionCall]], bool
]
"""`TaskSuite._check_task_result`: task, answer, environment before, environment after, calls -> passed."""


def check_on_copies(check: SuiteCheck) -> SuiteCheck:
    """Make AgentDojo's check repeatable.

    Three Workspace checks mark mail as read in the environments they get, so that a second check of the same case sees
    another state (agentdojo 0.1.35, injection tasks 6, 8 and 9).
    """

    def check_result(
        task: SuiteTask,
        model_output: list[MessageContentBlock],
        pre_environment: TaskEnvironment,
        task_environment: TaskEnvironment,
        functions_stack_trace: Sequence[FunctionCall],
    ) -> bool:
        calls = select_scored_calls(functions_stack_trace, get_current_tracer())
        before, after = copy_environments(pre_environment, task_environment)
        try:
            passed = check(task, model_output, before, after, calls)
        except Exception:  # noqa: BLE001 - raised again below, unless the sharing caused it
            pass
        else:
            if are_equal(before, pre_environment) and are_equal(after, task_environment):
                return passed
        # The check changed its copies, perhaps both at once: repeat it on copies that share nothing.
        before, after = copy_deeply(pre_environment), copy_deeply(task_environment)
        return check(task, model_output, before, after, calls)

    return check_result


def select_scored_calls(in_messages: Sequence[FunctionCall], tracer: Tracer) -> Sequence[FunctionCall]:
    """Select the calls for checks.

    A few checks inspect calls and not the environment. AgentDojo takes them from the returned messages; but a defense
    may execute calls in inner agents whose messages it does not return, and may refuse calls in the messages, which
    then had no effect. Only the scored run of the pipeline counts: AgentDojo, too, takes the messages of the last of
    its up to three runs.

    Returns:
        If tools write receipts, the calls with a receipt, in order. Else `in_messages` itself if it has every
        executed call and none was refused; else the executed calls, in order.
    """
    last_run = [index for index, attempt in enumerate(tracer.executed_attempts) if attempt == tracer.attempt]
    if tracer.receipts is not None:
        last_run = sorted({*last_run} & {*tracer.receipts})
    executed = [tracer.executed_calls[index][:2] for index in last_run]
    is_told_in_messages = (
        tracer.receipts is None
        and tracer.attempt not in tracer.refused_attempts
        and all(any(_is_executed_call(call, name, args) for call in in_messages) for name, args in executed)
    )
    return (
        in_messages if is_told_in_messages else [FunctionCall(function=n, args=dict(a)) for n, a in executed]
    )


def _is_executed_call(call: FunctionCall, name: str, args: Mapping[str, Any]) -> bool:
    """True if a call in a message is the executed one; it may have more arguments (AgentSys adds an intent)."""
    return call.function == name and all(
        key in call.args and call.args[key] == value for key, value in args.items()
    )
