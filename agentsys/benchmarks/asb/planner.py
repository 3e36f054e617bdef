"""The plan turn: the model is asked for a plan, without tools, until a reply is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentdojo.types import ChatMessage

from agentsys.benchmarks.asb.plan import PLANNER_SPAN, PLANNER_SPAN_NAME, AsbPlan, AsbPlanError, PlanningOutcome, patch_plan, parse_asb_plan
from agentsys.benchmarks.asb.plan_prompt import AGAIN, write_unusable_plan
from agentsys.models.chat import ChatModel, ChatRequest, assistant, user
from agentsys.models.providers.wire_text import visible_text
from agentsys.models.trace import span

PLANNER_ROLE = "asb_planner"
"""The role that planning calls are booked under. Not an acting role: nothing has been read yet."""

MAX_TRIES = 10
"""Replies before the case ends without a plan. ASB's number, as in DRIFT's copy."""


@dataclass(frozen=True)
class PlanTurn:
    """The plan turn as the conversation goes on from it."""

    planning: PlanningOutcome
    notes: tuple[ChatMessage, ...]
    """What stands in the conversation for replies that were no plan."""


def ask_for_plan(
    model: ChatModel, request: ChatRequest, opening: Sequence[ChatMessage], patch: str | None
) -> PlanTurn:
    """Ask for a plan.

    Args:
        model: The model that plans.
        request: The agent's first request; sampling settings are taken from it.
        opening: The conversation up to the user's task, the planning instruction included.
        patch: The attack tool that every step is to list (see `patched`); None leaves the plan alone.

    Raises:
        ModelError: If the model gave no reply.
    """
    with span(PLANNER_SPAN, PLANNER_SPAN_NAME) as opened:
        asked = list(opening)
        plan: AsbPlan = ()
        tries = 0
        while not plan and tries < MAX_TRIES:
            tries += 1
            reply = model.complete(build_planner_request(request, asked)).message
            opened.messages = [*asked, reply]
            try:
                plan = parse_asb_plan(visible_text(reply))
            except AsbPlanError as error:
                asked += [assistant(write_unusable_plan(str(error))), user(AGAIN)]
        planning = PlanningOutcome(plan, patch_plan(plan, patch) if patch is not None else plan, tries)
        opened.decision = planning.to_decision()
    return PlanTurn(planning, tuple(asked[len(opening) :]))


def build_planner_request(request: ChatRequest, asked: Sequence[ChatMessage]) -> ChatRequest:
    """The agent's request turned into the planner's: no tools, and no form but JSON."""
    return replace(request, messages=tuple(asked), tools=(), role=PLANNER_ROLE, reply_schema=None, tool_choice="auto")
