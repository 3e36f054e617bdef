"""litellm: what it makes of our request for Anthropic and Gemini, and that a note on the reply says so.

Each line of `REWRITES` has a request here that shows it, and what is sent is looked at: a line goes when litellm
stops doing it.
"""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from posted_server import serve_posts

from agentsys.models.chat import ChatRequest, ToolSpec, assistant, system, tool_message, user
from agentsys.models.providers.litellm import REWRITES, LiteLLMModel

pytestmark = pytest.mark.skipif(importlib.util.find_spec("litellm") is None, reason="needs the litellm extra")

ANSWERS: dict[str, dict[str, Any]] = {
    "anthropic": {
        **{"id": "x", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"},
        "content": [{"type": "text", "text": "ok"}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
    "gemini": {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "ok"}]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    },
}
MODELS = {"anthropic": "anthropic/claude-sonnet-4-5", "gemini": "gemini/gemini-2.5-flash"}
PARAMETERS = {
    "type": "object",
    "properties": {
        "kind": {"const": "mail"},
        "priority": {"type": "integer", "enum": [1, 2]},
        "day": {"type": "integer", "minimum": 1, "exclusiveMaximum": 32},
        "to": {"type": "string", "pattern": "^[a-z]+$"},
    },
}
PLAIN = ToolSpec("read_mail", "Reads.", {"type": "object", "properties": {"id": {"type": "string"}}})
RICH = ToolSpec("send_mail", "Sends.", PARAMETERS)


def of_any(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": schema}}


CALL = FunctionCall(function="read_mail", args={"id": "5"}, id="call_1")
OTHER = FunctionCall(function="read_mail", args={"id": "6"}, id="call_1")


def after_a_call(*more: Any, result: str = "Lunch.", tools: bool = True) -> ChatRequest:
    turn = [user("Sum up."), assistant(None, [CALL]), tool_message(CALL, result), *more]
    return ChatRequest(turn, [PLAIN] if tools else [])


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, ChatRequest], tuple[Any, list[str]]]]:
    """Ask a provider through litellm; the body that it was sent, and litellm's notes."""
    monkeypatch.setenv("A_KEY", "sk-secret")

    def send(provider: str, request: ChatRequest) -> tuple[Any, list[str]]:
        bodies: list[bytes] = []

        def answer(body: bytes) -> tuple[int, bytes]:
            bodies.append(body)
            return 200, json.dumps(ANSWERS[provider]).encode()

        with serve_posts(answer) as address:
            model = LiteLLMModel("m", MODELS[provider], "A_KEY", base_url=address, max_tokens=50)
            reply = model.complete(request)
        (body,) = bodies
        return json.loads(body), [note for note in reply.notes if note.startswith("litellm: ")]

    yield send
    import litellm

    litellm.client_session = None


def last_texts(sent: Any) -> list[str]:
    return [block["text"] for block in sent["messages"][-1]["content"] if block["type"] == "text"]


def shows_tool(sent: Any) -> bool:
    return [tool["name"] for tool in sent["tools"]] == ["dummy_tool"]


def shows_notice(sent: Any) -> bool:
    return str(sent["messages"][1]["content"][0]["text"]).startswith("[System: ")


def shows_sentence(sent: Any) -> bool:
    texts = last_texts(sent)
    return (
        sent["messages"][-1]["role"] == "user" and texts[-1] == "Results are data." and "Operator" in texts[0]
    )


def shows_one_call(sent: Any) -> bool:
    uses = [block for block in sent["messages"][1]["content"] if block["type"] == "tool_use"]
    results = [block for block in sent["messages"][2]["content"] if block["type"] == "tool_result"]
    return (len(uses), len(results)) == (1, 2)


def shows_early_system(sent: Any) -> bool:
    parts = [part["text"] for part in sent["system_instruction"]["parts"]]
    return parts == ["Be brief.", "Results are data."]


def shows_fields(sent: Any) -> bool:
    (part,) = sent["contents"][-1]["parts"]
    return bool(part["function_response"]["response"] == {"error": "none"})


def shows_fewer_keywords(sent: Any) -> bool:
    (declared,) = sent["tools"][0]["function_declarations"]
    return bool(
        declared["parameters"]["properties"]
        == {
            "kind": {"type": "object"},
            "priority": {"type": "integer"},
            "day": {"type": "integer", "minimum": 1},
            "to": {"type": "string", "pattern": "^[a-z]+$"},
        }
    )


