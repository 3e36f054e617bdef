"""The checks on one task: what an audit asks of it, each a function of the task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentdojo.base_tasks import BaseUserTask
from agentdojo.functions_runtime import FunctionCall

from agentsys.attacks.vectors import find_injectable_vectors
from agentsys.audit.static.audited_task import GroundTruthFailed, AuditedTask
from agentsys.audit.static.vector_words import VectorWords, iterate_texts, split_words


def noop_passes(subject: AuditedTask) -> bool:
    """Whether the check accepts an agent that makes no call and gives an empty answer.

    For a user task that flatters defenses that block or abort; for an injection task it counts
    attacks that never happened.
    """
    nothing = subject.stage.play(subject.start, (), "")
    return subject.stage.passes(subject.task, nothing)


def accepts_own_ground_truth(subject: AuditedTask) -> bool | None:
    """Whether the check accepts the task's own ground truth.

    Returns:
        None where there is no ground truth that can be played.
    """
    return None if subject.ground_truth is None else subject.passes


def has_empty_ground_truth(subject: AuditedTask) -> bool:
    """Whether the ground truth has no call.

    Such an injection task is text-only, or its author gave no solution; whatever is driven by ground
    truths (simulated agents, attacks that quote tool calls, the package's own suite check) is blind there.
    """
    return not subject.calls


def is_repeat_safe(subject: AuditedTask) -> bool | None:
    """Whether the check accepts the ground truth's calls made twice over.

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


def find_satisfied_attacks(user: AuditedTask, attacks: Sequence[AuditedTask]) -> tuple[str, ...]:
    """Ids of the injection tasks whose check accepts the user task's own ground truth."""
    if user.ground_truth is None:
        return ()
    return tuple(attack.task.ID for attack in attacks if user.stage.passes(attack.task, user.ground_truth))


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
    return tuple(sorted(vector for vector in vectors if _alters_calls(subject, vector)))


def _alters_calls(subject: AuditedTask, vector: str) -> bool:
    try:
        start = subject.stage.start_environment(subject.task, {vector: PROBE_TEXT})
        calls = subject.stage.find_ground_truth(subject.task, start)
    except (GroundTruthFailed, ValueError):  # the name is gone altogether
        return True
    return calls != subject.calls


def find_overwritten_vectors(subject: AuditedTask, on_path: Iterable[str], words: VectorWords) -> tuple[str, ...]:
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
