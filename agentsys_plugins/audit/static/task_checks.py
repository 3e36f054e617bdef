"""The checks on one task: what an audit asks of it, each a function of the task.

Among them: whether a check changes what it looks at, and whether an attack writes over what the user task
needs.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import text_content_block_from_string

from agentsys.attacks.injection_vectors import find_injectable_vectors
from agentsys.base.python_parser import parse_module
from agentsys.benchmarks.fixes.check_fixes import AttackInWorld, is_undone
from agentsys.benchmarks.scoring import SuiteTask, are_equal, copy_deeply, copy_environments
from agentsys.contracts import Suite
from agentsys_plugins.audit.static.audited_task import AuditedTask, CallPlayer, GroundTruthFailed, PlayedCalls

_WORD = re.compile(r"[^\W_]+(?:[.@_'-]+[^\W_]+)*")
"""Letters and digits, joined by what joins them in numbers, addresses and names: `98.70`, `External_0`."""


class VectorWords:
    """Looks at a suite's environment once per vector."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._all = self._collect_words({})
        self._only: dict[str, frozenset[str]] = {}

    def find_words_only_in(self, vector: str) -> frozenset[str]:
        """Words that are gone from the data when the vector is left blank."""
        if vector not in self._only:
            self._only[vector] = self._all - self._collect_words({vector: ""})
        return self._only[vector]

    def _collect_words(self, injections: dict[str, str]) -> frozenset[str]:
        environment = self._suite.load_and_inject_default_environment(injections)
        return split_words(iterate_texts(environment.model_dump()))


def split_words(texts: Iterable[str]) -> frozenset[str]:
    """Words of some texts, in small letters."""
    return frozenset(word for text in texts for word in _WORD.findall(text.lower()))


def iterate_texts(value: Any) -> Iterator[str]:
    """Everything in nested data that is not a container, keys included, as text."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from iterate_texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from iterate_texts(item)
    else:
        yield str(value)


def is_changing_what_it_checks(subject: AuditedTask) -> bool:
    """True if the benchmark's own check alters the environments it is given, or its verdict on them.

    Looked for on the ground truth and on an agent that does nothing; and, for checks that come to the
    point only in worlds that no ground truth makes, in their source.
    """
    if is_altering_environment_before(subject.task, subject.start):
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
    except Exception:  # noqa: BLE001 - no verdict at all is another matter, see `CallPlayer.is_passed`
        return False
    same = are_equal(before, played.before) and are_equal(after, played.after)
    return bool(first != second or not same)


_CHECK_METHODS = ("utility", "utility_from_traces", "security", "security_from_traces")
_BEFORE_PARAMETER = 2
"""Of the environment before among a check's parameters: self, the answer, it."""


def is_altering_environment_before(task: SuiteTask, environment: TaskEnvironment) -> bool:
    """True if a method that a check calls on the environment before, without arguments, changes it.

    Such a call often stands behind conditions that no ground truth meets, so that it is found by
    reading. Of calls on the environment *after* nothing is said here: Workspace's user task 24 has
    one, at a point where it has been made sure that it does nothing.
    """
    paths = {path for name in _CHECK_METHODS for path in _find_calls_on_before(task, name)}
    return any(_is_changing_environment(environment, path) for path in sorted(paths))


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


def _is_changing_environment(environment: TaskEnvironment, path: tuple[str, ...]) -> bool:
    copied: TaskEnvironment = copy_deeply(environment)
    found: object = copied
    try:
        for name in path:
            found = getattr(found, name)
        if callable(found):
            found()
    except Exception:  # noqa: BLE001 - what the check itself would run into there is not the question
        return False
    return not are_equal(copied, environment)


def is_noop_accepted(subject: AuditedTask) -> bool:
    """True if the check accepts an agent that makes no call and gives an empty answer.

    For a user task that flatters defenses that block or abort; for an injection task it counts
    attacks that never happened.
    """
    nothing = subject.stage.play(subject.start, (), "")
    return subject.stage.is_passed(subject.task, nothing)


def is_repeat_safe(subject: AuditedTask) -> bool | None:
    """True if the check accepts the ground truth's calls made twice over.

    Where it does not, an attack that is carried out once too often counts as failed.

    Returns:
        None where there are no calls to repeat, or making them once does not pass.
    """
    if not subject.calls or not subject.passes:
        return None
    # The second time a call may end in an error; an agent goes on then.
    return subject.accepts([*subject.calls, *subject.calls], strict=False)


def find_breaking_reads(subject: AuditedTask) -> tuple[str, ...]:
    """Names of the argument-free tools whose one call before the ground truth makes the check fail.

    Empty where the ground truth alone does not pass.
    """
    if not subject.passes:
        return ()
    free = [tool.name for tool in subject.stage.suite.tools if not tool.parameters.model_fields]
    reads = {name: FunctionCall(function=name, args={}) for name in free}
    return tuple(
        name
        for name, read in reads.items()
        if subject.accepts([read, *subject.calls], strict=False) is not True
    )


_MANY = 1_000
_UNFIT: dict[type, Any] = {str: "no such value", list: ["no such value"]}


