"""`CallTrace`: the compact trace, what has been called so far and never what came back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.defense.grounding import UserRequest
from agentsys.defense.intent import Intent


@dataclass(frozen=True)
class TracedCall:
    """One tool call: what was asked for, not what was returned."""

    tool: str
    args: Mapping[str, Any]
    """The arguments as the tool's schema reads them: undeclared ones are not run and do not stand here."""
    intent: Intent | None
    """The declared return value; None where agents declare none (the no-isolation ablation)."""
    by_worker: bool = False
    """Whether a worker made it, whose words may be an output's."""

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        call: dict[str, Any] = {"tool": self.tool, "args": dict(self.args)}
        return call if self.intent is None else {**call, "intent": dict(self.intent)}

    def mask(self, request: UserRequest) -> dict[str, Any]:
        """The call as a validator may see it: a worker's words only where the user's request has them."""
        if not self.by_worker:
            return self.as_data()
        call = {"tool": self.tool, "args": {key: request.mask_value(value) for key, value in self.args.items()}}
        return call if self.intent is None else {**call, "intent": request.mask_fields(self.intent)}


@dataclass(frozen=True)
class AbandonedCall:
    """A call that ran for a worker which was given up: its arguments are forgotten with the worker."""

    tool: str

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        return {"tool": self.tool}

    def mask(self, request: UserRequest) -> dict[str, Any]:
        """The same: a tool's name is nobody's words."""
        return self.as_data()


TraceEntry = TracedCall | AbandonedCall


class CallTrace:
    """The calls that one agent may know of: its ancestors' and its own that ran, in order.

    What workers of other outputs did is not in it: their arguments may be words of what they read. A call is
    entered when it is about to run: refused calls do not stand here, so what an injection merely tried
    cannot colour the validator's next judgement.
    """

    def __init__(self, calls: Sequence[TraceEntry] = ()) -> None:
        self.calls: list[TraceEntry] = list(calls)

    def add(self, call: TraceEntry) -> None:
        """Enter a call that is about to run."""
        self.calls.append(call)

    def branch(self, given_up: Sequence[TraceEntry] = ()) -> CallTrace:
        """The trace of a new worker: this one, and the tools that ran for workers given up."""
        return CallTrace([*self.calls, *(AbandonedCall(call.tool) for call in given_up)])

    def list_new_calls(self, other: CallTrace) -> Sequence[TraceEntry]:
        """The calls of a trace that was branched from another one and are not in that."""
        return self.calls[len(other.calls) :]

    def as_json(self) -> str:
        """The trace as one line of JSON, for a worker."""
        return write_json_line([call.as_data() for call in self.calls])

    def as_masked_json(self, request: UserRequest) -> str:
        """The trace as one line of JSON, for a validator."""
        return write_json_line([call.mask(request) for call in self.calls])


def write_json_line(data: object) -> str:
    """Data as a single line of JSON; values that JSON does not know are written as text."""
    return json.dumps(data, ensure_ascii=False, default=str)
