"""`CallHandover`: where a pipeline's thread and the client's requests meet.

The thread offers calls and waits for their answers; a request brings answers and waits for the next offer,
or for the turn's end. `ConversationPosition` is all that a resent transcript is used for: where a request
stands in which conversation. Texts of tool results are read in a request's newest part alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.serving.exchange import UNNAMED_CALL_PREFIX
from agentsys.models.serving.wire_format import WireRequest

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
    spoken = [number for number, each in enumerate(messages) if each["role"] == "assistant"]
    until = spoken[-1] + 1 if spoken else 0
    newest = messages[until:]
    called = _list_call_ids(messages[until - 1]) if spoken else ()
    listed = (id for message in messages[:until] for id in _list_call_ids(message))
    ids = [id for id in listed if not _MADE_UP_ID.fullmatch(id)]
    return ConversationPosition(
        is_new=not spoken and not after,
        previous_reply_id=after,
        history_mark=digest_messages(messages[:until]),
        request_mark=after + digest_messages(messages),
        replies=len(spoken),
        call_ids=called,
        has_lost_ids=bool(called) and all(_MADE_UP_ID.fullmatch(one) for one in called),
        latest_id=ids[-1] if ids else None,
        answers=tuple(
            (str(one["tool_call_id"]), _read_answer(one)) for one in newest if one["role"] == "tool"
        ),
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


class ConversationEnded(BaseException):
    """The conversation ends before its turn. A BaseException: no defense may take it for a tool's failure."""


@dataclass(frozen=True)
class OfferedCall:
    """A tool call as it is handed to the client."""

    id: str
    tool: str
    args: Mapping[str, object]


class CallHandover:
    """The meeting point of one turn of a conversation.

    Args:
        idle_s: Seconds that an offer waits for its answer.
    """

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._meet = threading.Condition()
        self._one_at_a_time = threading.Lock()
        self._offer: tuple[OfferedCall, ...] | None = None
        self._answers: Mapping[str, ToolAnswer] | None = None
        self._done = False
        self._ended: str | None = None

    def ask(self, calls: Sequence[OfferedCall]) -> Mapping[str, ToolAnswer]:
        """Offer calls and wait for their answers. Called from the pipeline's thread, or threads of its own.

        Raises:
            ConversationEnded: If none came in time, or the conversation was ended.
        """
        with self._one_at_a_time, self._meet:
            self._raise_if_ended()
            self._offer = tuple(calls)
            self._meet.notify_all()
            # The thread that waits for a client watches the time itself: nobody else has to end it.
            if not self._meet.wait_for(
                lambda: self._answers is not None or self._ended is not None, self.idle_s
            ):
                self._ended = f"no result of a tool came for {self.idle_s:g} s"
            self._raise_if_ended()
            answers, self._answers = self._answers, None
            assert answers is not None
            return answers

    def check_alive(self) -> None:
        """Go no further in a conversation that has ended.

        Raises:
            ConversationEnded: If it has.
        """
        with self._meet:
            self._raise_if_ended()

    def answer(self, answers: Mapping[str, ToolAnswer]) -> bool:
        """Answer the calls that are offered; False if the answer comes too late, or is of other calls."""
        with self._meet:
            offered = {call.id for call in self._offer or ()}
            if self._ended is not None or not offered or answers.keys() != offered:
                return False
            self._offer, self._answers = None, answers
            self._meet.notify_all()
            return True

    def next_offer(self) -> tuple[OfferedCall, ...]:
        """Wait for the next calls, or for the turn's end: then there are none."""
        with self._meet:
            self._meet.wait_for(lambda: self._done or self._offer is not None)
            return self._offer or ()

    def finish(self) -> None:
        """Say that the turn is over. Called from the pipeline's thread, when all about it is stored."""
        with self._meet:
            self._done, self._offer = True, None
            self._meet.notify_all()

    def end(self, why: str) -> None:
        """End the turn from outside; its thread stops where it next asks a tool or a model."""
        with self._meet:
            self._ended = self._ended or why
            self._meet.notify_all()

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            self._offer = None
            raise ConversationEnded(self._ended)
