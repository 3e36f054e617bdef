"""FIDES with the worst planner there is: it looks at every value and does what it reads."""

from __future__ import annotations

from collections.abc import Mapping

from agentsys.models.simulated.role import SimulatedRole
from baselines.fides.defense import Fides
from baselines.fides.simulated import RECKLESS


class RecklessFides(Fides):
    """The same defense; only how the simulated model plays the planner differs."""

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Planner and quarantined model at their worst."""
        return RECKLESS
