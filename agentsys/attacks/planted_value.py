"""`PlantedValue`: writes data in place of data: no instruction, nothing that a filter for one could find."""

from __future__ import annotations

from collections.abc import Mapping

from agentsys.attacks.literal import written_for
from agentsys.attacks.vectors import injectable_vectors
from agentsys.contracts import AttackKind, InjectionTask, NotInjectable, Suite, UserTask, Victim
from agentsys.errors import ConfigError


class PlantedValue:
    """Writes what an injection task of planted data (`benchmark=values`) wants to stand in its vector."""

    kind = AttackKind.TARGETED
    left_out = "has no value to plant for"

    def __init__(self, name: str = "planted_value") -> None:
        self.name = name

    def injections(
        self, suite: Suite, user_task: UserTask, injection_task: InjectionTask, victim: Victim
    ) -> Mapping[str, str]:
        """The planted text, in its vector.

        Raises:
            NotInjectable: If it is not for this user task.
            ConfigError: If the injection task plants nothing.
        """
        if not self.applies_to(suite, user_task, injection_task):
            raise NotInjectable(f"{injection_task.ID} of {suite.name} is not planted for {user_task.ID}.")
        planted = injection_task.planted
        return {injection_task.plant.vector: written_for(suite, planted)}

    def applies_to(self, suite: Suite, user_task: UserTask, injection_task: InjectionTask) -> bool:
        """Whether the value is planted for this user task, which meets its vector.

        Raises:
            ConfigError: If the injection task plants nothing.
        """
        plant = getattr(injection_task, "plant", None)
        if plant is None:
            raise ConfigError(
                f"attack={self.name} plants data of benchmark=values, and {injection_task.ID} of suite"
                f" '{suite.name}' has none; use it with benchmark=values, or another attack here."
            )
        meant = {f"user_task_{number}" for number in plant.users}
        return user_task.ID in meant and plant.vector in injectable_vectors(suite, user_task)
