"""One turn of an agent: its next message, the check of its calls' arguments, and the run of a tool.

A tool's error may quote the environment ("No match for <text of a mail>"). Its message is passed on only if the
tool's source contains it, with no values filled in other than the caller's own arguments.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import regex
from agentdojo.functions_runtime import Function, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.types import ChatAssistantMessage, ChatMessage
from pydantic import ValidationError

from agentsys.base.json_values import list_scalars
from agentsys.base.python_parser import parse_module
from agentsys.defense.intent import INTENT_PARAMETER
from agentsys.models.chat import ChatModel, ChatRequest, JsonSchema, ToolSpec
from agentsys.models.pipeline_elements import parse_list_text, write_tool_value
from agentsys.models.text_tools import explain_unread_call
from agentsys.models.untrusted import TOOL_FAILED, ForeignFunction, Reader, ToolError, Untrusted, call_tool


def ask_next_message(
    model: ChatModel,
    role: str,
    messages: Sequence[ChatMessage],
    tools: Sequence[ToolSpec],
    form: JsonSchema | None = None,
    *,
    runtime: FunctionsRuntime | None = None,
) -> ChatAssistantMessage:
    """Ask for the model's next message; arguments of its calls are repaired as AgentDojo's executor does.

    Arguments of a foreign tool stay unchanged: a string that looks like a list may be meant as a string.
    """
    message = model.complete(ChatRequest(list(messages), tools, role, form_schema=form)).message
    known = {} if runtime is None else runtime.functions
    calls = [_mend_call(call, known.get(call.function)) for call in message["tool_calls"] or ()]
    return {"role": "assistant", "content": message["content"], "tool_calls": calls or None}


def _mend_call(call: FunctionCall, function: Function | None) -> FunctionCall:
    is_foreign = isinstance(function, ForeignFunction)
    args = {
        key: value if key == INTENT_PARAMETER else _mend_argument(value, is_foreign)
        for key, value in call.args.items()
    }
    return FunctionCall(function=call.function, args=args, id=call.id)


def _mend_argument(value: Any, is_foreign: bool) -> Any:
    """Parse a list that a model wrote as a string (AgentDojo's executor does the same)."""
    if isinstance(value, FunctionCall):
        # A nested call would run without being judged. Models cannot send one, but it is made inert.
        return value.model_dump()
    return parse_list_text(value) if isinstance(value, str) and "[" in value and not is_foreign else value


@dataclass(frozen=True)
class CheckedArguments:
    """A call's arguments that the tool's schema accepts."""

    raw: dict[str, Any]
    """As the agent wrote them, without undeclared ones; the tool runs with these."""
    parsed: dict[str, Any]
    """As the schema parses them; traces and validators get these."""


def check_arguments(runtime: FunctionsRuntime, call: FunctionCall) -> CheckedArguments | str:
    """Check a call's arguments before the tool runs.

    Returns:
        The arguments, or a message about the agent's mistake that quotes only the agent itself. (A
        ValidationError that the tool raises later may quote the environment and counts as the tool's.)
    """
    function = runtime.functions.get(call.function)
    if (unread := explain_unread_call(call)) is not None:
        return unread
    if function is None:
        return f"There is no tool named {call.function[:100]!r}. Tools: {', '.join(runtime.functions)}."
    declared, takes_more = function.parameters.model_fields, isinstance(function, ForeignFunction)
    given = {
        key: value
        for key, value in call.args.items()
        if key in declared or (takes_more and key != INTENT_PARAMETER)
    }
    try:
        read = function.parameters.model_validate(given).model_dump(exclude_unset=True)
    except ValidationError as error:
        return f"The arguments are not valid, so the tool did not run. {error}"
    # 1200 stays 1200 where the schema reads 1200.0: validators compare arguments with the request's words.
    read = {key: given[key] if given[key] == value else value for key, value in read.items()}
    return CheckedArguments(given, read)


_NOTHING: Untrusted[Any] = Untrusted(None)


@dataclass(frozen=True)
class ToolOutput:
    """The output of a tool call."""

    text: Untrusted[str]
    error: ToolError | None
    """The tool's error; if there is one, `text` is empty."""
    value: Untrusted[Any] = _NOTHING
    """The value that `text` was formatted from."""


def run_tool(runtime: FunctionsRuntime, env: TaskEnvironment, tool: str, args: dict[str, Any]) -> ToolOutput:
    """Run a tool whose arguments were checked, and format its value as AgentDojo does."""
    outcome = call_tool(runtime, env, tool, args)
    if outcome.error is not None:
        return ToolOutput(Untrusted(""), outcome.error)
    text = write_tool_value(outcome.value.open_for(Reader.QUARANTINE))
    return ToolOutput(Untrusted(text), None, outcome.value)


_MAX_MESSAGE_CHARS = 500
_MATCH_S = 0.05
"""Time limit, in seconds, of matching a message with one template."""


def filter_tool_error(error: ToolError, function: Function, args: Mapping[str, Any]) -> dict[str, str]:
    """Keep the parts of an error that the calling agent may read.

    Returns:
        `exception`, its kind, and `message` if it holds only the tool's own words and the caller's.
    """
    shown = {"exception": error.kind}
    message = error.message.open_for(Reader.GATE)
    if error.kind == TOOL_FAILED or not 0 < len(message) <= _MAX_MESSAGE_CHARS:
        return shown
    own = {str(leaf) for leaf in list_scalars(args)}
    return shown | ({"message": message} if _is_own_message(message, function.run.__module__, own) else {})


def _is_own_message(message: str, module: str, own: set[str]) -> bool:
    for template in _list_message_templates(module):
        try:
            filled = template.fullmatch(message, timeout=_MATCH_S)
        except TimeoutError:
            continue
        if filled is not None and all(group.strip("'\"") in own or group in own for group in filled.groups()):
            return True
    return False


@lru_cache(maxsize=256)
def _list_message_templates(module: str) -> tuple[regex.Pattern[str], ...]:
    """Turn every message that a module's code raises into a pattern with a group for each value filled in."""
    try:
        tree = parse_module(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return ()
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    calls = [exc for exc in raised if isinstance(exc, ast.Call) and len(exc.args) == 1]
    return tuple(
        regex.compile(text, regex.DOTALL)
        for call in calls
        if (text := _build_pattern(call.args[0])) is not None
    )


def _build_pattern(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return str(regex.escape(node.value))
    if isinstance(node, ast.JoinedStr):
        parts = [_build_pattern(part) if isinstance(part, ast.Constant) else "(.*?)" for part in node.values]
        return "".join(part or "" for part in parts)
    return None
