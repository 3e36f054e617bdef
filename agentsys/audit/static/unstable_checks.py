"""`changes_what_it_checks`: checks that give another answer, or leave another world, the second time."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

from agentdojo.functions_runtime import TaskEnvironment
from agentdojo.types import text_content_block_from_string

from agentsys.audit.static.audited_task import PlayedCalls, CallPlayer, AuditedTask
from agentsys.benchmarks.scoring import SuiteTask
from agentsys.benchmarks.shared_copies import are_equal, deep_copy, copy_environments
from agentsys.python_parser import parse_module


def changes_what_it_checks(subject: AuditedTask) -> bool:
    """Whether the benchmark's own check alters the environments it is given, or its verdict on them.

    Looked for on the ground truth and on an agent that does nothing; and, for checks that come to the
    point only in worlds that no ground truth makes, in their source.
    """
    if alters_environment_before(subject.task, subject.start):
        return True
    nothing = subject.stage.play(subject.start, (), "")
    plays = [nothing, *([subject.ground_truth] if subject.ground_truth else [])]
    return any(_is_unsettled(subject.stage, subject.task, played) for played in plays)


def _is_unsettled(stage: CallPlayer, task: SuiteTask, played: PlayedCalls) -> bool:
    # What the two share changes in both, and is seen; it takes a tenth of the time of whole copies.
    before, after = copy_environments(played.before, played.after)
    answer = [text_content_block_from_string(played.answer)]
    # The class's own: the one on the suite that a benchmark gives out may check copies.
    check = type(stage.suite)._check_task_result
    try:
        first = check(stage.suite, task, answer, before, after, played.calls)
        second = check(stage.suite, task, answer, before, after, played.calls)
    except Exception:  # noqa: BLE001 - no verdict at all is another matter, see `Stage.passes`
        return False
    same = are_equal(before, played.before) and are_equal(after, played.after)
    return bool(first != second or not same)


_CHECK_METHODS = ("utility", "utility_from_traces", "security", "security_from_traces")
_BEFORE_PARAMETER = 2
"""Of the environment before among a check's parameters: self, the answer, it."""


def alters_environment_before(task: SuiteTask, environment: TaskEnvironment) -> bool:
    """Whether a method that a check calls on the environment before, without arguments, changes it.

    Such a call often stands behind conditions that no ground truth meets, so that it is found by
    reading. Of calls on the environment *after* nothing is said here: Workspace's user task 24 has
    one, at a point where it has been made sure that it does nothing.
    """
    paths = {path for name in _CHECK_METHODS for path in _find_calls_on_before(task, name)}
    return any(_changes_environment(environment, path) for path in sorted(paths))


def _find_calls_on_before(task: SuiteTask, check: str) -> Iterator[tuple[str, ...]]:
    """Attribute paths of the argument-free calls, e.g. `("inbox", "get_unread")`."""
    try:
        tree = parse_module(textwrap.dedent(inspect.getsource(getattr(type(task), check))))
    except (AttributeError, OSError, TypeError, SyntaxError):
        return  # no such check, or made where no source is kept
    function = tree.body[0]
    if not isinstance(function, ast.FunctionDef) or len(function.args.args) <= _BEFORE_PARAMETER:
        return
    before = function.args.args[_BEFORE_PARAMETER].arg
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and not node.args and not node.keywords:
            root, path = _split_attribute_path(node.func)
            if root == before and path:
                yield path


def _split_attribute_path(node: ast.expr) -> tuple[str, tuple[str, ...]]:
    """`a.b.c` as `("a", ("b", "c"))`; an empty root for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id if isinstance(node, ast.Name) else "", tuple(reversed(names)))


def _changes_environment(environment: TaskEnvironment, path: tuple[str, ...]) -> bool:
    copied: TaskEnvironment = deep_copy(environment)
    found: object = copied
    try:
        for name in path:
            found = getattr(found, name)
        if callable(found):
            found()
    except Exception:  # noqa: BLE001 - what the check itself would run into there is not the question
        return False
    return not are_equal(copied, environment)
