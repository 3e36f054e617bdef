"""`own_ground_truth`: does a task pass when it is done as its author did it?"""

from __future__ import annotations

from agentsys.audit.static.audited_task import Subject


def own_ground_truth(subject: Subject) -> bool | None:
    """Whether the check accepts the task's own ground truth.

    Returns:
        None where there is no ground truth that can be played.
    """
    return None if subject.own is None else subject.passes
