"""`NoAttack`: benign cases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.contracts import AttackKind, Victim


class NoAttack:
    """Writes nothing; the environment holds its defaults."""

    name = "none"
    kind = AttackKind.NONE

    def injections(
        self,
        suite: TaskSuite[Any],
        user_task: BaseUserTask[Any],
        injection_task: BaseInjectionTask[Any],
        victim: Victim,
    ) -> Mapping[str, str]:
        """No injection in any vector."""
        return {}
