"""Tools told in the prompt and called in the reply's text: calls in tags, and one fenced action a reply.

Some defenses do without a provider's tool calling. Each of the two layouts has its exact inverse here, so
that the simulated model can speak it too. In the first, calls are a Python-style list in tags. In the
second, a reply holds one action as a fenced JSON object, and what came of it stands in the next user
message.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from pydantic import ValidationError

from agentsys.base.python_parser import parse_expression
from agentsys.models.chat import ModelError, ToolSpec
from agentsys.models.providers.wire_parts import clean_json

TOOLS_TAG = "available_tools"
"""Tag around the tools in a system message."""
THOUGHT, CALL, ANSWER = "function_thought", "function_call", "final_answer"
"""Tags of a reply's three parts."""


class CallSyntaxError(ValueError):
    """The text between the call tags is not a list of calls; the message says why."""


def wrap_in_tag(tag: str, body: str) -> str:
    """A body between an opening and a closing tag, on lines of its own."""
    return f"<{tag}>\n{body}\n</{tag}>"


def find_text_between_tags(text: str, tag: str) -> str | None:
    """Cut out the text between the first opening tag and the next closing one; None without such a pair."""
    opened = text.find(f"<{tag}>")
    closed = text.find(f"</{tag}>", opened)
    return None if opened < 0 or closed < 0 else text[opened + len(tag) + 2 : closed]


def write_tools(tools: Sequence[ToolSpec]) -> str:
    """The tools for a system message: one line of JSON for each."""
    return wrap_in_tag(TOOLS_TAG, to_json_lines(tool.json_object for tool in tools))


def to_json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Objects as JSON, a line for each."""
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def read_tools(text: str) -> list[ToolSpec]:
    """The tools that `write_tools` wrote into this text; none if there are none, or no such lines."""
    body = find_text_between_tags(text, TOOLS_TAG)
    try:
        rows = [json.loads(line) for line in body.strip().split("\n")] if body and body.strip() else []
        return [ToolSpec(row["name"], row["description"], row["parameters"]) for row in rows]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []  # somebody else's system message


def write_reply(thought: str, calls: str, answer: str) -> str:
    """A reply of three parts."""
    parts = {THOUGHT: thought, CALL: calls, ANSWER: answer}
    return "\n\n".join(f"<{tag}>{body}</{tag}>" for tag, body in parts.items())


def write_calls(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Calls (name, arguments) as a Python-style list."""
    return f"[{', '.join(_format_call(name, args) for name, args in calls)}]"


def _format_call(name: str, args: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})"


def read_calls(body: str) -> list[FunctionCall]:
    """The calls in a Python-style list, with or without its brackets. Nothing is evaluated.

    Arguments must be literals given by keyword; positional ones are dropped, as AgentDojo's own reader does,
    and `...` as an argument is the text "...".

    Raises:
        CallSyntaxError: If the text is anything else.
    """
    if not body.strip():
        return []
    try:
        parsed = parse_expression(body.strip())
        items = parsed.elts if isinstance(parsed, ast.List | ast.Tuple) else [parsed]
        return [_parse_call(item) for item in items]
    except CallSyntaxError:
        raise
    # Deep nesting ends the parser with MemoryError or RecursionError; a zero byte is a ValueError.
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        raise CallSyntaxError(f"the calls cannot be read ({type(error).__name__}: {error})") from None


def _parse_call(item: ast.expr) -> FunctionCall:
    if not isinstance(item, ast.Call) or not isinstance(item.func, ast.Name):
        raise CallSyntaxError("each item of the list must be a call such as name(key=value)")
    args: dict[str, Any] = {}
    for keyword in item.keywords:
        if keyword.arg is None:
            raise CallSyntaxError("arguments must be given one by one, not with **")
        args[keyword.arg] = _parse_literal(keyword.value, keyword.arg)
    try:
        return FunctionCall(function=item.func.id, args=args)
    except ValidationError:
        raise CallSyntaxError(f"an argument of {item.func.id} has a type that tools do not take") from None


def _parse_literal(value: ast.expr, name: str) -> Any:
    try:
        literal = ast.literal_eval(value)
        json.dumps(literal, default=str)  # an integer written in hex may be longer than Python prints
    except (ValueError, TypeError):
        raise CallSyntaxError(f"the value of {name} must be a literal") from None
    return "..." if literal is Ellipsis else literal


