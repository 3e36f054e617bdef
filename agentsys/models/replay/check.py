"""Is this conversation the recorded one? Roles and tool calls must be; texts may differ and are noted."""

from __future__ import annotations

import bisect
import json
from collections.abc import Sequence

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.tools import normalize_arguments
from agentsys.models.trace import ACTING_ROLES

DIFFERS_NOTE = "differs from the record"
"""Stands in every note about a text."""

_OPENING_ROLES = ("system", "user")
"""Whose first messages open a conversation."""
_ANOTHER_DEFENSE = (
    "these runs were recorded under another defense, and replay fits only the one they were recorded with"
)
_QUOTED_CHARS = 80
"""Characters of a tool call that an error message quotes."""


def check_replayed_conversation(
    recorded: Sequence[ChatMessage], request: ChatRequest, *, strict: bool = False
) -> list[str]:
    """Compare the conversation so far with the record's beginning.

    Texts may differ for honest reasons (the benchmark's data changed, a tool's result holds the time), and
    then the recorded answers still answer something very like it. Other roles or calls are another run.

    Args:
        recorded: The record's messages.
        request: The question about to be answered.
        strict: Whether a text that differs is an error too.

    Returns:
        One note per message whose text differs.

    Raises:
        ModelError: REPLAY_DIVERGED, naming the first message that differs and how; also where a tool result
            was a value in the record and is a defense's refusal now.
    """
    if request.role not in ACTING_ROLES:
        _check_same_opening(recorded, request)
    notes: list[str] = []
    results = 0
    for index, message in enumerate(request.messages):
        if index >= len(recorded):
            raise _divergence(index, f"the record ends after {len(recorded)} messages")
        _check_shape(index, recorded[index], message)
        results += message["role"] == "tool"
        _check_not_refused(index, results, recorded[index], message)
        note = _difference_note(index, results, recorded[index], message)
        if note is not None and strict:
            raise _divergence(index, note)
        if note is not None:
            notes.append(note)
    return notes


def check_required_parameters(recorded: Sequence[ChatMessage], request: ChatRequest) -> None:
    """Compare the recorded calls with what the tools on offer demand.

    A call that brought a value without a parameter that is required now was made of another tool: a defense
    (AgentSys with its `intent`) has changed what is on offer, and the recorded answers answer nothing here.

    Args:
        recorded: A record's messages, of this case or of another one of the same pipeline and suite.
        request: The question about to be answered.

    Raises:
        ModelError: REPLAY_DIVERGED, naming the first such call and what it lacks.
    """
    required = {tool.name: frozenset(tool.parameters.get("required") or ()) for tool in request.tools}
    for call in successful_calls(recorded):
        lacking = sorted(required.get(call.function, frozenset()) - call.args.keys())
        if lacking:
            raise ModelError(
                ErrorKind.REPLAY_DIVERGED,
                f"the recorded call {_format_call(call)} has no `{lacking[0]}`, which this defense's tools demand;"
                f" {_ANOTHER_DEFENSE}",
            )


def successful_calls(recorded: Sequence[ChatMessage]) -> list[FunctionCall]:
    """The recorded calls that did not end in an error."""
    return [m["tool_call"] for m in recorded if m["role"] == "tool" and m["error"] is None]


def _check_same_opening(recorded: Sequence[ChatMessage], request: ChatRequest) -> None:
    """A record holds the acting agent's conversation alone.

    A helper role (a validator, a worker) with a conversation of its own would pass the other checks on its
    first question and be given the agent's first answer; it is told from a step of the recorded agent (as in
    AgentDojo's tool filter) by its opening. One of two texts is enough: Travel's published tool filter runs
    were made with requests in other words than any version of the benchmark has now.
    """
    openings = {role: (_first_text(recorded, role), _first_text(request.messages, role)) for role in _OPENING_ROLES}
    if not any(before is not None and before == now for before, now in openings.values()):
        raise ModelError(
            ErrorKind.REPLAY_DIVERGED,
            f"the record has no conversation of the role '{request.role}'; replay fits defenses that ask what"
            " the recorded one asked",
        )


def _first_text(messages: Sequence[ChatMessage], role: str) -> str | None:
    return next((text_of(message) for message in messages if message["role"] == role), None)


def _check_shape(index: int, recorded: ChatMessage, message: ChatMessage) -> None:
    if recorded["role"] != message["role"]:
        raise _divergence(index, f"its role is {message['role']}, in the record {recorded['role']}")
    before, now = _message_calls(recorded), _message_calls(message)
    if len(before) != len(now):
        raise _divergence(index, f"it makes {len(now)} tool calls, in the record {len(before)}")
    for old, new in zip(before, now, strict=True):
        if not _is_same_call(old, new):
            raise _divergence(index, f"its tool call is {_format_call(new)}, in the record {_format_call(old)}")


def _message_calls(message: ChatMessage) -> Sequence[FunctionCall]:
    """The calls an assistant message makes, or the call a tool message answers."""
    if message["role"] == "assistant":
        return message["tool_calls"] or []
    return [message["tool_call"]] if message["role"] == "tool" else []


def _is_same_call(old: FunctionCall, new: FunctionCall) -> bool:
    if old.function != new.function:
        return False
    return old.args == new.args or normalize_arguments(old.args) == normalize_arguments(new.args)


def _check_not_refused(index: int, results: int, recorded: ChatMessage, message: ChatMessage) -> None:
    """A refusal in a value's place is no other text: whatever was read then cannot be read now."""
    was_value = recorded["role"] == "tool" and recorded["error"] is None and not _is_failure_object(recorded)
    if was_value and _is_failure_object(message):
        shown = text_of(message)[:_QUOTED_CHARS]
        how = f"tool result {results} is a value in the record and {shown} here; {_ANOTHER_DEFENSE}"
        raise _divergence(index, how)


def _is_failure_object(message: ChatMessage) -> bool:
    """Whether a tool result is an object with an error's name alone: what defenses put in a value's place."""
    text = text_of(message).strip()
    if message["role"] != "tool" or not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.keys() == {"error"} and isinstance(value["error"], str)


def _difference_note(index: int, results: int, recorded: ChatMessage, message: ChatMessage) -> str | None:
    before, now = _model_text(recorded), _model_text(message)
    if before == now:
        return None
    what = f"tool result {results}" if message["role"] == "tool" else f"{message['role']} message {index + 1}"
    return f"{what} {DIFFERS_NOTE} (first difference at character {_common_prefix_length(before, now) + 1})"


def _model_text(message: ChatMessage) -> str:
    """The text that a model reads of a message: the error of a failed tool call, else the content."""
    error = message["error"] if message["role"] == "tool" else None
    return str(error) if error else text_of(message)


def _common_prefix_length(a: str, b: str) -> int:
    """Length of the common beginning. Bisection over slices: a loop over characters is slow on long texts."""
    return bisect.bisect_left(range(min(len(a), len(b))), True, key=lambda i: a[: i + 1] != b[: i + 1])


def _format_call(call: FunctionCall) -> str:
    text = f"{call.function}({', '.join(f'{k}={v!r}' for k, v in call.args.items())})"
    return text if len(text) <= _QUOTED_CHARS else f"{text[:_QUOTED_CHARS]}..."


def _divergence(index: int, how: str) -> ModelError:
    return ModelError(ErrorKind.REPLAY_DIVERGED, f"message {index + 1}: {how}")
