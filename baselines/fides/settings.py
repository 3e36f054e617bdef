"""`FidesSettings`: one variant of FIDES."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentsys.options import AtLeast1

PlannerKind = Literal["fides", "variables", "basic"]
LabelKind = Literal["benchmark", "strict"]
HideKind = Literal["integrity", "both"]


@dataclass(frozen=True)
class FidesSettings:
    """What a variant does. Options as in `Fides`, which explains them."""

    planner: PlannerKind = "fides"
    policies: bool = True
    labels: LabelKind = "benchmark"
    hide: HideKind = "integrity"
    max_rounds: AtLeast1 = 15
    query_attempts: AtLeast1 = 2
