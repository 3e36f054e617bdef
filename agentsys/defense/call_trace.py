"""`CallTrace`: the compact trace, what has been called so far and never what came back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsys.defense.intent import Intent


@dataclass(frozen=True)
class TracedCall:
    """One tool call: what was asked for, not what was returned."""

    tool: str
    args: Mapping[str, Any]
    intent: Intent | None
    """The declared return value; None where agents declare none (the no-isolation ablation)."""

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        call: dict[str, Any] = {"tool": self.tool, "args": dict(self.args)}
        return call if self.intent is None else {**call, "intent": dict(self.intent)}


@dataclass
class CallTrace:
    """The calls that ran, of all agents of a case, in order. One object, shared by all of them.

    A call is entered when it is about to run: refused calls do not stand here, so what an injection
    merely tried cannot colour the validator's next judgement.
    """

    calls: list[TracedCall] = field(default_factory=list)

    def add(self, call: TracedCall) -> None:
        """Enter a call that is about to run."""
        self.calls.append(call)

    def as_json(self) -> str:
        """The trace as one line of JSON."""
        return one_line([call.as_data() for call in self.calls])


def one_line(data: object) -> str:
    """Data as a single line of JSON; values that JSON does not know are written as text."""
    return json.dumps(data, ensure_ascii=False, default=str)
