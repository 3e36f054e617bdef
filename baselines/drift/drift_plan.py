"""`DriftPlan` and `PlanProgress`: the plan of a task, what of it is done, and why a call is refused.

The plan is made before any result is seen; `follow_plan` compares calls with it, place by place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from agentsys.models.chat import ChatModel, ToolSpec
from agentsys.models.prompted_tools import text_between_tags, write_tools
from agentsys.models.trace import span
from baselines.drift.drift_settings import ask_role
from baselines.drift.prompts import PLANNER, REFUSED_ARGUMENTS, REFUSED_REPEAT, REFUSED_UNPLANNED

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
        plan = read_drift_plan(
            ask_role(model, PLANNER_ROLE, "\n\n".join([PLANNER, write_tools(tools), environment]), query)
        )
        opened.decision = {"plan": list(plan.trajectory), "checklist": plan.checklist}
    return plan


REFUSAL_MARK = "[CALL ERROR]"
"""First words of every refusal. The reference keeps its loop going by them."""


@dataclass(frozen=True)
class UnplannedCall:
    """A call that is neither planned nor allowed beside the plan."""

    name: str
    extended: tuple[str, ...]
    """The plan with the call in it."""
    plan: tuple[str, ...]
    achieved: tuple[str, ...]

    def decision_data(self) -> dict[str, Any]:
        """The refusal as the trace holds it."""
        lists = {"extended": self.extended, "plan": self.plan, "achieved": self.achieved}
        return {"kind": "unplanned", "name": self.name, **{key: list(names) for key, names in lists.items()}}

    def write_refusal(self, query: str) -> str:
        """The words that the actor reads. The judge's reason is not among them."""
        return REFUSED_UNPLANNED.format(
            mark=REFUSAL_MARK,
            name=self.name,
            extended=list(self.extended),
            plan=list(self.plan),
            achieved=list(self.achieved),
            query=query,
        )


@dataclass(frozen=True)
class ChecklistMismatch:
    """Calls that do not agree with the checklist."""

    cause: str
    """`name`, `missing` or `value`."""
    place: int
    """Index, in the batch, of the call that does not agree."""
    reason: str
    """One sentence."""
    calls: tuple[FunctionCall, ...]
    """The whole batch."""
    checklist: str

    def decision_data(self) -> dict[str, Any]:
        """The refusal as the trace holds it."""
        return {
            "kind": "checklist",
            "cause": self.cause,
            "place": self.place,
            "reason": self.reason,
            "checklist": self.checklist,
        }

    def write_refusal(self, query: str) -> str:
        """The words that the actor reads."""
        return REFUSED_ARGUMENTS.format(
            mark=REFUSAL_MARK,
            calls=calls_as_text(self.calls),
            reason=self.reason,
            checklist=self.checklist,
            query=query,
        )


@dataclass(frozen=True)
class RepeatedCalls:
    """Actions that have been made before, with nothing new beside them."""

    calls: tuple[FunctionCall, ...]

    def decision_data(self) -> dict[str, Any]:
        """The refusal as the trace holds it."""
        return {"kind": "repeat"}

    def write_refusal(self, query: str) -> str:
        """The words that the actor reads."""
        return REFUSED_REPEAT.format(mark=REFUSAL_MARK, calls=calls_as_text(self.calls), query=query)


DriftRefusal = UnplannedCall | ChecklistMismatch | RepeatedCalls


def calls_as_data(calls: Sequence[FunctionCall]) -> list[dict[str, Any]]:
    """Calls as JSON-ready data: name and arguments."""
    return [{"function": call.function, "args": json.loads(args_as_text(call))} for call in calls]


def calls_as_text(calls: Sequence[FunctionCall]) -> str:
    """Calls as one line of JSON."""
    return json.dumps(calls_as_data(calls), ensure_ascii=False)


def args_as_text(call: FunctionCall) -> str:
    """A call's arguments as JSON, what JSON has no form for as text."""
    return json.dumps(dict(call.args), ensure_ascii=False, default=str)


MayExtend = Callable[[str, tuple[str, ...], tuple[str, ...]], bool]
"""Name of an unplanned call, the plan with it, the plan without it -> whether it may be made."""


@dataclass(frozen=True)
class PlanProgress:
    """The plan as it stands, and what of it is done."""

    plan: tuple[str, ...] = ()
    achieved: tuple[str, ...] = ()
    """Names of the calls accepted so far, in order."""
    checklist: str = NO_CHECKLIST
    """Text of the checklist; entry i belongs to `plan[i]` as long as it is JSON."""


@dataclass(frozen=True)
class PlanCheck:
    """Outcome of the check against the plan."""

    progress: PlanProgress
    """With the batch, if it was accepted; with what was accepted of it up to the refused name, if not."""
    refusal: UnplannedCall | None = None


def follow_plan(progress: PlanProgress, names: Sequence[str], may_extend: MayExtend) -> PlanCheck:
    """Hold the calls so far and a batch against the plan, place by place.

    A name that does not stand at its place is put in there, with an open entry in the checklist, if
    `may_extend` says so; the first one it refuses ends the check.
    """
    walk = (*progress.achieved, *names)
    for index, name in enumerate(walk):
        plan = progress.plan
        if index < len(plan) and plan[index] == name:
            continue
        extended = (*plan[:index], name, *plan[index:])
        if not may_extend(name, extended, plan):
            return PlanCheck(progress, UnplannedCall(name, extended, plan, progress.achieved))
        opened = insert_open_entry(progress.checklist, index, name)
        progress = PlanProgress(extended, walk[: index + 1], opened)
    return PlanCheck(replace(progress, achieved=walk))


def insert_open_entry(checklist: str, index: int, name: str) -> str:
    """The checklist with an entry that asks nothing, at a place.

    A checklist that is not JSON gets none, and is quoted once more, as in the reference implementation;
    with `FORMAT_ONCE` there is no such checklist.
    """
    try:
        entries = json.loads(checklist)
    except (ValueError, RecursionError):
        entries = checklist
    if isinstance(entries, list):
        entries.insert(index, {"name": name, "required parameters": None, "conditions": None})
    return json.dumps(entries)
