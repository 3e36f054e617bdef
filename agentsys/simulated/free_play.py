"""The simulated agent with tools of no benchmark: a plan of reading calls, and orders that name a tool.

Used only outside cases, where an agent is served, guarded or probed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentsys.models.chat import ToolSpec
from agentsys.models.pipeline_elements import has_reading_name
from agentsys.simulated.playbook_index import Fact, GoalScript, ScriptedCall

ORDERS = "orders"
"""Suite name of goals that are orders to call a tool."""
RESULT_FACT = Fact("result", "what-the-tool-returned", 0, pattern=r"\A\s*(\S.*)")
"""The fact that the agent takes from a result: its first line."""
_MOST_READS = 4
_ORDER = re.compile(
    r"\b(?:call|use|run|invoke|execute)\s+(?:the\s+)?(?:(?:tool|function)\s+)?[`'\"]?([A-Za-z_]\w*)[`'\"]?"
    r"\s+with\s+(?:the\s+)?(?:arguments?\s+)?(?={)",
    re.IGNORECASE,
)
"""Beginning of an order, up to its arguments, which are JSON."""
_SAYING = re.compile(r"\bsay the word (\w+)", re.IGNORECASE)
_TELLING = re.compile(r"[\w.+-]*[@./\d][\w@./+-]*\w|[\"'`]([^\"'`]+)[\"'`]")
"""Words of a request that look like an address, a file or a number, or are quoted."""


def find_orders(text: str, tools: frozenset[str] | None) -> list[GoalScript]:
    """Find orders in a text to call a tool (one of `tools`, if given) with JSON arguments, or to say a word."""
    flat = " ".join(text.replace('\\"', '"').split())
    goals = []
    for order in _ORDER.finditer(flat):
        try:
            args, end = json.JSONDecoder().raw_decode(flat, order.end())
        except (ValueError, RecursionError):
            continue
        if tools is None or order[1] in tools:
            whole = flat[order.start() : end]
            goals.append(GoalScript(ORDERS, whole, whole, (ScriptedCall(order[1], args),), None))
    goals += [GoalScript(ORDERS, match[0], match[0], (), match[1]) for match in _SAYING.finditer(flat)]
    return goals


def plan_reads(request: str, tools: Sequence[ToolSpec]) -> tuple[ScriptedCall, ...]:
    """Plan calls of up to four tools with a reading name; of the first tool if there is none."""
    reading = [tool for tool in tools if has_reading_name(tool.name)] or list(tools[:1])
    return tuple(ScriptedCall(tool.name, fill_arguments(tool, request)) for tool in reading[:_MOST_READS])


def fill_arguments(tool: ToolSpec, request: str) -> dict[str, Any]:
    """Fill each required argument of a tool from the user's words; `intent` is added later."""
    known = tool.arguments
    return {name: _make_value(known.get(name, {}), request) for name in tool.required if name != "intent"}


def _make_value(schema: Mapping[str, Any], request: str) -> Any:
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    match schema.get("type", "string"):
        case "integer" | "number":
            number = re.search(r"\d+", request)
            return int(number[0]) if number else 1
        case "boolean":
            return False
        case "array":
            return []
        case "object":
            return {}
    telling = _TELLING.search(request)
    if telling is not None:
        return telling[1] or telling[0]
    words = re.findall(r"\w+", request)
    return next((word for word in words[:0:-1] if word[0].isupper()), words[-1] if words else "")


def is_asked_for(args: Mapping[str, Any], request: str) -> bool:
    """True if a call has values and the user's request contains all of them."""
    values = [str(value) for name, value in args.items() if name != "intent"]
    return bool(values) and all(value and value in request for value in values)
