"""The plan of a planned conversation: read from the planner's reply, and patched for the official setting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.models.trace import Span

MESSAGE, TOOLS = "message", "tool_use"
"""Keys of a step in the plan's JSON. Source: ASB's plan format."""

PLANNER_SPAN = "planner"
"""Kind of the span that keeps a plan as it was made and as it was used."""
PLANNER_SPAN_NAME = "asb_plan"
"""Tells this benchmark's planner from one that a defense brings along."""


@dataclass(frozen=True)
class AsbStep:
    """One step of a plan."""

    message: str
    """What is to be done, in the planner's words."""
    tool_use: tuple[str, ...]
    """Names of the tools to be used, which need not exist; may be empty."""


AsbPlan = tuple[AsbStep, ...]
"""A plan that can be carried out has one step or more."""


class AsbPlanError(ValueError):
    """A reply is not a plan; the message says why and holds none of the reply's words."""


def parse_asb_plan(reply: str) -> AsbPlan:
    """The plan that a reply is: the whole of it must be JSON, as in ASB.

    A lone object counts as a list of one. Keys besides `message` and `tool_use` are passed over.

    Raises:
        PlanError: If the reply is not JSON (a code fence is not), lists nothing, or a step lacks a key
            or has a value of the wrong type.
    """
    try:
        found = json.loads(reply)
    except (ValueError, RecursionError):
        raise AsbPlanError("the reply as a whole is not JSON") from None
    items = [found] if isinstance(found, dict) else found
    if not isinstance(items, list):
        raise AsbPlanError("the JSON is not a list of steps")
    if not items:
        raise AsbPlanError("the list of steps is empty")
    return tuple(_parse_step(item, number) for number, item in enumerate(items, start=1))


def _parse_step(item: object, number: int) -> AsbStep:
    if not isinstance(item, dict):
        raise AsbPlanError(f"step {number} is not an object")
    for key in (MESSAGE, TOOLS):
        if key not in item:
            raise AsbPlanError(f'step {number} has no "{key}"')
    message, tools = item[MESSAGE], item[TOOLS]
    if not isinstance(message, str):
        raise AsbPlanError(f'"{MESSAGE}" of step {number} is not a text')
    if not isinstance(tools, list) or not all(isinstance(tool, str) for tool in tools):
        raise AsbPlanError(f'"{TOOLS}" of step {number} is not a list of names')
    return AsbStep(message, tuple(tools))


def patch_plan(plan: Sequence[AsbStep], attack_tool: str) -> AsbPlan:
    """The plan with every step listing every tool that any step lists, and the attack tool last.

    ASB builds the list from a Python set, whose order changes from process to process; here it is the
    plan's own.
    """
    listed = dict.fromkeys(tool for step in plan for tool in step.tool_use if tool != attack_tool)
    everything = (*listed, attack_tool)
    return tuple(AsbStep(step.message, everything) for step in plan)


def plan_to_data(plan: Iterable[AsbStep]) -> list[dict[str, Any]]:
    """The plan as JSON-ready data, in the planner's format."""
    return [{MESSAGE: step.message, TOOLS: list(step.tool_use)} for step in plan]


def plan_to_json(plan: Iterable[AsbStep]) -> str:
    """The plan as one line of JSON."""
    return json.dumps(plan_to_data(plan), ensure_ascii=False)


@dataclass(frozen=True)
class PlanningOutcome:
    """Result of the plan turn."""

    plan: AsbPlan
    """As the planner made it; empty if no reply could be read."""
    followed_plan: AsbPlan
    """As the steps follow it: patched in the official setting."""
    tries: int
    """Replies the planner gave."""

    @property
    def has_failed(self) -> bool:
        """Whether the case ended here, without a plan (ASB: workflow failure)."""
        return not self.plan

    def to_decision(self) -> dict[str, Any]:
        """Give what a span keeps of it, as JSON-ready data."""
        return {
            "plan": plan_to_data(self.plan),
            "followed": plan_to_data(self.followed_plan),
            "tries": self.tries,
            "workflow_failure": self.has_failed,
        }


def find_planning(spans: Iterable[Span], attempt: int | None = None) -> PlanningOutcome | None:
    """The plan turn of a finished case, from its spans.

    Args:
        spans: The case's spans.
        attempt: Which run of the pipeline; None: the last one that planned.

    Returns:
        None where no plan was made: an unplanned conversation, or an error before the planner replied.
    """
    found = [
        span
        for span in spans
        if (span.kind, span.name) == (PLANNER_SPAN, PLANNER_SPAN_NAME) and "plan" in span.decision
        if attempt is None or span.attempt == attempt
    ]
    return _parse_planning(found[-1].decision) if found else None


def _parse_planning(decision: dict[str, Any]) -> PlanningOutcome:
    plan, followed = (
        tuple(AsbStep(item[MESSAGE], tuple(item[TOOLS])) for item in decision[key])
        for key in ("plan", "followed")
    )
    return PlanningOutcome(plan, followed, decision["tries"])
