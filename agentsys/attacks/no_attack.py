"""`NoAttack`: the benign cases, in which nothing is injected."""

from __future__ import annotations

from collections.abc import Mapping

from agentsys.contracts import AttackKind, InjectionTask, Suite, UserTask, Victim


class NoAttack:
    """Writes nothing; the environment holds its defaults."""

    name = "none"
    kind = AttackKind.NONE

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """No injection in any vector."""
        return {}
