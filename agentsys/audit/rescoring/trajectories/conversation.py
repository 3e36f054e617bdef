"""`ToldMessages`: what a record's messages tell, in AgentDojo's form (old or new), ours or DRIFT's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentdojo.types import ChatMessage, ChatToolResultMessage, MessageContentBlock

from agentsys.audit.rescoring.trajectories.trajectory import RecordedCall
from agentsys.audit.rescoring.trajectories.unusable import RecordFault, Unusable
from agentsys.models.chat import text_of
from agentsys.models.replay.recorded_run import UnreadableRun, recorded_messages


@dataclass(frozen=True)
class ToldMessages:
    """The messages, taken apart."""

    asked: tuple[RecordedCall, ...]
    """Calls in the assistant's messages: what AgentDojo gives its checks."""
    ran: tuple[RecordedCall, ...]
    """Calls that a tool message answers, less those that a defense refused there. The last message's calls
    may never have run."""
    answer: tuple[MessageContentBlock, ...] | None
    """Content of the message that is judged; None if that is not the assistant's."""
    prompt: str | None
    """The first user message."""
    tool_texts: tuple[str, ...]
    """Contents and errors of tool messages."""


_NOTHING_SAID = ToldMessages((), (), None, None, ())


def conversation(stored: object, error: str | None, *, last_assistant: bool = False) -> ToldMessages:
    """Take a stored list of messages apart.

    Args:
        stored: The messages as they stand in the file's JSON.
        error: The error that ended the run, if one did. Such a run may have said nothing.
        last_assistant: Whether the answer is the last assistant message, wherever it stands.

    Raises:
        Unusable: If it is no list of messages; if a run without error has none, or no answer at the end.
    """
    if error is not None:
        return _apart(stored, last_assistant) if stored else _NOTHING_SAID
    if stored == []:
        raise Unusable(RecordFault.HOLLOW, "scores, but an empty list of messages")
    told = _apart(stored, last_assistant)
    if told.answer is None:
        raise Unusable(RecordFault.UNFINISHED, "the last message is not the assistant's")
    return told


_REFUSED = re.compile(r"Please try other tools or arguments and continue to finish the user task")
"""Stands in the error of a call that Progent's published code refused: no tool ran."""


def _apart(stored: object, last_assistant: bool) -> ToldMessages:
    try:
        messages = recorded_messages(stored)
    except UnreadableRun as fault:
        raise Unusable(RecordFault.UNREADABLE, f"messages: {fault}") from None
    tools = [message for message in messages if message["role"] == "tool"]
    return ToldMessages(
        tuple(_asked(messages)),
        tuple(
            RecordedCall(message["tool_call"].function, message["tool_call"].args, _shown(message))
            for message in tools
            if not _REFUSED.search(message["error"] or "")
        ),
        _answer(messages, last_assistant),
        next((text_of(message) for message in messages if message["role"] == "user"), None),
        tuple(text for message in tools for text in (text_of(message), message["error"]) if text),
    )


def _asked(messages: tuple[ChatMessage, ...]) -> Iterator[RecordedCall]:
    for message in messages:
        if message["role"] == "assistant":
            for call in message["tool_calls"] or ():
                yield RecordedCall(call.function, call.args)


def _answer(messages: Sequence[ChatMessage], last_assistant: bool) -> tuple[MessageContentBlock, ...] | None:
    judged = reversed(messages) if last_assistant else messages[-1:]
    last = next((message for message in judged if message["role"] == "assistant"), None)
    return None if last is None else tuple(last["content"] or ())


def _shown(message: ChatToolResultMessage) -> str:
    """The error in place of the content, where there is one."""
    return message["error"] or text_of(message)
