"""One turn of an agent: what it is asked, the calls it makes, and the tools that run for it.

A tool's error may quote the environment ("No match for <text of a mail>"). Its message is passed on only
where it is one that the tool's source has, with nothing filled in but the caller's own arguments.
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
    """The model's next message, its calls copied; arguments are mended as AgentDojo's executor does.

    Those of a foreign tool of the runtime are left as they came: a text may be meant.
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
    """A list that a model wrote as a string becomes the list (AgentDojo's executor does the same)."""
    if isinstance(value, FunctionCall):
        # It would run without being judged; models cannot send one, but it is made inert.
        return value.model_dump()
    return parse_list_text(value) if isinstance(value, str) and "[" in value and not is_foreign else value


@dataclass(frozen=True)
class CheckedArguments:
    """A call's arguments that the tool's schema accepts."""

    raw: dict[str, Any]
    """As the agent wrote them, without what the tool does not have: what it is run with."""
    parsed: dict[str, Any]
    """As the schema reads them: what stands in traces and is judged."""


def check_arguments(runtime: FunctionsRuntime, call: FunctionCall) -> CheckedArguments | str:
    """A call's arguments, or what the calling agent did wrong, in full: it holds no text but the agent's own.

    The arguments are checked before anything runs: an error of the same class that a tool raises later may
    quote the environment and counts as the tool's.
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
    # 1200 stays 1200 where the schema reads 1200.0: what is judged is compared with the request.
    read = {key: given[key] if given[key] == value else value for key, value in read.items()}
    return CheckedArguments(given, read)


_NOTHING: Untrusted[Any] = Untrusted(None)


@dataclass(frozen=True)
class ToolOutput:
    """A tool's output."""

    text: Untrusted[str]
    error: ToolError | None
    """The tool's error; then `text` is empty."""
    value: Untrusted[Any] = _NOTHING
    """What `text` was written from."""


def run_tool(runtime: FunctionsRuntime, env: TaskEnvironment, tool: str, args: dict[str, Any]) -> ToolOutput:
    """Run a tool whose arguments were checked, and write its value the way AgentDojo does."""
    outcome = call_tool(runtime, env, tool, args)
    if outcome.error is not None:
        return ToolOutput(Untrusted(""), outcome.error)
    text = write_tool_value(outcome.value.open_for(Reader.QUARANTINE))
    return ToolOutput(Untrusted(text), None, outcome.value)


_MAX_MESSAGE_CHARS = 500
_MATCH_S = 0.05
"""Seconds that a message is held against one of the tool's own."""


def filter_tool_error(error: ToolError, function: Function, args: Mapping[str, Any]) -> dict[str, str]:
    """The parts of an error that the agent which called the tool may read.

    Returns:
        `exception`, its kind, and `message` where it holds nothing but the caller's own words.
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
    """Every message that the code of a module raises, as a pattern with a group for each value filled in."""
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
