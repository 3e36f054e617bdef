"""`PolicyModel`: asks a model for the policy of a task and its updates, and reads its replies."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from agentsys.models.chat import ChatModel, ErrorKind, ModelError, ToolSpec
from agentsys.models.loose_json import drop_trailing_commas
from agentsys.models.providers.wire_parts import parse_json
from agentsys.models.reply_contract import ContractAnswer, Read, ReplyContract, UnusableReply
from agentsys.models.trace import ReplyFlaw, span
from baselines.progent.progent_rules import (
    WRITTEN,
    PolicyPromptKind,
    PolicyRule,
    ProgentSettings,
    allow_under,
    find_condition_failure,
    find_condition_fault,
)
from baselines.progent.prompts import DECIDE, FIRST_CALL, UPDATE

# Possessive: a fence that is never closed is given up at once, not tried from each of its letters.
_FENCE = re.compile(r"```json\s*+(.*?)```", re.DOTALL)
_ANY_FENCE = re.compile(r"```\w*+\s*+(.*?)```", re.DOTALL)
_YES = re.compile(r"^\s*yes\b[\s.,:!]*", re.IGNORECASE)
_NO = re.compile(r"^\W*no\b", re.IGNORECASE)
_WHOLE_OBJECT = "properties"
_SCHEMA_WORDS = frozenset(
    {"type", "properties", "required", "additionalProperties", "description", "title", "$schema", "$id"}
)
"""Keywords of a schema for the whole arguments object."""


class UnreadablePolicy(UnusableReply):
    """A reply that is no policy; the message says why, in one line."""

    def __init__(self, fault: str) -> None:
        super().__init__(ReplyFlaw.UNREAD if fault == _NO_JSON else ReplyFlaw.WRONG_FORM, f"{fault}.")


_NO_JSON = "no JSON"


@dataclass(frozen=True)
class WrittenRule:
    """One entry of a policy: the tool may be called under these conditions."""

    tool: str
    conditions: Mapping[str, Any]
    """Argument -> restriction, as it was written."""

    def as_data(self) -> dict[str, Any]:
        """Return the rule in the form asked of the model."""
        return {"name": self.tool, "args": dict(self.conditions)}

    def as_rule(self) -> PolicyRule:
        """Return the rule as it is enforced."""
        return allow_under(WRITTEN, self.conditions)


WrittenPolicy = tuple[WrittenRule, ...]


def read_policy_reply(
    reply: str, tools: Sequence[ToolSpec], settings: ProgentSettings
) -> WrittenPolicy | None:
    """Read the policy in a reply; None if it says there is none. Raises `UnreadablePolicy` otherwise."""
    # Reference: "Nothing" and "Note that" mean no, too.
    if reply.strip().casefold().startswith("no") if settings.compat else _NO.match(reply):
        return None
    value = _find_json(reply, settings)
    if not isinstance(value, list):
        raise UnreadablePolicy(f"a {type(value).__name__} where a list of rules was to be")
    offered = {tool.name: tool for tool in tools}
    return tuple(_read_entry(item, offered, settings) for item in value)


def _find_json(reply: str, settings: ProgentSettings) -> Any:
    # Reference: a fence without its language, a last entry that ends in a comma, or a list whose last bracket is
    # missing, is a failed attempt.
    loose = not settings.compat
    fenced = (_ANY_FENCE if loose else _FENCE).search(reply)
    text = (fenced[1] if fenced else _YES.sub("", reply, count=1)).strip()
    closed = f"{text}]" if text.rstrip(", \n").endswith("}") else text
    for written in (text, *map(drop_trailing_commas, (text, closed))) if loose else (text,):
        try:
            return parse_json(written)
        except ModelError:
            continue
    raise UnreadablePolicy(_NO_JSON)


def _read_entry(item: Any, tools: Mapping[str, ToolSpec], settings: ProgentSettings) -> WrittenRule:
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise UnreadablePolicy("an entry without the name of a tool")
    name, conditions = item["name"], item.get("args", {})
    if not isinstance(conditions, dict):
        raise UnreadablePolicy(f"{name}: its args are a {type(conditions).__name__}, not an object")
    tool = tools.get(name)
    if tool is not None:
        conditions = _group_conditions_by_argument(conditions, tool, settings)
    # Reference: a rule that cannot be applied is taken, and refuses every call. Here a plain value is the only
    # one that is allowed, and any other such rule is asked for again.
    if not settings.compat:
        conditions = {
            argument: {"enum": [condition]} if isinstance(condition, str | int | float) else condition
            for argument, condition in conditions.items()
        }
    for argument, condition in {} if settings.compat else conditions.items():
        fault = find_condition_fault(condition)
        if fault is not None:
            raise UnreadablePolicy(f"{name}: the rule for {argument!r} {fault}")
    return WrittenRule(name, conditions if settings.conditions else {})


def _group_conditions_by_argument(
    conditions: dict[str, Any], tool: ToolSpec, settings: ProgentSettings
) -> dict[str, Any]:
    arguments = tool.arguments
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
    """Move an enumeration of single values to the schema of an array's elements."""
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


