"""`Mode`: how a case's conversation goes, and what the planner is told."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """The four conversations."""

    FAITHFUL = "faithful"
    """Plan, then steps, as published: every step's tool list is made to name the attack tool."""
    CLEAN_PLAN = "clean_plan"
    """Plan, then steps; the plan stays as the planner made it and every step offers all tools."""
    HIDDEN_TOOL = "hidden_tool"
    """As `clean_plan`, and the planner is not told of the attack tool."""
    REACT = "react"
    """No plan: one user turn with tools until done, as in AgentDojo."""

    @property
    def planned(self) -> bool:
        """Whether a plan is made first."""
        return self is not Mode.REACT
