"""`identifier_vectors`: vectors that are part of a name which the user task has to use."""

from __future__ import annotations

from agentsys.audit.static.audited_task import Subject
from agentsys.audit.static.task_player import GroundTruthFailed

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
    return tuple(sorted(vector for vector in vectors if _changes(subject, vector)))


def _changes(subject: Subject, vector: str) -> bool:
    try:
        start = subject.stage.start(subject.task, {vector: PROBE})
        calls = subject.stage.ground_truth(subject.task, start)
    except (GroundTruthFailed, ValueError):  # the name is gone altogether
        return True
    return calls != subject.calls
