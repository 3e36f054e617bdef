"""What a policy model's reply says: the rules it writes, or that there is nothing to write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.models.chat import ModelError, ToolSpec
from agentsys.models.providers.wire_parts import parse_json
from baselines.progent.conditions import find_condition_fault
from baselines.progent.fixes import ProgentFix
from baselines.progent.rules import WRITTEN, PolicyRule, allow_under
from baselines.progent.settings import ProgentSettings

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


def is_update_wanted(reply: str) -> bool:
    """Whether a decision is to update."""
    return _YES.match(reply) is not None


def read_policy_reply(reply: str, tools: Sequence[ToolSpec], settings: ProgentSettings) -> WrittenPolicy | None:
    """The policy that a reply holds; None if it says that there is none.

    Raises:
        UnreadablePolicy: If it holds neither.
    """
    if _is_no_policy(reply, settings):
        return None
    value = _find_json(reply, settings)
    if not isinstance(value, list):
        raise UnreadablePolicy(f"a {type(value).__name__} where a list of rules was to be")
    offered = {tool.name: tool for tool in tools}
    return tuple(_read_entry(item, offered, settings) for item in value)


def _is_no_policy(reply: str, settings: ProgentSettings) -> bool:
    if settings.fixes_defect(ProgentFix.READ_WHOLE_WORDS):
        return _NO.match(reply) is not None
    return reply.strip().casefold().startswith("no")


def _find_json(reply: str, settings: ProgentSettings) -> Any:
    loose = settings.fixes_defect(ProgentFix.READ_LOOSE_JSON)
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
    if settings.fixes_defect(ProgentFix.CHECK_SCHEMAS_WHEN_WRITTEN):
        _check_conditions(name, conditions)
    return WrittenRule(name, conditions if settings.conditions else {})


def _conditions_by_argument(conditions: dict[str, Any], tool: ToolSpec, settings: ProgentSettings) -> dict[str, Any]:
    """The conditions by the tool's own arguments."""
    arguments = tool.parameters.get("properties", {})
    if settings.fixes_defect(ProgentFix.READ_ARGUMENT_NAMES):
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


def _check_conditions(tool: str, conditions: Mapping[str, Any]) -> None:
    for name, condition in conditions.items():
        fault = find_condition_fault(condition)
        if fault is not None:
            raise UnreadablePolicy(f"{tool}: the rule for {name!r} {fault}")
