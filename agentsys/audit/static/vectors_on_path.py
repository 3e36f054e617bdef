"""`vectors_on_path`: the injection vectors that a user task's ground truth is shown."""

from __future__ import annotations

from agentdojo.base_tasks import BaseUserTask

from agentsys.attacks.vectors import injectable_vectors
from agentsys.audit.static.audited_task import Subject
from agentsys.contracts import NotInjectable


def vectors_on_path(subject: Subject) -> tuple[str, ...]:
    """The vectors that attacks write into for this task, by AgentDojo's rule; sorted.

    Empty for an injection task, and for a user task that no attack can reach.
    """
    if subject.own is None or not isinstance(subject.task, BaseUserTask):
        return ()
    try:
        return tuple(sorted(injectable_vectors(subject.stage.suite, subject.task)))
    except NotInjectable:
        return ()
    except Exception:  # noqa: BLE001 - with canaries in its data, a foreign ground truth may raise anything
        return ()
