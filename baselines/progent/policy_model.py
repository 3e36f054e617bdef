"""The policy model's three calls: write a policy, decide on an update, rewrite the policy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.models.chat import ChatModel, ChatRequest, ErrorKind, ModelError, ToolSpec, system, user
from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import Span, span
from baselines.progent.policy_reply import WrittenPolicy, UnreadablePolicy, read_policy_reply, is_update_wanted
from baselines.progent.prompts import DECIDE, FIRST_CALL, UPDATE
from baselines.progent.settings import ProgentSettings

ROLE = "policy"
TOOLS, QUERY, CALLS, RESULTS, CURRENT = (
    "TOOLS",
    "USER_QUERY",
    "TOOL_CALL_PARAM",
    "TOOL_CALL_RESULT",
    "CURRENT_RESTRICTIONS",
)
"""Labels of the parts of a question, in this order."""
TEMPERATURE_STEP = 0.2
"""By how much the temperature rises from one attempt to the next; the first is 0."""


@dataclass(frozen=True)
class CalledTool:
    """A call and what it returned."""

    name: str
    args: Mapping[str, Any]
    result: str


@dataclass(frozen=True)
class PolicyModel:
    """Asks about one task. Each question stands alone: one system and one user message."""

    model: ChatModel
    settings: ProgentSettings
    tools: Sequence[ToolSpec]
    query: str

    def write_policy(self) -> WrittenPolicy:
        """The first policy, from the tools and the request alone.

        Raises:
            ModelError: If the model failed, or none of its replies was a policy.
        """
        with span(ROLE, "write") as opened:
            try:
                return self._ask_until_readable(opened, FIRST_CALL[self.settings.wording], {}, required=True) or ()
            except UnreadablePolicy as fault:
                raise ModelError(
                    ErrorKind.MALFORMED_REPLY, f"no policy in {self.settings.attempts} replies: {fault}"
                ) from None

    def update_policy(self, calls: Sequence[CalledTool], current: WrittenPolicy) -> WrittenPolicy | None:
        """The policy after a turn; None if it stays.

        Raises:
            ModelError: If the model failed, or with `on_update_error: raise` if no reply could be read.
        """
        with span(ROLE, "decide") as opened:
            called = json.dumps([{"name": call.name, "args": dict(call.args)} for call in calls], default=str)
            wanted = is_update_wanted(self._ask_once(DECIDE, {CALLS: called}, 0.0))
            opened.decision = {"update": wanted}
        return self._rewrite_policy(calls, called, current) if wanted else None

    def _rewrite_policy(self, calls: Sequence[CalledTool], called: str, current: WrittenPolicy) -> WrittenPolicy | None:
        # Written as Python and JSON write lists: a line break in a result cannot begin a part of its own.
        results = str([call.result for call in calls])
        rules = json.dumps([rule.as_data() for rule in current])
        with span(ROLE, "rewrite") as opened:
            try:
                parts = {CALLS: called, RESULTS: results, CURRENT: rules}
                return self._ask_until_readable(opened, UPDATE, parts, required=False)
            except UnreadablePolicy as fault:
                if self.settings.on_update_error == "keep":
                    return None
                raise ModelError(
                    ErrorKind.MALFORMED_REPLY, f"no update in {self.settings.attempts} replies: {fault}"
                ) from None

    def _ask_until_readable(
        self, opened: Span, instructions: str, parts: Mapping[str, str], *, required: bool
    ) -> WrittenPolicy | None:
        """Asked until a reply can be read, each time at a higher temperature."""
        faults: list[str] = []
        opened.decision = {"faults": faults}
        for attempt in range(self.settings.attempts):
            reply = self._ask_once(instructions, parts, round(TEMPERATURE_STEP * attempt, 1))
            try:
                policy = read_policy_reply(reply, self.tools, self.settings)
                if policy is None and required:
                    raise UnreadablePolicy("the reply says no")
            except UnreadablePolicy as fault:
                faults.append(str(fault))
                continue
            opened.decision["rules"] = None if policy is None else [rule.as_data() for rule in policy]
            return policy
        raise UnreadablePolicy(faults[-1])

    def _ask_once(self, instructions: str, parts: Mapping[str, str], temperature: float) -> str:
        told = {TOOLS: write_tools_text(self.tools), QUERY: self.query, **parts}
        question = "\n".join(f"{label}: {text}" for label, text in told.items())
        request = ChatRequest([system(instructions), user(question)], role=ROLE, temperature=temperature)
        return visible_text(self.model.complete(request).message)


def write_tools_text(tools: Sequence[ToolSpec]) -> str:
    """The tools as one line of JSON: name, description, arguments."""
    return json.dumps(
        [
            {
                "name": tool.name,
                "description": tool.description,
                "args": tool.parameters.get("properties", {}),
            }
            for tool in tools
        ]
    )
