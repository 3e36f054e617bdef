"""`RequestPosition`: where a request stands, read from the ids of its calls and never from its words.

Texts of tool results are read behind the last calls alone; everything older is the server's own to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentdojo.types import ChatMessage

from agentsys.models.chat import assistant, text_of
from agentsys.records.served_call_ids import ANSWER, TOOL, WRITTEN_ID, is_call_id
from agentsys_plugins.serve.served_model.wire_format import RequestRefused, WireRequest

_NOT_TAKEN = "That answer was not taken. Give the answer once more, so that it fits its schema."


@dataclass(frozen=True)
class RequestPosition:
    """A request's place."""

    call_id: str
    """Id of the last call of a tool in it; empty where it has words alone."""
    call: tuple[str, dict[str, Any]] | None
    """This call, as the client has it: tool and arguments. None where it wrote it as words."""
    answers: tuple[str, ...]
    """What its tool gave: the texts of the results behind it."""
    words: Sequence[ChatMessage]
    """Words of user and assistant behind these, up to the user's newest."""
    user_text: str
    """The user's newest words."""
    system_text: str
    """The client's system messages."""


def read_position(request: WireRequest) -> RequestPosition:
    """Read a request's place; refused if results stand in it as the user's words, or of calls not the last."""
    if request.nameless_results:
        why = "results of tools have the ids of their calls here: words of the user are believed"
        raise RequestRefused(400, why, code="nameless_result")
    messages = [each for each in request.messages if each["role"] != "system"]
    at, call_id, call = _find_last_call(messages)
    behind = messages[at + 1 :]
    results = [each for each in behind if each["role"] == "tool" and not _is_of_answer(each["tool_call_id"])]
    if any(each["tool_call_id"] != call_id for each in results):
        raise RequestRefused(400, "one call is made at a time, and takes one result", code="out_of_place")
    answers = tuple(map(text_of, results))
    if call_id and call is None:
        # Some clients write calls and their results as words: then the user's words right behind are results.
        count = next((n for n, each in enumerate(behind) if each["role"] != "user"), len(behind))
        answers = ("\n\n".join(map(text_of, behind[:count])),) if count else ()
        behind = behind[count:]
    spoken = [n for n, each in enumerate(behind) if each["role"] == "assistant"]
    newest = behind[spoken[-1] + 1 :] if spoken else behind
    said = "\n\n".join(text_of(each) for each in newest if each["role"] == "user").strip()
    if not said and newest and newest[-1]["role"] == "tool" and not answers:
        said = _NOT_TAKEN  # In our words: the client's may hold a tool's.
    words = [_keep_words(each) for each in behind[: len(behind) - len(newest)] if each["role"] != "tool"]
    told = "\n\n".join(text_of(each) for each in request.messages if each["role"] == "system").strip()
    return RequestPosition(call_id, call, answers, words, said, told)


def _find_last_call(messages: Sequence[ChatMessage]) -> tuple[int, str, tuple[str, dict[str, Any]] | None]:
    """Where the last call of a tool stands, its id, and the call, where it is not written as words."""
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message["role"] != "assistant":
            continue
        calls = message["tool_calls"] or ()
        made: list[tuple[str, tuple[str, dict[str, Any]] | None]]
        made = [(str(one.id), (one.function, dict(one.args))) for one in calls if not _is_of_answer(one.id)]
        if not calls:
            made = [
                (one, None)
                for one in dict.fromkeys(WRITTEN_ID.findall(text_of(message)))
                if is_call_id(TOOL, one)
            ]
        if len(made) > 1:
            why = "calls are handed out one at a time here, and these are not this server's"
            raise RequestRefused(409, why, code="unknown_conversation")
        for call_id, call in made:
            return at, call_id, call
    return -1, "", None


def _is_of_answer(call_id: object) -> bool:
    return is_call_id(ANSWER, call_id)


def _keep_words(message: ChatMessage) -> ChatMessage:
    """A message without calls: an answer that was a call stands in the words of its arguments."""
    if message["role"] != "assistant" or not message["tool_calls"]:
        return message
    return assistant(text_of(message) or "\n".join(str(dict(call.args)) for call in message["tool_calls"]))
