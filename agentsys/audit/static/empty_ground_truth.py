"""`empty_ground_truth`: does a task come without the calls that would do it?"""

from __future__ import annotations

from agentsys.audit.static.audited_task import Subject


def empty_ground_truth(subject: Subject) -> bool:
    """Whether the ground truth has no call.

    Such an injection task is text-only, or its author gave no solution; whatever is driven by ground
    truths (simulated agents, attacks that quote tool calls, the package's own suite check) is blind there.
    """
    return not subject.calls