OWN, OTHERS = "own_tools", "other_functionalities"
"""Tags around what an agent can do by itself, and around what it can ask others for."""
QUESTION, REQUEST = "question", "functionality_request"
"""Tags around what a user asks, and around what another agent asks."""
OBSERVATION_WORD = "Observation"
"""Begins what came of an action, and ends a reply: what a model writes from this word on is not read."""
FINISH_ACTION = "Final Answer"
"""Names the action that ends the work; its input is the answer."""

REPEAT_PREFIX = "Send this again"
"""Begins an observation on an action that was not taken because of its form."""

_FENCED_BLOCK = re.compile(r"```(?:json\b)?\s*([\[{].*?)```", re.DOTALL | re.IGNORECASE)
_UNREADABLE = (ValueError, RecursionError, MemoryError)


class ActionSyntaxError(ValueError):
    """A fenced block that holds no action."""


@dataclass(frozen=True)
class Action:
    """Action that a reply asks for."""

    name: str
    """A tool, a functionality of another agent, or `FINISH_ACTION`."""
    input: Any
    """JSON data: the arguments, or the answer."""


def write_action(action: Action, thought: str = "") -> str:
    """A reply: a thought, if any, and one action."""
    block = json.dumps({"action": action.name, "action_input": action.input}, ensure_ascii=False, default=str)
    opening = f"Thought: {thought}\n" if thought else ""
    return f"{opening}Action:\n```json\n{block}\n```"


def read_text_before_observation(text: str) -> str:
    """Cut a reply before the word that only the other side may write."""
    return text.partition(OBSERVATION_WORD)[0].strip()


def read_action(text: str) -> Action | None:
    """The action in a reply: its first fenced block, of a list the first item; None without such a block.

    Raises:
        ActionSyntaxError: If the block is not JSON, or names no action.
    """
    block = find_json_block(text)
    if block is None:
        return None
    try:
        value = clean_json(json.loads(block, strict=False))
    except (*_UNREADABLE, ModelError):
        raise ActionSyntaxError("the block is not JSON") from None
    if isinstance(value, list) and value:
        value = value[0]
    name = value.get("action") if isinstance(value, dict) else None
    if not isinstance(name, str):
        raise ActionSyntaxError("the block names no action")
    return Action(name, value.get("action_input", {}))


def find_json_block(text: str) -> str | None:
    """The inside of the first fenced block that begins as JSON does; None where there is none."""
    match = _FENCED_BLOCK.search(text)
    return match[1] if match is not None else None


def write_offer(tools: Sequence[ToolSpec], others: Mapping[str, str]) -> str:
    """Describe an agent's tools, and the names it can ask for, as one line of JSON each."""
    known = [{"name": name, "description": text} for name, text in others.items()]
    return "\n\n".join(
        [
            wrap_in_tag(OWN, to_json_lines(tool.json_object for tool in tools)),
            wrap_in_tag(OTHERS, to_json_lines(known)),
        ]
    )


def read_offer(text: str) -> list[ToolSpec] | None:
    """Parse the text of `write_offer`; None if there is none. Names known from others have no parameters."""
    parts = [find_text_between_tags(text, OWN), find_text_between_tags(text, OTHERS)]
    if None in parts:
        return None
    try:
        rows = [json.loads(line) for part in parts for line in (part or "").strip().splitlines()]
        return [ToolSpec(row["name"], row["description"], row.get("parameters", {})) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # somebody else's system message


def write_request(name: str, args: Mapping[str, Any]) -> str:
    """Write another agent's request as a model reads it: `name(key=value, ...)`, values in JSON."""
    arguments = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in args.items())
    return wrap_in_tag(REQUEST, f"{name}({arguments})")


def read_request(text: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of the request that `write_request` wrote into this text; None if there is none."""
    name, bracket, rest = (find_text_between_tags(text, REQUEST) or "").strip().partition("(")
    if not bracket:
        return None
    args: dict[str, Any] = {}
    decoder = json.JSONDecoder()
    while rest and rest != ")":
        key, _, rest = rest.partition("=")
        try:
            args[key.strip(", ")], end = decoder.raw_decode(rest)
        except _UNREADABLE:
            return None
        rest = rest[end:]
    return name, args


def write_observation(text: str) -> str:
    """Write an action's result for the next user message."""
    return f"{OBSERVATION_WORD}: {text}"


def read_observation(text: str) -> str | None:
    """The inside of what `write_observation` wrote; None if it is no observation."""
    opening = f"{OBSERVATION_WORD}: "
    return text.removeprefix(opening) if text.startswith(opening) else None
