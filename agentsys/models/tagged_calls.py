"""Tool calls as text in tags, for agents that are told their tools in the prompt.

Some defenses do without a provider's tool calling: the tools stand in the system message, and a call is
a Python-style list in the reply. This is the one layout they share, and its exact inverse, so that the
simulated model can speak it too.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from pydantic import ValidationError

from agentsys.models.chat import ToolSpec
from agentsys.python_parser import parse_expression

TOOLS_TAG = "available_tools"
"""Tag around the tools in a system message."""
THOUGHT, CALL, ANSWER = "function_thought", "function_call", "final_answer"
"""Tags of a reply's three parts."""


class CallSyntaxError(ValueError):
    """The text between the call tags is not a list of calls; the message says why."""


def wrap_in_tag(tag: str, body: str) -> str:
    """A body between an opening and a closing tag, on lines of its own."""
    return f"<{tag}>\n{body}\n</{tag}>"


def text_between_tags(text: str, tag: str) -> str | None:
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
    body = text_between_tags(text, TOOLS_TAG)
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
        found = ast.literal_eval(value)
        json.dumps(found, default=str)  # an integer written in hex may be longer than Python prints
    except (ValueError, TypeError):
        raise CallSyntaxError(f"the value of {name} must be a literal") from None
    return "..." if found is Ellipsis else found
