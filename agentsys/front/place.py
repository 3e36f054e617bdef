"""`RequestPlace`: where a request stands in which conversation: all that a resent transcript is used for.

Texts of tool results are looked at in its newest part alone, and only if the server is waiting for them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.serving.conversation import UNNAMED_CALL_PREFIX
from agentsys.models.serving.wire import WireRequest

_MADE_UP_ID = re.compile(rf"{UNNAMED_CALL_PREFIX}\d+")


@dataclass(frozen=True)
class ToolAnswer:
    """What a client's tool gave."""

    text: str
    error: str | None = None
    """The tool's error, where the wire has a mark for one; then `text` is empty."""


@dataclass(frozen=True)
class ConversationPosition:
    """A request's place. Marks hold the words of user and assistant, and never those of tools."""

    is_new: bool
    """Whether no assistant has said anything, here or in a reply that is named: a new conversation."""
    previous_reply_id: str
    """Id of the reply that it goes on from, in place of all that was said before; mostly empty."""
    history_mark: str
    """Mark of all up to the last assistant message: the state that the client wants to go on from."""
    request_mark: str
    """Mark of the whole request."""
    replies: int
    """Assistant messages in it."""
    call_ids: tuple[str, ...]
    """Ids of the calls in the last assistant message; ids that the client has lost are made up."""
    has_lost_ids: bool
    """Whether they are all made up."""
    latest_id: str | None
    """The last id in the transcript that may be one of the server's."""
    answers: tuple[tuple[str, ToolAnswer], ...]
    """Results behind the last assistant message: the call's id and what its tool gave."""
    user_text: str
    """The user's words behind the last assistant message."""
    system_text: str
    """The client's system messages."""


def read_position(request: ChatRequest) -> ConversationPosition:
    """Read a request's place from its messages."""
    messages = request.messages
    after = request.goes_on_from if isinstance(request, WireRequest) else ""
    spoken = [number for number, one in enumerate(messages) if one["role"] == "assistant"]
    until = spoken[-1] + 1 if spoken else 0
    newest = messages[until:]
    called = _list_call_ids(messages[until - 1]) if spoken else ()
    ids = [one for message in messages[:until] for one in _list_call_ids(message) if not _MADE_UP_ID.fullmatch(one)]
    return ConversationPosition(
        is_new=not spoken and not after,
        previous_reply_id=after,
        history_mark=digest_messages(messages[:until]),
        request_mark=after + digest_messages(messages),
        replies=len(spoken),
        call_ids=called,
        has_lost_ids=bool(called) and all(_MADE_UP_ID.fullmatch(one) for one in called),
        latest_id=ids[-1] if ids else None,
        answers=tuple((str(one["tool_call_id"]), _read_answer(one)) for one in newest if one["role"] == "tool"),
        user_text="\n\n".join(text_of(one) for one in newest if one["role"] == "user").strip(),
        system_text="\n\n".join(text_of(one) for one in messages if one["role"] == "system").strip(),
    )


def _list_call_ids(message: ChatMessage) -> tuple[str, ...]:
    return tuple(str(call.id) for call in _comparable_calls(message))


def _read_answer(message: Any) -> ToolAnswer:
    error = message["error"]
    return ToolAnswer(text_of(message)) if error is None else ToolAnswer("", error)


def digest_messages(messages: Sequence[ChatMessage]) -> str:
    """A digest of what user and assistant said and called, and of how many calls were answered.

    Ids are no part of it (some wires lose them), nor are system messages, in which clients write the time.
    """
    seen = [_comparable_message(message) for message in messages if message["role"] != "system"]
    return hashlib.sha256(json.dumps(seen, default=str).encode("utf-8", "surrogatepass")).hexdigest()


def _comparable_message(message: ChatMessage) -> list[Any]:
    if message["role"] == "tool":
        return ["tool"]
    calls = [[call.function, dict(call.args)] for call in _comparable_calls(message)]
    return [message["role"], text_of(message).strip(), calls]


def _comparable_calls(message: ChatMessage) -> Sequence[Any]:
    return (message["tool_calls"] or ()) if message["role"] == "assistant" else ()
