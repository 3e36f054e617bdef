"""`ToldMessages`: what a record's messages tell, in AgentDojo's form (old or new), ours or DRIFT's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentdojo.types import ChatMessage, ChatToolResultMessage, MessageContentBlock

from agentsys.audit.rescoring.trajectories.trajectory import RecordedCall
from agentsys.audit.rescoring.trajectories.unusable import RecordFault, Unusable
from agentsys.models.chat import text_of
from agentsys.models.replay.recorded_run import UnreadableRun, parse_recorded_messages


@dataclass(frozen=True)
class ParsedMessages:
    """The messages, taken apart."""

    requested_calls: tuple[RecordedCall, ...]
    """Calls in the assistant's messages: what AgentDojo gives its checks."""
    executed_calls: tuple[RecordedCall, ...]
    """Calls that a tool message answers, less those that a defense refused there. The last message's calls
    may never have run."""
    answer: tuple[MessageContentBlock, ...] | None
    """Content of the message that is judged; None if that is not the assistant's."""
    prompt: str | None
    """The first user message."""
    tool_texts: tuple[str, ...]
    """Contents and errors of tool messages."""


_NO_MESSAGES = ParsedMessages((), (), None, None, ())


def parse_messages(stored: object, error: str | None, *, last_assistant: bool = False) -> ParsedMessages:
    """Take a stored list of messages apart.

    Args:
        stored: The messages as they stand in the file's JSON.
        error: The error that ended the run, if one did. Such a run may have said nothing.
        last_assistant: Whether the answer is the last assistant message, wherever it stands.

    Raises:
        Unusable: If it is no list of messages; if a run without error has none, or no answer at the end.
    """
    if error is not None:
        return _take_apart(stored, last_assistant) if stored else _NO_MESSAGES
    if stored == []:
        raise Unusable(RecordFault.HOLLOW, "scores, but an empty list of messages")
    told = _take_apart(stored, last_assistant)
    if told.answer is None:
        raise Unusable(RecordFault.UNFINISHED, "the last message is not the assistant's")
    return told


_PROGENT_REFUSAL = re.compile(r"Please try other tools or arguments and continue to finish the user task")
"""Stands in the error of a call that Progent's published code refused: no tool ran."""


def _take_apart(stored: object, last_assistant: bool) -> ParsedMessages:
    try:
        messages = parse_recorded_messages(stored)
    except UnreadableRun as fault:
        raise Unusable(RecordFault.UNREADABLE, f"messages: {fault}") from None
    tools = [message for message in messages if message["role"] == "tool"]
    return ParsedMessages(
        tuple(_find_requested_calls(messages)),
        tuple(
            RecordedCall(message["tool_call"].function, message["tool_call"].args, _get_shown_text(message))
            for message in tools
            if not _PROGENT_REFUSAL.search(message["error"] or "")
        ),
        _find_answer(messages, last_assistant),
        next((text_of(message) for message in messages if message["role"] == "user"), None),
        tuple(text for message in tools for text in (text_of(message), message["error"]) if text),
    )


def _find_requested_calls(messages: tuple[ChatMessage, ...]) -> Iterator[RecordedCall]:
    for message in messages:
        if message["role"] == "assistant":
            for call in message["tool_calls"] or ():
                yield RecordedCall(call.function, call.args)


def _find_answer(messages: Sequence[ChatMessage], last_assistant: bool) -> tuple[MessageContentBlock, ...] | None:
    judged = reversed(messages) if last_assistant else messages[-1:]
    last = next((message for message in judged if message["role"] == "assistant"), None)
    return None if last is None else tuple(last["content"] or ())


def _get_shown_text(message: ChatToolResultMessage) -> str:
    """The error in place of the content, where there is one."""
    return message["error"] or text_of(message)
