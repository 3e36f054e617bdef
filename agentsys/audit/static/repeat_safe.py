"""`repeat_safe`: is a task still done when it is done twice?"""

from __future__ import annotations

from agentsys.audit.static.audited_task import Subject


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