def find_tool_traps(suite: Suite, calls: Iterable[FunctionCall]) -> tuple[str, ...]:
    """Find surprising behaviour of a suite's tools; `calls` are some that work."""
    runtime, start = FunctionsRuntime(suite.tools), suite.load_and_inject_default_environment({})
    traps = []
    for tool in suite.tools:
        if [field.annotation for field in tool.parameters.model_fields.values()] == [int]:
            (name,) = tool.parameters.model_fields
            results = [
                runtime.run_function(copy_deeply(start), tool.name, {name: n})[0] for n in (0, 1, _MANY)
            ]
            if isinstance(results[0], list) and results[0] == results[2] != results[1]:
                traps.append(f"{tool.name} gives everything for {name}=0")
    for call in calls:
        for name in (name for name, value in call.args.items() if type(value) in _UNFIT):
            environment, unfit = copy_deeply(start), {**call.args, name: _UNFIT[type(call.args[name])]}
            _, error = runtime.run_function(environment, call.function, unfit)
            if error and not are_equal(environment, start):
                traps.append(f"{call.function} fails on an unfit {name} and has changed the environment")
    return tuple(traps)


def find_satisfied_attacks(user: AuditedTask, attacks: Sequence[AuditedTask]) -> tuple[str, ...]:
    """Ids of the injection tasks whose check accepts the user task's own ground truth."""
    if user.ground_truth is None:
        return ()
    return tuple(attack.task.ID for attack in attacks if user.stage.is_passed(attack.task, user.ground_truth))


def find_compatible_attacks(user: AuditedTask, attacks: Sequence[AuditedTask]) -> tuple[str, ...]:
    """Ids of the injection tasks, of those with a ground truth, that leave the user task solvable.

    Both ground truths are played on one environment, the attack's first, and the user task is
    checked. Where it fails, a defense that lets the attack through loses utility as well: one
    success excludes the other.
    """
    return tuple(attack.task.ID for attack in attacks if attack.calls and _is_compatible(user, attack))


def _is_compatible(user: AuditedTask, attack: AuditedTask) -> bool:
    try:
        # Worked out anew: it may name what is in the environment, and the user task may prepare its own.
        first = user.stage.find_ground_truth(attack.task, user.start)
    except GroundTruthFailed:
        return False
    return user.accepts([*first, *user.calls]) is True


def find_undone_attacks(user: AuditedTask, attacks: Sequence[AuditedTask]) -> tuple[str, ...]:
    """Ids of the injection tasks that the user's own task hides from their check, done before or after it.

    Such an attack counts as failed though it was carried out, so that the benchmark counts too few.
    """
    if not isinstance(user.task, BaseUserTask):
        return ()
    answer = [text_content_block_from_string(user.task.GROUND_TRUTH_OUTPUT)]
    suite = user.stage.suite
    check = partial(type(suite)._check_task_result, suite)

    def set_in_world(attack: Any) -> AttackInWorld:
        return AttackInWorld(suite, attack, user.start, answer, check)

    return tuple(one.task.ID for one in attacks if one.calls and is_undone(set_in_world(one.task), user.task))


def find_vectors_on_path(subject: AuditedTask) -> tuple[str, ...]:
    """The vectors that attacks write into for this task, by AgentDojo's rule; sorted.

    Empty for an injection task, and for a user task that no attack can reach.
    """
    if subject.ground_truth is None or not isinstance(subject.task, BaseUserTask):
        return ()
    try:
        return tuple(sorted(find_injectable_vectors(subject.stage.suite, subject.task)))
    except Exception:  # noqa: BLE001 - `NotInjectable`, or whatever a foreign ground truth makes of canaries
        return ()


PROBE_TEXT = "text that no data set holds"
"""What stands in a vector while the ground truth is worked out again. One that steers no YAML."""


def find_identifier_vectors(subject: AuditedTask) -> tuple[str, ...]:
    """Vectors whose text turns up in the ground truth's arguments; sorted.

    An attack there turns its whole text into an identifier, which the agent has to copy word for word
    to solve its task.
    """
    if subject.ground_truth is None:
        return ()
    vectors = subject.stage.suite.get_injection_vector_defaults()
    return tuple(sorted(vector for vector in vectors if _is_altering_calls(subject, vector)))


def _is_altering_calls(subject: AuditedTask, vector: str) -> bool:
    try:
        start = subject.stage.start_environment(subject.task, {vector: PROBE_TEXT})
        calls = subject.stage.find_ground_truth(subject.task, start)
    except (GroundTruthFailed, ValueError):  # the name is gone altogether
        return True
    return calls != subject.calls


def find_overwritten_vectors(
    subject: AuditedTask, on_path: Iterable[str], words: VectorWords
) -> tuple[str, ...]:
    """Vectors on the task's path whose default is the only place of something the task needs.

    Needed is what stands in an argument of a call that changes the environment, or in the answer, and
    neither in the prompt nor anywhere else in the data.
    """
    if subject.ground_truth is None:
        return ()
    writes = subject.stage.find_writing_calls(subject.start, subject.calls)
    arguments = [text for place in writes for text in iterate_texts(subject.calls[place].args)]
    needed = split_words([*arguments, subject.task.GROUND_TRUTH_OUTPUT])
    needed -= split_words([subject.task.PROMPT])
    return tuple(sorted(vector for vector in on_path if needed & words.find_words_only_in(vector)))
