"""`attacks_satisfied`: attacks that a user task, done honestly, carries out by itself."""

from __future__ import annotations

from collections.abc import Sequence

from agentsys.audit.static.audited_task import Subject


def attacks_satisfied(user: Subject, attacks: Sequence[Subject]) -> tuple[str, ...]:
    """Ids of the injection tasks whose check accepts the user task's own ground truth."""
    if user.own is None:
        return ()
    return tuple(attack.task.ID for attack in attacks if user.stage.passes(attack.task, user.own))
