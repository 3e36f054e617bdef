"""`RequestPosition`: where a request stands, read from the ids of its calls and never from its words.

Texts of tool results are read behind the last calls alone; everything older is the server's own to know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.types import ChatMessage

from agentsys.models.chat import assistant, text_of
from agentsys.models.serving.wire_format import Problem, RequestRefused, WireRequest
from agentsys.records.agentdojo_format import SERVED_CALL_PREFIX

CALL_ID, ANSWER_ID = SERVED_CALL_PREFIX, "answer_"
"""Beginnings of the ids of calls: of tools (clients' stored files are known by it), and of the client's answer
schema, whose results nobody reads."""
_WRITTEN_ID = re.compile(rf"\b{CALL_ID}[0-9a-f]{{32}}\b")
_NOT_TAKEN = "That answer was not taken. Give the answer once more, so that it fits its schema."


@dataclass(frozen=True)
class ToolAnswer:
    """What a client's tool gave."""

    text: str
    error: str | None = None
    """The tool's error, where it is known to be one; then `text` is empty."""


@dataclass(frozen=True)
class RequestPosition:
    """A request's place."""

    call_ids: tuple[str, ...]
    """Ids of the last calls of tools in it; none where it has words alone."""
    calls: tuple[tuple[str, dict[str, Any]], ...] | None
    """These calls, as the client has them: tool and arguments. None where it wrote them as words."""
    answers: tuple[tuple[str, ToolAnswer], ...]
    """Results behind them: the call's id and what its tool gave."""
    words: Sequence[ChatMessage]
    """Words of user and assistant behind these, up to the user's newest."""
    user_text: str
    """The user's newest words."""
    system_text: str
    """The client's system messages."""


def read_position(request: WireRequest) -> RequestPosition:
    """Read a request's place from its messages.

    Raises:
        RequestRefused: If results stand in it as words of the user.
    """
    if request.nameless_results:
        why = "results of tools have the ids of their calls here: words of the user are believed"
        raise RequestRefused(Problem(400, why, code="nameless_result"))
    messages = [each for each in request.messages if each["role"] != "system"]
    called = [number for number, each in enumerate(messages) if _list_call_ids(each)]
    at = called[-1] if called else None
    ids = () if at is None else _list_call_ids(messages[at])
    is_written = at is not None and not _list_calls(messages[at])
    behind = messages if at is None else messages[at + 1 :]
    if is_written:
        # Some clients write calls and their results as words: then the user's words right behind are results.
        count = next((n for n, each in enumerate(behind) if each["role"] != "user"), len(behind))
        told = ToolAnswer("\n\n".join(map(text_of, behind[:count])))
        answers, behind = tuple((one, told) for one in ids if count), behind[count:]
    else:
        answers = tuple(
            (str(each["tool_call_id"]), _read_answer(each))
            for each in behind
            if each["role"] == "tool" and not str(each["tool_call_id"]).startswith(ANSWER_ID)
        )
    spoken = [n for n, each in enumerate(behind) if each["role"] == "assistant"]
    newest = behind[spoken[-1] + 1 :] if spoken else behind
    said = "\n\n".join(text_of(each) for each in newest if each["role"] == "user").strip()
    if not said and newest and newest[-1]["role"] == "tool" and not answers:
        said = _NOT_TAKEN  # In our words: the client's may hold a tool's.
    return RequestPosition(
        call_ids=ids,
        calls=None if is_written or at is None else tuple(_list_calls(messages[at])),
        answers=answers,
        words=[_keep_words(each) for each in behind[: len(behind) - len(newest)] if each["role"] != "tool"],
        user_text=said,
        system_text="\n\n".join(
            text_of(each) for each in request.messages if each["role"] == "system"
        ).strip(),
    )


def _list_calls(message: ChatMessage) -> list[tuple[str, dict[str, Any]]]:
    made = (message["tool_calls"] or ()) if message["role"] == "assistant" else ()
    return [(call.function, dict(call.args)) for call in made if not str(call.id).startswith(ANSWER_ID)]


def _list_call_ids(message: ChatMessage) -> tuple[str, ...]:
    if message["role"] != "assistant":
        return ()
    made = [str(call.id) for call in message["tool_calls"] or ()]
    return tuple(one for one in made if not one.startswith(ANSWER_ID)) or (
        () if made else tuple(dict.fromkeys(_WRITTEN_ID.findall(text_of(message))))
    )


def _keep_words(message: ChatMessage) -> ChatMessage:
    """A message without calls: an answer that was a call stands in the words of its arguments."""
    if message["role"] != "assistant" or not message["tool_calls"]:
        return message
    return assistant(text_of(message) or "\n".join(str(dict(call.args)) for call in message["tool_calls"]))


def _read_answer(message: Any) -> ToolAnswer:
    error = message["error"]
    return ToolAnswer(text_of(message)) if error is None else ToolAnswer("", error)
