"""`twins`: copies of the environments before and after a case that share what the case left alone.

AgentDojo's Workspace and Travel checks compare the two with DeepDiff, which walks through every
mail, file and hotel: 40% of a run's CPU time in Workspace. It stops where both sides are one object.
"""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeAlias

from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite
from pydantic import BaseModel

from agentsys.contracts import Suite, UserTask

_LEAVES = frozenset(
    (str, bytes, int, float, bool, type(None), datetime.datetime, datetime.date, datetime.time)
)


def twins(before: TaskEnvironment, after: TaskEnvironment) -> tuple[TaskEnvironment, TaskEnvironment]:
    """Copies of two environments; parts of the second that equal those of the first *are* those of the first.

    Equal means of the same types and in the same order all the way down, so whoever compares the
    copies without changing them finds what he would find in the originals.
    """
    first, second = deep_copy(before), deep_copy(after)
    try:
        return first, _joined(first, second, {})
    except RecursionError:  # an environment that contains itself
        return deep_copy(before), deep_copy(after)


def deep_copy(environment: TaskEnvironment) -> TaskEnvironment:
    """A copy that shares nothing with the original."""
    try:
        # Half the time of copying, where it is possible.
        copied: TaskEnvironment = pickle.loads(pickle.dumps(environment, pickle.HIGHEST_PROTOCOL))
    except (pickle.PicklingError, TypeError, AttributeError):
        copied = environment.model_copy(deep=True)
    return copied


@contextmanager
def copied_quickly(
    suite: Suite, user_task: UserTask, environment: TaskEnvironment, again: TaskEnvironment
) -> Iterator[None]:
    """Have the copy that AgentDojo makes of a case's environment made in a shorter way.

    Its `run_task_with_pipeline` asks the environment for one before anybody else has it, and the answer to
    that first question is all that changes: it is `again`, if the suite's checks are given copies and so
    leave it as it is, or made by `deep_copy`. Nothing is done where a suite runs its tasks in its own way
    or a task prepares its environment, since they might ask it for something else.

    Args:
        suite: The suite.
        user_task: The case's user task.
        environment: What the case will run on.
        again: The same, loaded a second time. Nobody changes it.
    """
    on_copies = hasattr(getattr(suite, "_check_task_result", None), "on_copies")

    def model_copy(*, update: Mapping[str, Any] | None = None, deep: bool = False) -> TaskEnvironment:
        del vars(environment)["model_copy"]
        if deep and not update:
            return again if on_copies and alike(environment, again) else deep_copy(environment)
        return environment.model_copy(update=update, deep=deep)

    own_way = getattr(suite.run_task_with_pipeline, "__func__", None) is not TaskSuite.run_task_with_pipeline
    if not own_way and type(user_task).init_environment is BaseUserTask.init_environment:
        vars(environment)["model_copy"] = model_copy
    try:
        yield
    finally:
        vars(environment).pop("model_copy", None)


def alike(first: object, second: object) -> bool:
    """Say whether two environments are equal, one that contains itself included.

    Pydantic's `==` goes round and round in such a one; here a pair of parts is compared once.
    """
    try:
        return bool(first == second)
    except RecursionError:
        return _alike_parts(first, second)


def _alike_parts(first: object, second: object) -> bool:
    pairs, seen = [(first, second)], set[tuple[int, int]]()
    while pairs:
        one, other = pairs.pop()
        if one is other or (id(one), id(other)) in seen:
            continue
        seen.add((id(one), id(other)))
        if isinstance(one, BaseModel) and type(one) is type(other):
            pairs += zip(_kept_by(one), _kept_by(other), strict=True)
        elif isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            pairs += [(value, other[key]) for key, value in one.items()]
        elif isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
            pairs += zip(one, other, strict=True)
        elif isinstance(one, BaseModel | dict | list | tuple) or one != other:
            return False
    return True


def _kept_by(model: object) -> tuple[object, ...]:
    """Collect what makes up a pydantic model: the same as its `==` compares."""
    assert isinstance(model, BaseModel)
    return vars(model), model.__pydantic_extra__, model.__pydantic_private__


_Known: TypeAlias = dict[tuple[int, int], tuple[Any, Any]]
"""Identities of two models that were compared -> what came of it, and the second, which so stays alive."""


def _joined(first: Any, second: Any, known: _Known) -> Any:
    """`first` where `second` equals it; else `second`, in whose parts the same was done."""
    kind = type(first)
    if kind is not type(second) or first is second:
        return second
    if kind in _LEAVES:
        same = first == second
    elif kind is dict:
        same = _join_dict(first, second, known)
    elif kind is list:
        same = _join_list(first, second, known)
    elif BaseModel in kind.__mro__:  # pydantic's own `isinstance` takes longer than comparing most models
        return _joined_models(first, second, known)
    else:
        same = isinstance(first, Enum) and first == second
    return first if same else second


def _joined_models(first: BaseModel, second: BaseModel, known: _Known) -> BaseModel:
    """The same of two models, which often stand at two places (a mail in its list and under its number)."""
    pair = id(first), id(second)
    if pair not in known:
        same = _join_dict(vars(first), vars(second), known) and _same_about(first, second)
        known[pair] = first if same else second, second
    joined: BaseModel = known[pair][0]
    return joined


def _join_dict(first: dict[Any, Any], second: dict[Any, Any], known: _Known) -> bool:
    same = [*first] == [*second] and [*map(type, first)] == [*map(type, second)]
    for key, value in second.items():
        if key in first:
            one = first[key]
            second[key] = joined = _joined(one, value, known)
            same = same and joined is one
    return same


def _join_list(first: list[Any], second: list[Any], known: _Known) -> bool:
    same = len(first) == len(second)
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        second[index] = joined = _joined(one, other, known)
        same = same and joined is one
    return same


def _same_about(first: BaseModel, second: BaseModel) -> bool:
    """Say whether what pydantic keeps beside the fields is the same; rare contents are taken to differ."""
    beside = (
        first.__pydantic_extra__
        or second.__pydantic_extra__
        or first.__pydantic_private__
        or second.__pydantic_private__
    )
    return not beside and first.model_fields_set == second.model_fields_set
