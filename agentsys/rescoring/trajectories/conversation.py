"""`ToldMessages`: what a record's messages tell, in AgentDojo's form (old or new), ours or DRIFT's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agentdojo.types import ChatMessage, ChatToolResultMessage, MessageContentBlock

from agentsys.models.chat import text_of
from agentsys.models.replay.recorded_run import UnreadableRun, recorded_messages
from agentsys.rescoring.trajectories.trajectory import RecordedCall
from agentsys.rescoring.trajectories.unusable import RecordFault, Unusable


@dataclass(frozen=True)
class ToldMessages:
    """The messages, taken apart."""

    asked: tuple[RecordedCall, ...]
    """Calls in the assistant's messages: what AgentDojo gives its checks."""
    ran: tuple[RecordedCall, ...]
    """Calls that a tool message answers. The last message's calls may never have run."""
    answer: tuple[MessageContentBlock, ...] | None
    """Content of the last message; None if that is not the assistant's."""
    prompt: str | None
    """The first user message."""
    tool_texts: tuple[str, ...]
    """Contents and errors of tool messages."""


_NOTHING_SAID = ToldMessages((), (), None, None, ())


def conversation(stored: object, error: str | None) -> ToldMessages:
    """Take a stored list of messages apart.

    Args:
        stored: The messages as they stand in the file's JSON.
        error: The error that ended the run, if one did. Such a run may have said nothing.

    Raises:
        Unusable: If it is no list of messages; if a run without error has none, or no answer at the end.
    """
    if error is not None:
        return _apart(stored) if stored else _NOTHING_SAID
    if stored == []:
        raise Unusable(RecordFault.HOLLOW, "scores, but an empty list of messages")
    told = _apart(stored)
    if told.answer is None:
        raise Unusable(RecordFault.UNFINISHED, "the last message is not the assistant's")
    return told


def _apart(stored: object) -> ToldMessages:
    try:
        messages = recorded_messages(stored)
    except UnreadableRun as fault:
        raise Unusable(RecordFault.UNREADABLE, f"messages: {fault}") from None
    tools = [message for message in messages if message["role"] == "tool"]
    return ToldMessages(
        tuple(_asked(messages)),
        tuple(RecordedCall(m["tool_call"].function, m["tool_call"].args, _shown(m)) for m in tools),
        _answer(messages[-1]),
        next((text_of(message) for message in messages if message["role"] == "user"), None),
        tuple(text for message in tools for text in (text_of(message), message["error"]) if text),
    )


def _asked(messages: tuple[ChatMessage, ...]) -> Iterator[RecordedCall]:
    for message in messages:
        if message["role"] == "assistant":
            for call in message["tool_calls"] or ():
                yield RecordedCall(call.function, call.args)


def _answer(last: ChatMessage) -> tuple[MessageContentBlock, ...] | None:
    return tuple(last["content"] or ()) if last["role"] == "assistant" else None


def _shown(message: ChatToolResultMessage) -> str:
    """The error in place of the content, where there is one."""
    return message["error"] or text_of(message)
