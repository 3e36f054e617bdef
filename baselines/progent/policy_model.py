"""`PolicyModel`: asks a model for the policy of a task and its updates, and reads its replies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.models.chat import ChatModel, ChatRequest, ErrorKind, ModelError, ToolSpec, system, user
from agentsys.models.providers.wire_parts import parse_json, visible_text
from agentsys.models.trace import Span, mark_reply_unreadable, span
from baselines.progent.progent_rules import (
    WRITTEN,
    PolicyRule,
    ProgentSettings,
    allow_under,
    find_condition_fault,
)
from baselines.progent.prompts import DECIDE, FIRST_CALL, UPDATE

# Possessive: a fence that is never closed is given up at once, not tried from each of its letters.
_FENCE = re.compile(r"```json\s*+(.*?)```", re.DOTALL)
_ANY_FENCE = re.compile(r"```\w*+\s*+(.*?)```", re.DOTALL)
_YES = re.compile(r"^\s*yes\b[\s.,:!]*", re.IGNORECASE)
_NO = re.compile(r"^\W*no\b", re.IGNORECASE)
# A text in quotes is stepped over; a comma before a closing bracket is not part of one.
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*"?)|,(?=\s*[\]}])')
_WHOLE_OBJECT = "properties"
_SCHEMA_WORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "description", "title", "$schema", "$id"}
)
"""What a schema of the whole arguments object consists of."""


class UnreadablePolicy(Exception):
    """A reply that is no policy; the message says why, in one line."""


@dataclass(frozen=True)
class WrittenRule:
    """One entry of a policy: the tool may be called under these conditions."""

    tool: str
    conditions: Mapping[str, Any]
    """Argument -> restriction, as it was written."""

    def as_data(self) -> dict[str, Any]:
        """In the form in which it was asked for."""
        return {"name": self.tool, "args": dict(self.conditions)}

    def as_rule(self) -> PolicyRule:
        """As it is enforced."""
        return allow_under(WRITTEN, self.conditions)


WrittenPolicy = tuple[WrittenRule, ...]


def read_policy_reply(
    reply: str, tools: Sequence[ToolSpec], settings: ProgentSettings
) -> WrittenPolicy | None:
    """The policy that a reply holds; None if it says there is none. Else `UnreadablePolicy` is raised."""
    # Reference: "Nothing" and "Note that" mean no, too.
    if reply.strip().casefold().startswith("no") if settings.compat else _NO.match(reply):
        return None
    value = _find_json(reply, settings)
    if not isinstance(value, list):
        raise UnreadablePolicy(f"a {type(value).__name__} where a list of rules was to be")
    offered = {tool.name: tool for tool in tools}
    return tuple(_read_entry(item, offered, settings) for item in value)


def _find_json(reply: str, settings: ProgentSettings) -> Any:
    # Reference: a fence without its language, or a last entry that ends in a comma, is a failed attempt.
    loose = not settings.compat
    fenced = (_ANY_FENCE if loose else _FENCE).search(reply)
    text = (fenced[1] if fenced else _YES.sub("", reply, count=1)).strip()
    for written in (text, _LAST_COMMA.sub(lambda m: m[1] or "", text)) if loose else (text,):
        try:
            return parse_json(written)
        except ModelError:
            continue
    raise UnreadablePolicy("no JSON")


def _read_entry(item: Any, tools: Mapping[str, ToolSpec], settings: ProgentSettings) -> WrittenRule:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise UnreadablePolicy("an entry without the name of a tool")
    name, conditions = item["name"], item.get("args", {})
    if not isinstance(conditions, dict):
        raise UnreadablePolicy(f"{name}: its args are a {type(conditions).__name__}, not an object")
    tool = tools.get(name)
    if tool is not None:
        conditions = _conditions_by_argument(conditions, tool, settings)
    # Reference: a rule that cannot be applied is taken, and refuses every call. Here it is asked for again.
    for argument, condition in {} if settings.compat else conditions.items():
        fault = find_condition_fault(condition)
        if fault is not None:
            raise UnreadablePolicy(f"{name}: the rule for {argument!r} {fault}")
    return WrittenRule(name, conditions if settings.conditions else {})


def _conditions_by_argument(
    conditions: dict[str, Any], tool: ToolSpec, settings: ProgentSettings
) -> dict[str, Any]:
    arguments = tool.parameters.get("properties", {})
    # Reference: a schema of the whole arguments object, and a rule for an argument that the tool does not
    # have, apply to nothing, and so everything is allowed.
    if not settings.compat:
        inner = conditions.get(_WHOLE_OBJECT)
        if isinstance(inner, dict) and _WHOLE_OBJECT not in arguments and conditions.keys() <= _SCHEMA_WORDS:
            conditions = inner
        unknown = [name for name in conditions if name not in arguments]
        if unknown:
            raise UnreadablePolicy(f"{tool.name} has no argument {unknown[0]!r}")
    if not settings.repair_array_enums:
        return conditions
    return {name: _move_enum_to_items(schema, arguments.get(name, {})) for name, schema in conditions.items()}


def _move_enum_to_items(schema: Any, argument: Mapping[str, Any]) -> Any:
    """An enumeration of single values, put where an array's elements are described."""
    kinds = [argument, *argument.get("anyOf", ())]
    if not isinstance(schema, dict) or not any(kind.get("type") == "array" for kind in kinds):
        return schema
    values = schema.get("enum")
    if not isinstance(values, list) or any(isinstance(value, list) for value in values):
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("enum", "type")}
    return {**rest, "type": "array", "items": {"enum": values}}


