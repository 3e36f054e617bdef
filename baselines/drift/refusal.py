"""Refusals: what was refused and why, as data for the trace and as words for the actor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.functions_runtime import FunctionCall

from baselines.drift.prompts import REFUSED_ARGUMENTS, REFUSED_REPEAT, REFUSED_UNPLANNED

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