def make_contract(
    wording: PolicyPromptKind, tools: Sequence[ToolSpec], settings: ProgentSettings
) -> ReplyContract[WrittenPolicy]:
    """Build the contract of the call that writes the first policy."""

    def read(reply: str) -> WrittenPolicy:
        policy = read_policy_reply(reply, tools, settings)
        if policy is None:
            raise UnreadablePolicy("the reply says no")
        return policy

    return ReplyContract(ROLE, *FIRST_CALL[wording], read, schema=_RULES_SCHEMA)


_RULES_SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "args": {"type": "object"}},
        "required": ["name", "args"],
    },
}
DECIDE_CONTRACT = ReplyContract(
    ROLE,
    *DECIDE,
    lambda reply: True if _YES.match(reply) else False if _NO.match(reply) else None,
)
"""The decision's answer."""
UPDATE_CONTRACT: ReplyContract[tuple[WrittenPolicy | None]] = ReplyContract(
    ROLE,
    *UPDATE,
    lambda reply: (read_policy_reply(reply, (), ProgentSettings()),),
)
"""The rewriting call's answer; `(None,)` if the rules stay."""


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
        """Ask for the first policy, from the tools and the request alone.

        Raises:
            ModelError: If the model failed, or none of its replies was a policy.
        """
        contract = make_contract(self.settings.wording, self.tools, self.settings)
        with span(ROLE, "write") as opened:
            answer = self._ask(contract, {}, self.settings.attempts)
            opened.decision = {"faults": [str(fault) or fault.flaw.value for fault in answer.faults]}
            if answer.value is None:
                raise self._make_malformed_error("policy", answer.faults[-1])
            opened.decision["rules"] = [rule.as_data() for rule in answer.value]
        return answer.value

    def update_policy(self, calls: Sequence[CalledTool], current: WrittenPolicy) -> WrittenPolicy | None:
        """Ask for the policy after a turn; None if it stays.

        Raises:
            ModelError: If the model failed, or with `on_update_error: raise` if no reply could be read.
        """
        with span(ROLE, "decide") as opened:
            called = json.dumps([{"name": call.name, "args": dict(call.args)} for call in calls], default=str)
            attempts = 1 if self.settings.compat else 2
            wanted = self._ask(DECIDE_CONTRACT, {CALLS: called}, attempts).value is True
            opened.decision = {"update": wanted}
        return self._rewrite_policy(calls, called, current) if wanted else None

    def _rewrite_policy(
        self, calls: Sequence[CalledTool], called: str, current: WrittenPolicy
    ) -> WrittenPolicy | None:
        # Written as Python and JSON write lists: a line break in a result cannot begin a part of its own.
        results = str([call.result for call in calls])
        rules = json.dumps([rule.as_data() for rule in current])
        contract = replace(
            UPDATE_CONTRACT, read=lambda reply: (read_policy_reply(reply, self.tools, self.settings),)
        )
        with span(ROLE, "rewrite") as opened:
            parts = {CALLS: called, RESULTS: results, CURRENT: rules}
            answer = self._ask(contract, parts, self.settings.attempts)
            opened.decision = {"faults": [str(fault) or fault.flaw.value for fault in answer.faults]}
            if answer.value is not None:
                (policy,) = answer.value
                opened.decision["rules"] = None if policy is None else [rule.as_data() for rule in policy]
                return policy
            if self.settings.on_update_error == "keep":
                return None
            raise self._make_malformed_error("update", answer.faults[-1])

    def _make_malformed_error(self, what: str, fault: UnusableReply) -> ModelError:
        text = f"no {what} in {self.settings.attempts} replies: {fault}"
        return ModelError(ErrorKind.MALFORMED_REPLY, text)

    def _ask(
        self, contract: ReplyContract[Read], parts: Mapping[str, str], attempts: int
    ) -> ContractAnswer[Read]:
        tools = [
            {
                "name": tool.name,
                "description": tool.description,
                "args": tool.arguments,
            }
            for tool in self.tools
        ]
        labelled = {TOOLS: json.dumps(tools), QUERY: self.query, **parts}
        question = "\n".join(f"{label}: {text}" for label, text in labelled.items())
        # Reference: the identical question, warmer each time.
        return contract.ask(
            self.model, question, attempts - 1, repeat=self.settings.compat, heating=TEMPERATURE_STEP
        )


