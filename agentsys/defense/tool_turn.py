"""One turn of an agent: what it is asked, the calls it makes, and the tools that run for it."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
    ChatToolResultMessage,
    text_content_block_from_string,
)
from pydantic import ValidationError

from agentsys.defense.intent import PARAMETER
from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec
from agentsys.models.tool_text import tool_text


def next_message(
    model: ChatModel, role: str, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]
) -> ChatAssistantMessage:
    """The model's next message, its calls copied and their arguments mended as AgentDojo's executor does.

    Raises:
        ModelError: If the model gave no reply.
    """
    message = model.complete(ChatRequest(list(messages), tools, role)).message
    calls = [_mended(call) for call in message["tool_calls"] or ()]
    return {"role": "assistant", "content": message["content"], "tool_calls": calls or None}


def _mended(call: FunctionCall) -> FunctionCall:
    args = {key: value if key == PARAMETER else _mended_arg(value) for key, value in call.args.items()}
    return FunctionCall(function=call.function, args=args, id=call.id)


def _mended_arg(value: Any) -> Any:
    """A list that a model wrote as a string becomes the list (AgentDojo's executor does the same).

    A nested `FunctionCall` would run without being judged; models cannot send one, but it is made inert.
    """
    if isinstance(value, FunctionCall):
        return value.model_dump()
    if not isinstance(value, str) or "[" not in value:
        return value
    try:
        parsed = literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return value
    return parsed if isinstance(parsed, list) else value


def tool_message(call: FunctionCall, text: str) -> ChatToolResultMessage:
    """The answer to a call, as an agent sees it."""
    content = [text_content_block_from_string(text)]
    return {"role": "tool", "content": content, "tool_call_id": call.id, "tool_call": call, "error": None}


def without_intent(call: FunctionCall) -> dict[str, Any]:
    """The arguments that are the tool's own."""
    return {key: value for key, value in call.args.items() if key != PARAMETER}


def own_mistake(runtime: FunctionsRuntime, tool: str, args: dict[str, Any]) -> str | None:
    """What the calling agent did wrong, in full, or None. It holds no text but the agent's own.

    The arguments are checked before anything runs: an error of the same class that a tool raises later may
    quote the environment and counts as the tool's.
    """
    function = runtime.functions.get(tool)
    if function is None:
        return f"There is no tool named {tool[:100]!r}. Tools: {', '.join(runtime.functions)}."
    try:
        function.parameters.model_validate(args)
    except ValidationError as error:
        return f"The arguments are not valid, so the tool did not run. {error}"
    return None


@dataclass(frozen=True)
class ToolOutput:
    """What a tool brought back. Untrusted."""

    text: str
    error: str | None
    """The tool's error; then `text` is empty."""


def run_tool(runtime: FunctionsRuntime, env: TaskEnvironment, tool: str, args: dict[str, Any]) -> ToolOutput:
    """Run a tool whose arguments were checked, and write its value the way AgentDojo does."""
    value, error = runtime.run_function(env, tool, args)
    return ToolOutput("", error) if error is not None else ToolOutput(tool_text(value), None)
