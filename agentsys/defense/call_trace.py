"""`CallTrace`: the compact trace, the calls made so far without their results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.defense.intent import Intent
from agentsys.models.user_request import UserRequest


@dataclass(frozen=True)
class TracedCall:
    """One tool call, without its result."""

    tool: str
    args: Mapping[str, Any]
    """The arguments as the tool's schema reads them, without undeclared ones, which the tool never gets."""
    intent: Intent | None
    """The declared return value; None where agents declare none (the no-isolation ablation)."""
    by_worker: bool = False
    """True if a worker made the call: its words may come from an output."""

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        call: dict[str, Any] = {"tool": self.tool, "args": dict(self.args)}
        return call if self.intent is None else {**call, "intent": dict(self.intent)}

    def mask(self, request: UserRequest) -> dict[str, Any]:
        """The call as a validator may see it: a worker's words are masked unless the request has them."""
        if not self.by_worker:
            return self.as_data()
        call = {
            "tool": self.tool,
            "args": {key: request.mask_value(value) for key, value in self.args.items()},
        }
        return call if self.intent is None else {**call, "intent": request.mask_fields(self.intent)}


@dataclass(frozen=True)
class AbandonedCall:
    """A call that ran for an abandoned worker, without its arguments, which the worker wrote."""

    tool: str

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        return {"tool": self.tool}

    def mask(self, request: UserRequest) -> dict[str, Any]:
        """The same data: a tool's name needs no mask."""
        return self.as_data()


TraceEntry = TracedCall | AbandonedCall


class CallTrace:
    """The calls that one agent may know of: those of its ancestors and its own, in order.

    Calls of workers of other outputs are left out: their arguments may quote what they read. A call is added when it
    is about to run, so that refused calls, which an injection may have caused, do not influence the validator's next
    verdict.
    """

    def __init__(self, calls: Sequence[TraceEntry] = ()) -> None:
        self.calls: list[TraceEntry] = list(calls)

    def add(self, call: TraceEntry) -> None:
        """Add a call that is about to run."""
        self.calls.append(call)

    def branch(self, given_up: Sequence[TraceEntry] = ()) -> CallTrace:
        """Copy this trace for a new worker, and append the names of tools that ran for abandoned workers."""
        return CallTrace([*self.calls, *(AbandonedCall(call.tool) for call in given_up)])

    def list_new_calls(self, other: CallTrace) -> Sequence[TraceEntry]:
        """Return the calls added since this trace was branched from `other`."""
        return self.calls[len(other.calls) :]

    def as_json(self) -> str:
        """The trace as one line of JSON, for a worker."""
        return format_json_line([call.as_data() for call in self.calls])

    def as_masked_json(self, request: UserRequest) -> str:
        """The trace as one line of JSON, for a validator."""
        return format_json_line([call.mask(request) for call in self.calls])


def format_json_line(data: object) -> str:
    """Format data as a single line of JSON; values that JSON does not know become strings."""
    return json.dumps(data, ensure_ascii=False, default=str)
