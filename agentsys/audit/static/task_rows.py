"""What an audit says of one task: `UserTaskAudit` and `InjectionTaskAudit`, one row each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsys.audit.static.audited_task import Subject
from agentsys.audit.static.empty_ground_truth import empty_ground_truth
from agentsys.audit.static.identifier_vector import identifier_vectors
from agentsys.audit.static.non_idempotent_check import changes_what_it_checks
from agentsys.audit.static.noop import noop_passes
from agentsys.audit.static.overwritten import overwritten
from agentsys.audit.static.own_ground_truth import own_ground_truth
from agentsys.audit.static.pair_compatible import compatible_attacks
from agentsys.audit.static.reads_that_break import reads_that_break
from agentsys.audit.static.repeat_safe import repeat_safe
from agentsys.audit.static.security_on_user_ground_truth import attacks_satisfied
from agentsys.audit.static.surviving_mutations import Mutation, surviving_mutations
from agentsys.audit.static.vector_words import VectorWords
from agentsys.audit.static.vectors_on_path import vectors_on_path


@dataclass(frozen=True)
class UserTaskAudit:
    """One user task."""

    task: str
    noop_utility: bool = False
    """An agent that does nothing solves it."""
    own_ground_truth: bool | None = True
    """Its own ground truth solves it; None if that cannot be played."""
    empty_ground_truth: bool = False
    security_on_user_ground_truth: tuple[str, ...] = ()
    """Injection tasks that its ground truth carries out."""
    pair_compatible: tuple[str, ...] = ()
    """Injection tasks after whose ground truth it can still be solved."""
    repeat_safe: bool | None = True
    """Its ground truth twice solves it; None if there is nothing to repeat."""
    reads_that_break: tuple[str, ...] = ()
    """Argument-free tools whose one call beforehand makes it fail."""
    surviving_mutations: tuple[Mutation, ...] = ()
    overwritten: tuple[str, ...] = ()
    """Vectors on its path whose default holds what it needs."""
    identifier_vector: tuple[str, ...] = ()
    """Vectors whose text its ground truth has to copy."""
    vectors_on_path: tuple[str, ...] = ()
    """Vectors that its ground truth is shown: where attacks write."""
    non_idempotent_check: bool = False
    """Its check changes what it looks at."""


@dataclass(frozen=True)
class InjectionTaskAudit:
    """One injection task."""

    task: str
    noop_security: bool = False
    """An agent that does nothing carries it out."""
    own_ground_truth: bool | None = True
    empty_ground_truth: bool = False
    repeat_safe: bool | None = True
    non_idempotent_check: bool = False


def audit_user_task(user: Subject, attacks: Sequence[Subject], words: VectorWords) -> UserTaskAudit:
    """Every check on a user task.

    Args:
        user: The task.
        attacks: Its suite's injection tasks.
        words: Of its suite.
    """
    path = vectors_on_path(user)
    return UserTaskAudit(
        task=user.task.ID,
        noop_utility=noop_passes(user),
        own_ground_truth=own_ground_truth(user),
        empty_ground_truth=empty_ground_truth(user),
        security_on_user_ground_truth=attacks_satisfied(user, attacks),
        pair_compatible=compatible_attacks(user, attacks),
        repeat_safe=repeat_safe(user),
        reads_that_break=reads_that_break(user),
        surviving_mutations=surviving_mutations(user),
        overwritten=overwritten(user, path, words),
        identifier_vector=identifier_vectors(user),
        vectors_on_path=path,
        non_idempotent_check=changes_what_it_checks(user),
    )


def audit_injection_task(attack: Subject) -> InjectionTaskAudit:
    """Every check on an injection task."""
    return InjectionTaskAudit(
        task=attack.task.ID,
        noop_security=noop_passes(attack),
        own_ground_truth=own_ground_truth(attack),
        empty_ground_truth=empty_ground_truth(attack),
        repeat_safe=repeat_safe(attack),
        non_idempotent_check=changes_what_it_checks(attack),
    )
