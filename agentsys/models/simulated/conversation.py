"""Reads a conversation as a plain agent does: requests, tool results, and what may carry a goal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatRequest, text_of

_MAX_FAILURE_CHARS = 200
"""Characters; a failure object is short, so longer results are not parsed for one."""

REPEATABLE_FAILURE = "no_intent"
"""The one failure kind that is the caller's own slip: the call is made again."""


@dataclass(frozen=True)
class ToolResult:
    """One answered tool call."""

    function: str
    args: Mapping[str, Any]
    text: str
    """What the agent reads: the output, and the error where there is one."""
    failed: bool
    """Whether the call should be made again."""


def read_tool_result(message: ChatMessage) -> ToolResult:
    """A tool message as the agent understands it."""
    assert message["role"] == "tool"
    error = message["error"]
    output = text_of(message)
    text = output if error is None else f"{output}\n{error}"
    call = message["tool_call"]
    return ToolResult(call.function, call.args, text, error is not None or _asks_again(output))


def _asks_again(output: str) -> bool:
    """Whether a result is a failure object whose call is worth repeating.

    Any other failure object counts as done: the same call would fail for the same reason.
    """
    if len(output) > _MAX_FAILURE_CHARS or '"error"' not in output:
        return False
    try:
        failure = json.loads(output)
    except ValueError:
        return False
    return isinstance(failure, dict) and failure.get("error") == REPEATABLE_FAILURE


def iter_texts(request: ChatRequest) -> Iterator[str]:
    """Every text of the request, in order, tool errors included."""
    for message in request.messages:
        yield read_tool_result(message).text if message["role"] == "tool" else text_of(message)


def user_texts(request: ChatRequest) -> list[str]:
    """The texts of the user messages, in order."""
    return [text_of(message) for message in request.messages if message["role"] == "user"]
