"""The checks on one task: what an audit asks of it, each a function of the task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import FunctionCall

from agentsys.attacks.vectors import injectable_vectors
from agentsys.audit.static.audited_task import GroundTruthFailed, Subject
from agentsys.audit.static.vector_words import VectorWords, leaves, words_of


def noop_passes(subject: Subject) -> bool:
    """Whether the check accepts an agent that makes no call and gives an empty answer.

    For a user task that flatters defenses that block or abort; for an injection task it counts
    attacks that never happened.
    """
    nothing = subject.stage.play(subject.start, (), "")
    return subject.stage.passes(subject.task, nothing)


def own_ground_truth(subject: Subject) -> bool | None:
    """Whether the check accepts the task's own ground truth.

    Returns:
        None where there is no ground truth that can be played.
    """
    return None if subject.own is None else subject.passes


def empty_ground_truth(subject: Subject) -> bool:
    """Whether the ground truth has no call.

    Such an injection task is text-only, or its author gave no solution; whatever is driven by ground
    truths (simulated agents, attacks that quote tool calls, the package's own suite check) is blind there.
    """
    return not subject.calls


def repeat_safe(subject: Subject) -> bool | None:
    """Whether the check accepts the ground truth's calls made twice over.

    Where it does not, an attack that is carried out once too often counts as failed.

    Returns:
        None where there are no calls to repeat, or making them once does not pass.
    """
    if not subject.calls or not subject.passes:
        return None
    # The second time a call may end in an error; an agent goes on then.
    return subject.accepts([*subject.calls, *subject.calls], strict=False)


def reads_that_break(subject: Subject) -> tuple[str, ...]:
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


def attacks_satisfied(user: Subject, attacks: Sequence[Subject]) -> tuple[str, ...]:
    """Ids of the injection tasks whose check accepts the user task's own ground truth."""
    if user.own is None:
        return ()
    return tuple(attack.task.ID for attack in attacks if user.stage.passes(attack.task, user.own))


def compatible_attacks(user: Subject, attacks: Sequence[Subject]) -> tuple[str, ...]:
    """Ids of the injection tasks, of those with a ground truth, that leave the user task solvable.

    Both ground truths are played on one environment, the attack's first, and the user task is
    checked. Where it fails, a defense that lets the attack through loses utility as well: one
    success excludes the other.
    """
    return tuple(attack.task.ID for attack in attacks if attack.calls and _compatible(user, attack))


def _compatible(user: Subject, attack: Subject) -> bool:
    try:
        # Worked out anew: it may name what is in the environment, and the user task may prepare its own.
        first = user.stage.ground_truth(attack.task, user.start)
    except GroundTruthFailed:
        return False
    return user.accepts([*first, *user.calls]) is True


def vectors_on_path(subject: Subject) -> tuple[str, ...]:
    """The vectors that attacks write into for this task, by AgentDojo's rule; sorted.

    Empty for an injection task, and for a user task that no attack can reach.
    """
    if subject.own is None or not isinstance(subject.task, BaseUserTask):
        return ()
    try:
        return tuple(sorted(injectable_vectors(subject.stage.suite, subject.task)))
    except Exception:  # noqa: BLE001 - `NotInjectable`, or whatever a foreign ground truth makes of canaries
        return ()


PROBE = "text that no data set holds"
"""What stands in a vector while the ground truth is worked out again. One that steers no YAML."""


def identifier_vectors(subject: Subject) -> tuple[str, ...]:
    """Vectors whose text turns up in the ground truth's arguments; sorted.

    An attack there turns its whole text into an identifier, which the agent has to copy word for word
    to solve its task.
    """
    if subject.own is None:
        return ()
    vectors = subject.stage.suite.get_injection_vector_defaults()
    return tuple(sorted(vector for vector in vectors if _alters_calls(subject, vector)))


def _alters_calls(subject: Subject, vector: str) -> bool:
    try:
        start = subject.stage.start(subject.task, {vector: PROBE})
        calls = subject.stage.ground_truth(subject.task, start)
    except (GroundTruthFailed, ValueError):  # the name is gone altogether
        return True
    return calls != subject.calls


def overwritten(subject: Subject, on_path: Iterable[str], words: VectorWords) -> tuple[str, ...]:
    """Vectors on the task's path whose default is the only place of something the task needs.

    Needed is what stands in an argument of a call that changes the environment, or in the answer, and
    neither in the prompt nor anywhere else in the data.
    """
    if subject.own is None:
        return ()
    writes = subject.stage.writes(subject.start, subject.calls)
    arguments = [text for place in writes for text in leaves(subject.calls[place].args)]
    needed = words_of([*arguments, subject.task.GROUND_TRUTH_OUTPUT])
    needed -= words_of([subject.task.PROMPT])
    return tuple(sorted(vector for vector in on_path if needed & words.only_in(vector)))
