"""`FidesSettings`: one variant of FIDES."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    max_rounds: int = 15
    query_attempts: int = 2