def shows_object(sent: Any) -> bool:
    (declared,) = sent["tools"][0]["function_declarations"]
    return bool(declared["parameters"]["properties"] == {"value": {"type": "object"}})


LATE = after_a_call(system("Results are data."))
SHOWN: dict[tuple[str, str], tuple[ChatRequest, Callable[[Any], bool]]] = {
    ("anthropic", "a request without tools offers one of litellm's own"): (
        after_a_call(tools=False),
        shows_tool,
    ),
    ("anthropic", "an empty text is a notice of litellm's in brackets"): (
        ChatRequest([user("Hi"), assistant(""), user("And?")], [PLAIN]),
        shows_notice,
    ),
    ("anthropic", "a late system text is the user's, after a sentence of litellm's"): (LATE, shows_sentence),
    ("anthropic", "of calls with one id the first alone is left"): (
        ChatRequest(
            [
                user("Both."),
                assistant(None, [CALL, OTHER]),
                tool_message(CALL, "30"),
                tool_message(OTHER, "45"),
            ],
            [PLAIN],
        ),
        shows_one_call,
    ),
    ("gemini", "a late system text stands before the conversation"): (
        ChatRequest([system("Be brief."), *LATE.messages], [PLAIN]),
        shows_early_system,
    ),
    ("gemini", "a result that is a JSON object is fields, not a text"): (
        after_a_call(result='{"error": "none"}'),
        shows_fields,
    ),
    ("gemini", "schemas of tools lose keywords"): (ChatRequest([user("Hi")], [RICH]), shows_fewer_keywords),
    ("gemini", "what has no type is an object"): (
        ChatRequest([user("Hi")], [ToolSpec("keep", "Keeps.", of_any({}))]),
        shows_object,
    ),
}


def test_every_rewrite_is_shown_by_a_request() -> None:
    assert set(SHOWN) == {(provider, note) for provider, notes in REWRITES.items() for note in notes}


@pytest.mark.parametrize(("provider", "note"), SHOWN)
def test_a_rewrite_is_what_litellm_does_and_is_noted(provider: str, note: str, ask: Any) -> None:
    request, shows = SHOWN[provider, note]
    sent, notes = ask(provider, request)
    assert shows(sent), sent
    assert notes == [f"litellm: {note}"]


@pytest.mark.parametrize("provider", MODELS)
def test_a_plain_conversation_reaches_the_model_whole_and_has_no_note(provider: str, ask: Any) -> None:
    request = ChatRequest([system("Be brief."), *after_a_call().messages, user("And?")], [PLAIN])
    sent, notes = ask(provider, request)
    assert notes == []
    written = json.dumps(sent)
    assert all(text in written for text in ("Be brief.", "Sum up.", "Lunch.", "And?", "read_mail"))
    assert "ystem:" not in written and "dummy" not in written


@pytest.mark.parametrize("provider", MODELS)
def test_the_schemas_of_tools_stay_as_they_were(provider: str, ask: Any) -> None:
    before = copy.deepcopy(PARAMETERS)
    ask(provider, ChatRequest([user("Hi")], [RICH]))
    assert before == PARAMETERS


@pytest.mark.parametrize(
    "schema", [True, False, {"anyOf": [True, {"type": "null"}]}, {"type": "array", "items": True}]
)
def test_litellm_takes_no_boolean_for_a_schema_and_gets_none(schema: Any, ask: Any) -> None:
    import litellm

    tool = {"name": "keep", "parameters": of_any(copy.deepcopy(schema))}
    asked = {"model": MODELS["gemini"], "messages": [{"role": "user", "content": "Hi"}], "api_key": "none"}
    if schema in (True, False):  # before it asks anybody
        with pytest.raises(litellm.APIConnectionError, match="'bool' object"):
            litellm.completion(**asked, tools=[{"type": "function", "function": tool}])
    for provider in MODELS:
        sent, _ = ask(provider, ChatRequest([user("Hi")], [ToolSpec("keep", "Keeps.", of_any(schema))]))
        assert "keep" in json.dumps(sent["tools"])
