"""Reads an actor's reply: its calls, and the text that is kept of it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentdojo.ast_utils import ASTParsingError, parse_tool_calls_from_python_function
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.models.prompted_tools import (
    ANSWER,
    CALL,
    THOUGHT,
    CallSyntaxError,
    read_calls,
    text_between_tags,
    write_reply,
)
from baselines.drift.refusal import args_as_text

CALL_OPENING = f"<{CALL}>"
"""A reply without this is an answer and ends the run."""
NO_CALLS = "[]"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOTHING = {"None", "null"}
"""Other words for no calls. The reference's repair makes `None` a call of a tool named `on`."""


@dataclass(frozen=True)
class ActorReply:
    """An actor's reply."""

    text: str
    """The three sections; text outside them is not kept."""
    calls: tuple[FunctionCall, ...]


def read_actor_reply(text: str, *, parse_first: bool) -> ActorReply:
    """The reply a text is; with `parse_first`, calls are repaired only if they cannot be read as they are.

    Raises:
        CallSyntaxError: If they cannot be read either way.
    """
    body = text_between_tags(text, CALL)
    calls = _read_calls(NO_CALLS if body is None else body, parse_first)
    kept = write_reply(
        text_between_tags(text, THOUGHT) or "", body or "", text_between_tags(text, ANSWER) or ""
    )
    return ActorReply(kept, tuple(calls))


def _read_calls(body: str, parse_first: bool) -> list[FunctionCall]:
    if parse_first:
        if body.strip() in _NOTHING:
            return []
        try:
            return read_calls(body)
        except CallSyntaxError:
            # Say, a tool named without parentheses. A list that was cut off is not to be guessed at.
            if not (body.strip().startswith("[") and body.strip().endswith("]")):
                raise
    try:
        found: list[FunctionCall] = parse_tool_calls_from_python_function(repair_calls(body))
        json.dumps([call.args for call in found], default=str)  # a number in hex may be too long to be stored
    # agentdojo 0.1.35 lets IndexError, TypeError and the Python parser's own errors through.
    except (ASTParsingError, ValueError, TypeError, IndexError, RecursionError, MemoryError) as error:
        raise CallSyntaxError(str(error) or type(error).__name__) from None
    for call in found:
        call.args = {name: "..." if value is Ellipsis else value for name, value in call.args.items()}
    return found


def repair_calls(body: str) -> str:
    """The reference's repair: the ends cut off, split at every comma, lone names made calls.

    It alters arguments with commas in them; see `Fix.PARSE_BEFORE_REPAIR`. Names are ASCII, as in the
    reference's pattern: a word such as `rösti` between two commas of a message is none.
    """
    pieces = [piece.strip() for piece in body.strip()[1:-1].split(",")]
    return f"[{', '.join(f'{piece}()' if _NAME.fullmatch(piece) else piece for piece in pieces)}]"


def number_calls(calls: Sequence[FunctionCall], turn: int) -> tuple[FunctionCall, ...]:
    """The calls with ids of their own, the same in every run."""
    return tuple(
        FunctionCall(function=call.function, args=dict(call.args), id=f"call_{turn}_{place}")
        for place, call in enumerate(calls)
    )


def was_made_before(call: FunctionCall, messages: Sequence[ChatMessage]) -> bool:
    """Whether the very same call stands in an earlier assistant message."""
    wanted = call_key(call)
    return any(
        call_key(made) == wanted
        for message in messages
        if message["role"] == "assistant"
        for made in message["tool_calls"] or ()
    )


def call_key(call: FunctionCall) -> tuple[str, str]:
    """Give the key that two calls share if they are the same."""
    return call.function, args_as_text(call)
