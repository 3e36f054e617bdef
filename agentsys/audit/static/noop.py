"""`noop_passes`: does a task pass when nothing is done?"""

from __future__ import annotations

from agentsys.audit.static.audited_task import Subject


def noop_passes(subject: Subject) -> bool:
    """Whether the check accepts an agent that makes no call and gives an empty answer.

    For a user task that flatters defenses that block or abort; for an injection task it counts
    attacks that never happened.
    """
    nothing = subject.stage.play(subject.start, (), "")
    return subject.stage.passes(subject.task, nothing)
