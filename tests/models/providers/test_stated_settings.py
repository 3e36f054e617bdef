"""Settings that change what a model is asked: each is sent as it says, and never shares a cached reply."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import pytest
from providers_under_test import answering, model_at

from agentsys.models.build_model import reply_identity
from agentsys.models.chat import ChatRequest, ToolSpec, assistant, system, user
from agentsys.models.wrappers.reply_cache import RequestKeys

SCHEMA = {
    "type": "object",
    "properties": {"allow": {"type": "boolean"}},
    "required": ["allow"],
    "additionalProperties": False,
}
OPEN_SCHEMA = {"type": "object", "properties": {"allow": {"type": "boolean"}}}
MESSAGE = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "model": "m"}
COMPLETION = {"choices": [{"message": {"role": "assistant", "content": "Hi"}}], "model": "m"}
ASK = ChatRequest([system("Be brief."), user("Hi")])


def sent(vendor: str, request: ChatRequest, **more: Any) -> dict[str, Any]:
    """The body that a vendor's model posts."""
    reply = MESSAGE if vendor == "anthropic" else COMPLETION
    with answering(200, json.dumps(reply).encode()) as server:
        model_at(vendor, server.base_url, **more).complete(request)
        body: dict[str, Any] = json.loads(server.last)
    return body


def test_anthropic_is_held_to_a_schema_where_its_file_says_structured() -> None:
    asked = ChatRequest([user("Hi")], reply_schema=SCHEMA)
    body = sent("anthropic", asked, structured=True, effort="low")
    wanted = {"type": "json_schema", "schema": SCHEMA}
    assert body["output_config"] == {"effort": "low", "format": wanted}
    assert "output_config" not in sent("anthropic", asked)
    # The vendor takes closed schemas alone.
    open_one = ChatRequest([user("Hi")], reply_schema=OPEN_SCHEMA)
    assert "output_config" not in sent("anthropic", open_one, structured=True)
    assert "output_config" not in sent("anthropic", ASK, structured=True)


def test_openais_requests_say_which_conversation_they_belong_to() -> None:
    later = ChatRequest([*ASK.messages, assistant("Hello"), user("And now?")])
    other = ChatRequest([system("Be brief."), user("Bye")])
    tools = ChatRequest(ASK.messages, tools=[ToolSpec("t", "", {"type": "object", "properties": {}})])
    keys = [sent("openai", one, prompt_cache=True)["prompt_cache_key"] for one in (ASK, later, other, tools)]
    assert keys[0] == keys[1] and len(set(keys)) == 3 and all(len(key) <= 64 for key in keys)
    assert "prompt_cache_key" not in sent("openai", ASK)


OPENAI = {"_target_": "agentsys.models.providers.openai.OpenAIModel", "name": "m", "model_id": "m-1"}
ANTHROPIC = {"_target_": "agentsys.models.providers.anthropic.AnthropicModel", "name": "m", "model_id": "m-1"}
GOOGLE = {"_target_": "agentsys.models.providers.google.GoogleModel", "name": "m", "model_id": "m-1"}
THINKING: list[tuple[str, list[dict[str, Any]]]] = [
    (
        "openai",
        [
            OPENAI | more
            for more in (
                {"reasoning_effort": None},
                {"reasoning_effort": "none"},
                {"reasoning_effort": "low"},
                {"reasoning_effort": "high"},
                {"reasoning_effort": "high", "api": "responses"},
                {"reasoning_effort": "high", "api": "responses", "reasoning_summary": "auto"},
                {"reasoning_field": "reasoning_content"},
                {"strip_think": True},
                {"extra_body": {"thinking": {"type": "enabled"}}},
                {"extra_body": {"thinking": {"type": "disabled"}}},
                {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
                {"temperature": 0.0},
                {"temperature": None},
            )
        ],
    ),
    (
        "anthropic",
        [
            ANTHROPIC | more
            for more in (
                {"thinking": None},
                {"thinking": "disabled"},
                {"thinking": "adaptive"},
                {"thinking": "adaptive", "effort": "low"},
                {"thinking": "adaptive", "effort": "max"},
                {"thinking_budget": 2000},
                {"thinking_budget": 8000},
            )
        ],
    ),
    (
        "google",
        [
            GOOGLE | more
            for more in (
                {"thinking_budget": -1},
                {"thinking_budget": 0},
                {"thinking_level": "low"},
                {"thinking_level": "high"},
            )
        ],
    ),
]


def key_of(node: dict[str, Any]) -> str:
    with RequestKeys(reply_identity(node)).take_key(ASK) as (key, _):
        return key


@pytest.mark.parametrize(("vendor", "nodes"), THINKING)
def test_two_efforts_or_ways_to_think_never_share_a_reply(vendor: str, nodes: list[dict[str, Any]]) -> None:
    keys = [key_of(node) for node in nodes]
    same = [pair for pair in combinations(range(len(nodes)), 2) if keys[pair[0]] == keys[pair[1]]]
    assert not same, [(nodes[a], nodes[b]) for a, b in same]


@pytest.mark.parametrize("more", [{"prompt_cache": True}, {"price": {"prompt": 1}}])
def test_what_only_changes_the_price_shares_replies(more: dict[str, Any]) -> None:
    assert key_of(OPENAI) == key_of(OPENAI | more)
