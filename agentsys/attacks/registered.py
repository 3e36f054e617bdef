"""`RegisteredAttack`: any attack in AgentDojo's registry, with victims that AgentDojo does not know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from agentdojo import attacks as _register_all  # noqa: F401 - importing it fills the registry
from agentdojo.attacks.attack_registry import ATTACKS
from agentdojo.attacks.base_attacks import BaseAttack
from agentdojo.attacks.baseline_attacks import ManualAttack
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.attacks.packaged import addressed
from agentsys.attacks.typed_once import TypedOnce
from agentsys.contracts import AttackKind, Victim
from agentsys.errors import ConfigError, unknown_name
from agentsys.named_module import import_named


class RegisteredAttack:
    """An attack that AgentDojo, or one of `modules`, registers.

    Args:
        name: Its registered name, e.g. `important_instructions`.
        modules: Python modules imported first, so that a fork can register attacks of its own.

    Raises:
        ConfigError: If there is no such attack or module.
    """

    def __init__(self, name: str, modules: Sequence[str] = ()) -> None:
        for module in modules:
            import_named(module, "attack.modules")
        if name not in ATTACKS:
            raise ConfigError(unknown_name("attack of agentdojo", name, ATTACKS))
        self.name = name
        denies = ATTACKS[name].is_dos_attack
        self.kind = AttackKind.DENIAL_OF_SERVICE if denies else AttackKind.TARGETED
        self._typed = TypedOnce() if issubclass(ATTACKS[name], ManualAttack) else None
        self._addressed: dict[tuple[int, Victim], BaseAttack] = {}
        self._lock = Lock()

    def injections(
        self,
        suite: TaskSuite[Any],
        user_task: BaseUserTask[Any],
        injection_task: BaseInjectionTask[Any],
        victim: Victim,
    ) -> Mapping[str, str]:
        """Exactly what the package's attack writes for a victim of these names.

        Raises:
            NotInjectable: If no vector of this user task can carry an injection.
            ConfigError: If a person has to type the text and there is no terminal.
        """
        attack = self._attack(suite, victim)

        def write() -> dict[str, str]:
            return dict(attack.attack(user_task, injection_task))

        if self._typed is not None:
            return self._typed.texts((suite.name, user_task.ID, injection_task.ID), write)
        return write()

    def _attack(self, suite: TaskSuite[Any], victim: Victim) -> BaseAttack:
        """One object per suite object and victim; it holds the suite, so the id is not given away."""
        key = (id(suite), victim)
        with self._lock:
            if key not in self._addressed:
                self._addressed[key] = addressed(self.name, suite, victim)
            return self._addressed[key]
