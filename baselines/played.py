"""What defenses with models of their own have in common: roles that the simulated model plays, and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from agentsys.models.simulated.role import SimulatedRole


class PlayedDefense:
    """A defense that asks models under roles of its own."""

    roles: ClassVar[Mapping[str, SimulatedRole]]
    """Role -> how the simulated model plays it."""

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Give the simulated model's play of this defense's roles."""
        return self.roles


class AgentDefense(PlayedDefense):
    """One that is an agent of its own, whose texts no option changes."""

    texts: ClassVar[Mapping[str, str]]
    """Name -> text of every prompt."""

    def prompts(self) -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        return dict(self.texts)
