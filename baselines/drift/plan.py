"""The plan: what the planner's reply says, before anything is seen of what tools return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsys.models.chat import ChatModel, ToolSpec
from agentsys.models.prompted_tools import text_between_tags, write_tools
from agentsys.models.trace import span
from baselines.drift.asking import ask_role
from baselines.drift.prompts import PLANNER

PLANNER_ROLE = "drift_planner"
TRAJECTORY, CHECKLIST = "function_trajectory", "parameter_checklist"
"""Tags of the two sections that are read; the planner's analysis and thoughts are for itself."""
NO_CHECKLIST = "None"


@dataclass(frozen=True)
class DriftPlan:
    """A planner's answer."""

    trajectory: tuple[str, ...] = ()
    """Tool names in order; not checked against the tools there are."""
    checklist: str = NO_CHECKLIST
    """The checklist as it was written: JSON, a Python literal, or neither."""


def read_drift_plan(reply: str) -> DriftPlan:
    """The plan in a planner's reply. A section that is missing is empty, and is not asked for again."""
    names = text_between_tags(reply, TRAJECTORY)
    checklist = text_between_tags(reply, CHECKLIST)
    return DriftPlan(
        _read_names(names) if names is not None else (), NO_CHECKLIST if checklist is None else checklist
    )


def _read_names(text: str) -> tuple[str, ...]:
    inside = text.strip().removeprefix("[").removesuffix("]")
    return tuple(name for piece in inside.split(",") if (name := piece.strip().strip("\"'`").strip()))


def make_drift_plan(model: ChatModel, query: str, tools: Sequence[ToolSpec], environment: str) -> DriftPlan:
    """Ask for the plan of a request.

    Raises:
        ModelError: If the model gave no reply.
    """
    with span(PLANNER_ROLE) as opened:
        plan = read_drift_plan(ask_role(model, PLANNER_ROLE, "\n\n".join([PLANNER, write_tools(tools), environment]), query))
        opened.decision = {"plan": list(plan.trajectory), "checklist": plan.checklist}
    return plan
