"""Runs the checks of finished cases: each check sees copies of the environments, and calls that really ran.

`take_judged_messages` says which messages they are given. `copy_environments` makes copies that share what the case
left alone: AgentDojo's Workspace and Travel checks compare the environments before and after with DeepDiff, which
walks through every mail, file and hotel (40% of a run's CPU time in Workspace) and stops where both sides are one
object.
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
from agentsys.models.providers.chat_thoughts import NOTE_PREFIX
from agentsys.models.providers.wire_parts import OPENAI_ITEM_PREFIX
from agentsys.models.trace import Tracer, get_current_tracer

_LEAVES = frozenset(
    (str, bytes, int, float, bool, type(None), datetime.datetime, datetime.date, datetime.time)
)


def copy_environments(
    before: TaskEnvironment, after: TaskEnvironment
) -> tuple[TaskEnvironment, TaskEnvironment]:
    """Copies of two environments; parts of the second that equal those of the first *are* those of the first.

    Equal means of the same types and in the same order all the way down, so whoever compares the
    copies without changing them finds what he would find in the originals.
    """
    first, shared = copy_deeply(before), dict[int, Any]()
    try:
        _find_same(first, after, shared)
        # What its memo holds is taken from there and not copied: most of a large environment.
        return first, deepcopy(after, shared)
    except RecursionError:  # it contains itself
        return copy_deeply(before), copy_deeply(after)


def copy_deeply(environment: TaskEnvironment) -> TaskEnvironment:
    """A copy that shares nothing with the original."""
    try:
        # Half the time of copying, where it is possible.
        copied: TaskEnvironment = pickle.loads(pickle.dumps(environment, pickle.HIGHEST_PROTOCOL))
    except (pickle.PicklingError, TypeError, AttributeError):
        copied = environment.model_copy(deep=True)
    return copied


def are_equal(first: object, second: object) -> bool:
    """Say whether two environments are equal, one that contains itself included (AgentDyn's do).

    Pydantic's `==` goes round and round in such a one; here a pair of parts is compared once.
    """
    try:
        return bool(first == second)
    except RecursionError:
        return _are_parts_equal(first, second)


def _are_parts_equal(first: object, second: object) -> bool:
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
    """What makes up a pydantic model: the same as its `==` compares."""
    return vars(model), model.__pydantic_extra__, model.__pydantic_private__


def _find_same(first: Any, second: Any, shared: dict[int, Any]) -> bool:
    """Note the parts of `second` that equal those of `first` in the same places; say if all of it does.

    In `shared`: identity of a part of the second environment -> the part of the first that it equals.
    """
    kind = type(second)
    if kind is not type(first):
        return False
    if kind in _LEAVES:
        return bool(first == second)
    if shared.get(id(second)) is first:  # it stands at two places (a mail in its list and under its number)
        return True
    if kind is dict:
        same = _has_same_items(first, second, shared)
    elif kind is list:
        found = [_find_same(one, other, shared) for one, other in zip(first, second, strict=False)]
        same = len(first) == len(second) and all(found)
    elif BaseModel in kind.__mro__:  # pydantic's own `isinstance` takes longer than comparing most models
        # Not the dict that holds its fields: that one belongs to one model alone.
        # What pydantic keeps beside the fields is rare, and taken to differ.
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
    same = [*first] == [*second] and [*map(type, first)] == [*map(type, second)]
    for key, other in second.items():
        if key in first:
            one = first[key]
            if type(other) in _LEAVES:  # most are, and a call for each would take longer than comparing them
                same = same and type(one) is type(other) and bool(one == other)
            else:
                same = _find_same(one, other, shared) and same
    return same


def take_judged_messages(messages: Sequence[ChatMessage], *, with_thoughts: bool) -> Sequence[ChatMessage]:
    """The conversation as checks are given it, whoever recorded it: its last answer without the model's thoughts.

    An answer of thoughts alone is what AgentDojo's element of that vendor makes of it without them: an empty list
    of Anthropic's, no content of the others'. AgentDojo runs a pipeline again where there is no content.

    Args:
        messages: What a pipeline returned, or what was stored of it.
        with_thoughts: Whether they are judged along with the answer, as AgentDojo's own runs and DRIFT's are.
    """
    last = next((at for at in reversed(range(len(messages))) if messages[at]["role"] == "assistant"), None)
    content = None if last is None else messages[last]["content"]
    if last is None or content is None or with_thoughts:
        return messages
    said = [block for block in content if block["type"] == "text"]
    if len(said) == len(content):
        return messages
    answer = said or ([] if any(map(_is_of_anthropic, content)) else None)
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
    """AgentDojo's check, made repeatable.

    Three Workspace checks mark mail as read in the environments they are given, so that a second
    check of the same case sees another world (agentdojo 0.1.35, injection tasks 6, 8 and 9).
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
        except Exception:  # noqa: BLE001 - whatever it was: it comes again below, or came of the sharing
            pass
        else:
            if are_equal(before, pre_environment) and are_equal(after, task_environment):
                return passed
        # It changed what it was given, perhaps on both sides at once: on copies that share nothing.
        before, after = copy_deeply(pre_environment), copy_deeply(task_environment)
        return check(task, model_output, before, after, calls)

    return check_result


def select_scored_calls(in_messages: Sequence[FunctionCall], tracer: Tracer) -> Sequence[FunctionCall]:
    """The calls that checks may look at.

    A few checks look at calls and not at the environment. AgentDojo takes them from the returned
    messages; a defense may execute calls in inner agents whose messages it does not return, and may
    refuse calls that stand in them: a refused call did nothing. Only the scored run of the pipeline counts:
    AgentDojo, too, looks at the messages of the last of its up to three runs.

    Returns:
        Where tools write receipts the calls that have one, in order. Else `in_messages` itself if every
        executed call stands there and none was refused; else the executed calls, in order.
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
    """Say whether a call in a message is the executed one; it may declare more (AgentSys adds an intent)."""
    return call.function == name and all(
        key in call.args and call.args[key] == value for key, value in args.items()
    )