ROLE = "policy"
TOOLS, QUERY, CALLS = "TOOLS", "USER_QUERY", "TOOL_CALL_PARAM"
RESULTS, CURRENT = "TOOL_CALL_RESULT", "CURRENT_RESTRICTIONS"
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
            instructions = FIRST_CALL[self.settings.wording]
            try:
                return self._ask_until_readable(opened, instructions, {}, required=True) or ()
            except UnreadablePolicy as fault:
                raise self._malformed("policy", fault) from None

    def update_policy(self, calls: Sequence[CalledTool], current: WrittenPolicy) -> WrittenPolicy | None:
        """The policy after a turn; None if it stays.

        Raises:
            ModelError: If the model failed, or with `on_update_error: raise` if no reply could be read.
        """
        with span(ROLE, "decide") as opened:
            called = json.dumps([{"name": call.name, "args": dict(call.args)} for call in calls], default=str)
            wanted = _YES.match(self._ask_once(DECIDE, {CALLS: called}, 0.0)) is not None
            opened.decision = {"update": wanted}
        return self._rewrite_policy(calls, called, current) if wanted else None

    def _rewrite_policy(
        self, calls: Sequence[CalledTool], called: str, current: WrittenPolicy
    ) -> WrittenPolicy | None:
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
                raise self._malformed("update", fault) from None

    def _malformed(self, what: str, fault: UnreadablePolicy) -> ModelError:
        text = f"no {what} in {self.settings.attempts} replies: {fault}"
        return ModelError(ErrorKind.MALFORMED_REPLY, text)

    def _ask_until_readable(
        self, opened: Span, instructions: str, parts: Mapping[str, str], *, required: bool
    ) -> WrittenPolicy | None:
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
                mark_reply_unreadable()
                continue
            opened.decision["rules"] = None if policy is None else [rule.as_data() for rule in policy]
            return policy
        raise UnreadablePolicy(faults[-1])

    def _ask_once(self, instructions: str, parts: Mapping[str, str], temperature: float) -> str:
        labelled = {TOOLS: write_tools_text(self.tools), QUERY: self.query, **parts}
        question = "\n".join(f"{label}: {text}" for label, text in labelled.items())
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
