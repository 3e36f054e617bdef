"""What a reply's ending asks for is done, over every wire: asked again, sent back, told to the model, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from posted_server import JSON, serve_posts
from providers_under_test import model_at

from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, ToolSpec, text_of, user
from agentsys.models.endings import Ending
from agentsys.models.reply_checks import count_oddities
from agentsys.models.text_tools import MALFORMED_CALL, explain_unread_call
from agentsys.models.wrappers.accounting import RetryingModel, RetryPolicy, RetryTiming
from agentsys.models.wrappers.reply_cache import CachingModel, ReplyStore, RequestKeys

PAY = ToolSpec(
    "pay", "Pays.", {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
)
ASK = ChatRequest([user("Pay Bob.")], [PAY])
AT_ONCE = RetryTiming(sleep=lambda seconds: None)


class Replies:
    """A server that gives these replies in turn, the last for ever, and keeps what it was asked."""

    def __init__(self, *bodies: dict[str, Any]) -> None:
        self.bodies = list(bodies)
        self.asked: list[dict[str, Any]] = []

    def answer(self, posted: bytes) -> tuple[int, bytes]:
        self.asked.append(json.loads(posted))
        body = self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0]
        return 200, json.dumps(body).encode()


def ask(replies: Replies, vendor: str, request: ChatRequest = ASK, **policy: Any) -> ChatReply:
    with serve_posts(replies.answer, JSON) as base_url:
        return RetryingModel(model_at(vendor, base_url), RetryPolicy(**policy), AT_ONCE).complete(request)


USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


def chat(content: str | None, reason: str | None, *calls: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "tool_calls": list(calls) or None}
    return {"model": "m", "choices": [{"message": message, "finish_reason": reason}], "usage": USAGE}


def messages(content: list[dict[str, Any]], reason: str) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    return {"type": "message", "model": "m", "content": content, "stop_reason": reason, "usage": usage}


def gemini(text: str, reason: str) -> dict[str, Any]:
    candidate = {"content": {"parts": [{"text": text}]}, "finishReason": reason}
    return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5}}


def says(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


GOOD = {
    "openai": chat("Paid.", "stop"),
    "anthropic": messages([says("Paid.")], "end_turn"),
    "google": gemini("Paid.", "STOP"),
}
BROKEN = {"openai": chat("I w", "network_error"), "google": gemini("I w", "OTHER")}
LOST = {
    "openai": chat("I pay.", "tool_calls"),
    "anthropic": messages([says("I pay.")], "tool_use"),
    "google": gemini("I pay.", "MALFORMED_FUNCTION_CALL"),
}


@pytest.mark.parametrize("vendor", BROKEN)
def test_a_reply_that_was_broken_off_is_asked_for_again_whatever_text_came_with_it(vendor: str) -> None:
    reply = ask(Replies(BROKEN[vendor], GOOD[vendor]), vendor)
    assert (text_of(reply.message), reply.attempts, reply.usage.prompt) == ("Paid.", 2, 20)


@pytest.mark.parametrize("vendor", BROKEN)
def test_replies_that_are_broken_off_to_the_last_are_a_server_error_in_the_servers_words(vendor: str) -> None:
    with pytest.raises(ModelError, match=r"network_error|OTHER") as caught:
        ask(Replies(BROKEN[vendor]), vendor, attempts=3)
    assert (caught.value.kind, caught.value.attempts, caught.value.usage.prompt) == (
        ErrorKind.SERVER_ERROR,
        3,
        30,
    )


@pytest.mark.parametrize("vendor", LOST)
def test_a_lost_call_is_asked_for_again(vendor: str) -> None:
    reply = ask(Replies(LOST[vendor], GOOD[vendor]), vendor)
    assert (text_of(reply.message), reply.message["tool_calls"], reply.attempts) == ("Paid.", None, 2)
    assert count_oddities(ASK, reply) == {MALFORMED_CALL: 1}


@pytest.mark.parametrize("vendor", LOST)
def test_a_call_that_is_lost_again_and_again_is_told_to_the_model_as_one_that_it_may_mend(
    vendor: str,
) -> None:
    replies = Replies(LOST[vendor])
    reply = ask(replies, vendor)
    assert (len(replies.asked), reply.ending) == (4, Ending.MALFORMED_CALL)
    (call,) = reply.message["tool_calls"] or [None]
    assert call
    assert "nothing ran" in str(explain_unread_call(call))
    assert count_oddities(ASK, reply) == {MALFORMED_CALL: 4}


@pytest.mark.parametrize("vendor", LOST)
def test_nobody_can_be_told_of_a_lost_call_where_there_are_no_tools(vendor: str) -> None:
    with pytest.raises(ModelError) as caught:
        ask(Replies(LOST[vendor]), vendor, ChatRequest([user("Hi")]), attempts=2)
    assert caught.value.kind is ErrorKind.MALFORMED_REPLY


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "Bob"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s1"}


def test_a_paused_turn_is_sent_back_as_it_came_and_goes_on() -> None:
    paused = [THOUGHT, says("I look."), SEARCH, FOUND]
    replies = Replies(messages(paused, "pause_turn"), GOOD["anthropic"])
    reply = ask(replies, "anthropic")
    assert replies.asked[1]["messages"] == [
        *replies.asked[0]["messages"],
        {"role": "assistant", "content": paused},
    ]
    assert (text_of(reply.message), reply.ending, reply.attempts) == ("I look.\nPaid.", Ending.COMPLETE, 2)
    assert (reply.usage.prompt, reply.usage.completion) == (20, 10)


def test_a_turn_that_is_paused_for_ever_is_a_server_error() -> None:
    replies = Replies(messages([says("I look.")], "pause_turn"))
    with pytest.raises(ModelError, match="paused") as caught:
        ask(replies, "anthropic", attempts=3)
    assert (caught.value.kind, len(replies.asked)) == (ErrorKind.SERVER_ERROR, 3)
    assert caught.value.usage.prompt == 30


def call(arguments: str) -> dict[str, Any]:
    return {"id": "call_x1y2z3", "type": "function", "function": {"name": "pay", "arguments": arguments}}


def test_arguments_that_cannot_be_read_go_to_the_model_and_not_to_the_provider_again() -> None:
    replies = Replies(chat(None, "tool_calls", call('{"to": 5 + 5}')), GOOD["openai"])
    reply = ask(replies, "openai")
    (made,) = reply.message["tool_calls"] or [None]
    assert made
    assert (len(replies.asked), made.function, made.id) == (1, MALFORMED_CALL, "call_x1y2z3")
    assert "as JSON it is wrong at character" in str(explain_unread_call(made))


def test_a_lost_call_is_kept_in_no_cache_and_a_paused_turn_goes_on_from_it(tmp_path: Any) -> None:
    replies = Replies(LOST["openai"], chat("I look.", "pause_turn"), GOOD["openai"])
    with serve_posts(replies.answer, JSON) as base_url:
        for _ in range(2):
            cached = CachingModel(model_at("openai", base_url), ReplyStore(tmp_path), RequestKeys({}))
            reply = RetryingModel(cached, RetryPolicy(), AT_ONCE).complete(ASK)
            assert (text_of(reply.message), reply.ending) == ("I look.\nPaid.", Ending.COMPLETE)
    assert len(replies.asked) == 3 and reply.from_cache


def test_an_id_that_a_server_gives_again_is_another_calls_id_only_once() -> None:
    spent = FunctionCall(function="pay", args={"to": "Al"}, id="call_0")
    said: Any = {"role": "assistant", "content": None, "tool_calls": [spent]}
    result: Any = {"role": "tool", "content": [], "tool_call": spent, "tool_call_id": "call_0", "error": None}
    again = {**call('{"to": "Bob"}'), "id": "call_0"}
    other = {**call('{"to": "Cy"}'), "id": "call_0"}
    asked = ChatRequest([user("Pay."), said, result], [PAY])
    reply = ask(Replies(chat(None, "tool_calls", again, other)), "openai", asked)
    ids = [made.id for made in reply.message["tool_calls"] or ()]
    assert len({"call_0", *ids}) == 3
