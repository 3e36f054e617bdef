"""One turn of an agent: its next message, the check of its calls' arguments, the run of a tool, and the `CallTrace`.

A tool's error may quote the environment ("No match for <text of a mail>"). Its message is passed on only if the
tool's source contains it, with no values filled in other than the caller's own arguments.
"""

from __future__ import annotations

import ast
import inspect
import json
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
from agentsys.defense.intent import INTENT_PARAMETER, Intent
from agentsys.models.chat import ChatModel, ChatRequest, JsonSchema, ToolSpec
from agentsys.models.pipeline_elements import parse_list_text, write_tool_value
from agentsys.models.text_tools import explain_unread_call
from agentsys.models.untrusted import (
    TOOL_FAILED,
    ForeignFunction,
    Reader,
    ToolError,
    Untrusted,
    UserRequest,
    call_tool,
)


@dataclass(frozen=True)
class TracedCall:
    """One tool call, without its result."""

    tool: str
    args: Mapping[str, Any]
    """The arguments as the tool's schema reads them, without undeclared ones, which the tool never gets."""
    intent: Intent | None
    """The declared return value; None where agents declare none (the no-isolation ablation)."""
    by_worker: bool = False
    """True if a worker made the call: its words may come from an output."""

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        call: dict[str, Any] = {"tool": self.tool, "args": dict(self.args)}
        return call if self.intent is None else {**call, "intent": dict(self.intent)}

    def mask(self, request: UserRequest) -> dict[str, Any]:
        """The call as a validator may see it: a worker's words are masked unless the request has them."""
        if not self.by_worker:
            return self.as_data()
        call = {
            "tool": self.tool,
            "args": {key: request.mask_value(value) for key, value in self.args.items()},
        }
        return call if self.intent is None else {**call, "intent": request.mask_fields(self.intent)}


@dataclass(frozen=True)
class AbandonedCall:
    """A call that ran for an abandoned worker, without its arguments, which the worker wrote."""

    tool: str

    def as_data(self) -> dict[str, Any]:
        """The call as JSON-ready data."""
        return {"tool": self.tool}

    def mask(self, request: UserRequest) -> dict[str, Any]:
        """The same data: a tool's name needs no mask."""
        return self.as_data()


TraceEntry = TracedCall | AbandonedCall


class CallTrace:
    """The calls that one agent may know of: those of its ancestors and its own, in order.

    Calls of workers of other outputs are left out: their arguments may quote what they read. A call is added when it
    is about to run, so that refused calls, which an injection may have caused, do not influence the validator's next
    verdict.
    """

    def __init__(self, calls: Sequence[TraceEntry] = ()) -> None:
        self.calls: list[TraceEntry] = list(calls)

    def add(self, call: TraceEntry) -> None:
        """Add a call that is about to run."""
        self.calls.append(call)

    def branch(self, given_up: Sequence[TraceEntry] = ()) -> CallTrace:
        """Copy this trace for a new worker, and append the names of tools that ran for abandoned workers."""
        return CallTrace([*self.calls, *(AbandonedCall(call.tool) for call in given_up)])

    def list_new_calls(self, other: CallTrace) -> Sequence[TraceEntry]:
        """Return the calls added since this trace was branched from `other`."""
        return self.calls[len(other.calls) :]

    def as_json(self) -> str:
        """The trace as one line of JSON, for a worker."""
        return format_json_line([call.as_data() for call in self.calls])

    def as_masked_json(self, request: UserRequest) -> str:
        """The trace as one line of JSON, for a validator."""
        return format_json_line([call.mask(request) for call in self.calls])


def format_json_line(data: object) -> str:
    """Format data as a single line of JSON; values that JSON does not know become strings."""
    return json.dumps(data, ensure_ascii=False, default=str)


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
