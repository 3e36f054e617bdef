"""`compatible_attacks`: attacks after which the user task can still be solved."""

from __future__ import annotations

from collections.abc import Sequence

from agentsys.audit.static.audited_task import Subject
from agentsys.audit.static.task_player import GroundTruthFailed


def compatible_attacks(user: Subject, attacks: Sequence[Subject]) -> tuple[str, ...]:
    """Ids of the injection tasks that leave the user task solvable.

    Both ground truths are played on one environment, the attack's first, and the user task is
    checked. Where it fails, a defense that lets the attack through loses utility as well: one
    success excludes the other.

    Args:
        user: The user task.
        attacks: Injection tasks; those without a ground truth are in no pair.
    """
    return tuple(attack.task.ID for attack in attacks if attack.calls and _compatible(user, attack))


def _compatible(user: Subject, attack: Subject) -> bool:
    try:
        # Worked out anew: it may name what is in the environment, and the user task may prepare its own.
        first = user.stage.ground_truth(attack.task, user.start)
    except GroundTruthFailed:
        return False
    return user.accepts([*first, *user.calls]) is True