_KINDS = ("string", "number", "boolean", "null", "array", "object")
_ANNOTATIONS = frozenset(
    {"title", "description", "format", "default", "examples", "$id", "$comment", "deprecated"}
)
_KIND_OF = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"), "number"),
    **dict.fromkeys(("minLength", "maxLength", "pattern"), "string"),
    **dict.fromkeys(("minItems", "maxItems", "items", "uniqueItems"), "array"),
}
"""Keyword -> the one kind of value that it says anything about."""
_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")
_SAME_IF_EQUAL = frozenset({*_KIND_OF, "type", "anyOf", "allOf", "oneOf", "not"} - {"items"})
"""Keywords whose meaning depends on no other one."""


def is_narrower(new: WrittenPolicy, old: WrittenPolicy, *, first_only: bool) -> bool:
    """True if provably every call that the new rules allow was allowed by the old ones.

    With `first_only` the first rules of each tool alone count, as in the reference.
    """
    if first_only:
        new, old = _keep_first_entries(new), _keep_first_entries(old)
    return all(any(o.tool == n.tool and _is_rule_within(n, o) for o in old) for n in new)


def _keep_first_entries(policy: WrittenPolicy) -> WrittenPolicy:
    return tuple({rule.tool: rule for rule in reversed(policy)}.values())


def _is_rule_within(new: WrittenRule, old: WrittenRule) -> bool:
    """True if the new rule restricts each restricted argument of the old one at least as much."""
    return all(
        name in new.conditions and _is_condition_within(new.conditions[name], condition)
        for name, condition in old.conditions.items()
    )


def _is_condition_within(new: Any, old: Any) -> bool:
    """True if every value that satisfies the first condition satisfies the second."""
    if new == old:
        return True
    if not isinstance(new, Mapping) or find_condition_fault(new) or find_condition_fault(old):
        return False
    listed = [new["const"]] if "const" in new else new.get("enum")
    if listed is not None:
        return all(
            find_condition_failure("", value, old) is None
            for value in listed
            if find_condition_failure("", value, new) is None
        )
    # Keywords are those of the newest draft; in others they may mean something else.
    if not isinstance(old, Mapping) or {"$schema", "prefixItems"} & {*new, *old}:
        return False
    types = _list_types(new)
    return all(
        key in _ANNOTATIONS or _is_keyword_implied(key, value, new, types) for key, value in old.items()
    )


def _list_types(schema: Mapping[str, Any]) -> set[str]:
    named: str | Sequence[str] = schema.get("type", _KINDS)
    return {named} if isinstance(named, str) else set(named)


def _is_keyword_implied(key: str, value: Any, new: Mapping[str, Any], types: set[str]) -> bool:
    """True if a value of these types that satisfies the new schema satisfies one keyword of the old one."""
    kinds = {"number" if kind == "integer" else kind for kind in types}
    if key in _KIND_OF and _KIND_OF[key] not in kinds:
        return True
    if key == "type":
        allowed = _list_types({key: value})
        return types <= (allowed | {"integer"} if "number" in allowed else allowed)
    if key == "items":
        return _is_condition_within(new.get(key, {}), value)
    if key not in new:
        return False
    if key == "multipleOf":
        return (Fraction(str(new[key])) / Fraction(str(value))).denominator == 1
    if key in _SAME_IF_EQUAL and new[key] == value:
        return True
    if key in _LOWER_BOUNDS or key in _UPPER_BOUNDS:
        return bool(new[key] >= value if key in _LOWER_BOUNDS else new[key] <= value)
    return False
