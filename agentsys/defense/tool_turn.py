"""One turn of an agent: what it is asked, the calls it makes, and the tools that run for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import (
    ChatAssistantMessage,
    ChatMessage,
)
from pydantic import ValidationError

from agentsys.defense.intent import INTENT_PARAMETER
from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec
from agentsys.python_parser import literal_eval


def ask_next_message(
    model: ChatModel, role: str, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]
) -> ChatAssistantMessage:
    """The model's next message, its calls copied and their arguments mended as AgentDojo's executor does.

    Raises:
        ModelError: If the model gave no reply.
    """
    message = model.complete(ChatRequest(list(messages), tools, role)).message
    calls = [_mend_call(call) for call in message["tool_calls"] or ()]
    return {"role": "assistant", "content": message["content"], "tool_calls": calls or None}


def _mend_call(call: FunctionCall) -> FunctionCall:
    args = {key: value if key == INTENT_PARAMETER else _mend_argument(value) for key, value in call.args.items()}
    return FunctionCall(function=call.function, args=args, id=call.id)


def _mend_argument(value: Any) -> Any:
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


@dataclass(frozen=True)
class CheckedArguments:
    """A call's arguments that the tool's schema accepts."""

    raw: dict[str, Any]
    """As the agent wrote them, without what the tool does not have: what it is run with."""
    parsed: dict[str, Any]
    """As the schema reads them: what stands in traces and is judged."""
    undeclared: tuple[str, ...]
    """Names of arguments that the tool does not have. They never have an effect."""


def check_arguments(runtime: FunctionsRuntime, call: FunctionCall) -> CheckedArguments | str:
    """A call's arguments, or what the calling agent did wrong, in full: it holds no text but the agent's own.

    The arguments are checked before anything runs: an error of the same class that a tool raises later may
    quote the environment and counts as the tool's.
    """
    function = runtime.functions.get(call.function)
    if function is None:
        return f"There is no tool named {call.function[:100]!r}. Tools: {', '.join(runtime.functions)}."
    declared = function.parameters.model_fields
    given = {key: value for key, value in call.args.items() if key in declared}
    try:
        read = function.parameters.model_validate(given).model_dump(exclude_unset=True)
    except ValidationError as error:
        return f"The arguments are not valid, so the tool did not run. {error}"
    # 1200 stays 1200 where the schema reads 1200.0: what is judged is compared with the request.
    read = {key: given[key] if given[key] == value else value for key, value in read.items()}
    return CheckedArguments(given, read, tuple(key for key in call.args if key not in declared and key != INTENT_PARAMETER))


@dataclass(frozen=True)
class ToolOutput:
    """A tool's output. Untrusted."""

    text: str
    error: str | None
    """The tool's error; then `text` is empty."""
    value: Any = None
    """What `text` was written from."""


def run_tool(runtime: FunctionsRuntime, env: TaskEnvironment, tool: str, args: dict[str, Any]) -> ToolOutput:
    """Run a tool whose arguments were checked, and write its value the way AgentDojo does."""
    value, error = runtime.run_function(env, tool, args)
    return (
        ToolOutput("", error)
        if error is not None
        else ToolOutput(str(tool_result_to_str(value)), None, value)
    )
