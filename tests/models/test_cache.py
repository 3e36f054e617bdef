"""`Cached`: what is a hit, what is never stored, and what a broken file does."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from hypothesis import given
from hypothesis import strategies as st

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, Usage, assistant, user
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.wrappers.cache import Cached, ReplyStore, RequestKeys, _reply_from, _reply_to

CALL = FunctionCall(function="f", args={"a": [1, {"b": None}]}, id="c1")
REPLY = ChatReply(assistant("hm", [CALL]), Usage(3, 2, 1, 1), cost_usd=0.5, model_id="m-1")
ASK = ChatRequest([user("Hi")], [ToolSpec("f", "does", {"type": "object"})])


class Numbered:
    """Says 1, 2, 3, ..."""

    name = "numbered"

    def __init__(self) -> None:
        self.asked = 0

    def complete(self, request: ChatRequest) -> ChatReply:
        self.asked += 1
        return replace(REPLY, message=assistant(str(self.asked)))


def said(cached: Cached, request: ChatRequest = ASK) -> str:
    content = cached.complete(request).message["content"]
    assert content
    return str(content[0]["content"])


def test_second_run_of_a_case_asks_nothing_and_pays_nothing(tmp_path: Path) -> None:
    model, store = Numbered(), ReplyStore(tmp_path)
    first = Cached(model, store, RequestKeys({"model_id": "x"})).complete(ASK)
    second = Cached(model, store, RequestKeys({"model_id": "x"})).complete(ASK)
    assert model.asked == 1
    assert (first.from_cache, first.cost_usd) == (False, 0.5)
    assert (second.from_cache, second.cost_usd, second.attempts) == (True, 0.0, 0)
    assert (second.message, second.usage, second.model_id) == (first.message, first.usage, first.model_id)


def test_the_nth_repetition_within_a_case_has_the_nth_reply(tmp_path: Path) -> None:
    model, store = Numbered(), ReplyStore(tmp_path)
    once = Cached(model, store, RequestKeys({}))
    assert [said(once), said(once), said(once)] == ["1", "2", "3"]
    again = Cached(model, store, RequestKeys({}))
    assert [said(again), said(again), said(again), said(again)] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    "changed",
    [
        {"messages": [user("Ho")]},
        {"tools": []},
        {"tools": [ToolSpec("f", "does more", {"type": "object"})]},
        {"tools": [ToolSpec("f", "does", {"type": "object", "properties": {}})]},
        {"temperature": 0.5},
        {"max_tokens": 5},
        {"reply_schema": {"type": "object"}},
        {"tool_choice": "none"},
        {"logprobs": 5},
    ],
)
def test_another_request_is_another_reply(tmp_path: Path, changed: dict[str, Any]) -> None:
    model, store = Numbered(), ReplyStore(tmp_path)
    said(Cached(model, store, RequestKeys({})))
    assert said(Cached(model, store, RequestKeys({})), replace(ASK, **changed)) == "2"


def test_another_model_or_epoch_is_another_reply_and_another_role_is_not(tmp_path: Path) -> None:
    model, store = Numbered(), ReplyStore(tmp_path)
    assert said(Cached(model, store, RequestKeys({"model_id": "a"}))) == "1"
    assert said(Cached(model, store, RequestKeys({"model_id": "b"}))) == "2"
    assert said(Cached(model, store, RequestKeys({"model_id": "a"}, epoch=1))) == "3"
    worker = replace(ASK, role="worker")
    assert said(Cached(model, store, RequestKeys({"model_id": "a"})), worker) == "1"
    assert said(Cached(model, store, RequestKeys({"model_id": "a"}, role_matters=True)), worker) == "4"


def test_errors_and_empty_replies_are_not_stored(tmp_path: Path) -> None:
    class Failing:
        name = "failing"

        def complete(self, request: ChatRequest) -> ChatReply:
            raise ModelError(ErrorKind.TIMEOUT, "x")

    class Silent(Failing):
        def complete(self, request: ChatRequest) -> ChatReply:
            return ChatReply(assistant(None))

    store = ReplyStore(tmp_path)
    with pytest.raises(ModelError):
        Cached(Failing(), store, RequestKeys({})).complete(ASK)
    silent = Cached(Silent(), store, RequestKeys({}))
    silent.complete(ASK)
    silent.complete(ASK)
    assert list(tmp_path.rglob("*")) == []
    assert said(Cached(Numbered(), store, RequestKeys({}))) == "1"


KEPT = b'{"message":{"role":"assistant","content":[{"type":"text","content":"1"}],"tool_calls":null},'
REST = b'"usage":{"prompt":0},"model_id":"","notes":[],"keepsake":null}'
WRONG_INSIDE = [
    (KEPT + REST).replace(before, after)
    for before, after in (
        (b'"content":"1"', b'"content":{}'),
        (b'"type":"text"', b'"type":5'),
        (b'"tool_calls":null', b'"tool_calls":true'),
        (b'"tool_calls":null', b'"tool_calls":[{"function":"f","args":[]}]'),
        (b'"notes":[]', b'"notes":[5]'),
        (b'"usage":{"prompt":0}', b'"usage":{"prompt":"x"}'),
        (b'"model_id":""', b'"model_id":null'),
        (b'"keepsake":null', b'"more":1,"keepsake":null'),
    )
]


def test_the_kept_form_that_the_wrong_ones_are_made_from_is_a_hit(tmp_path: Path) -> None:
    store = ReplyStore(tmp_path)
    Cached(Numbered(), store, RequestKeys({})).complete(ASK)
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(KEPT + REST)
    assert Cached(Numbered(), store, RequestKeys({})).complete(ASK).from_cache


def test_an_integer_beyond_64_bits_comes_back_as_it_was(tmp_path: Path) -> None:
    class Rich(Numbered):
        def complete(self, request: ChatRequest) -> ChatReply:
            return ChatReply(assistant(None, [FunctionCall(function="pay", args={"amount": 10**30})]))

    store = ReplyStore(tmp_path)
    Cached(Rich(), store, RequestKeys({})).complete(ASK)
    again = Cached(Rich(), store, RequestKeys({})).complete(ASK)
    assert again.from_cache
    assert (again.message["tool_calls"] or [])[0].args == {"amount": 10**30}


@pytest.mark.parametrize(
    "junk", [b"", b"{", b"[]", b"{}", b'{"message": {}}', b"\xff\xfe", b"[" * 5000, *WRONG_INSIDE]
)
def test_a_broken_file_is_a_miss_and_is_replaced(tmp_path: Path, junk: bytes) -> None:
    store = ReplyStore(tmp_path)
    Cached(Numbered(), store, RequestKeys({})).complete(ASK)
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(junk)
    model = Numbered()
    assert not Cached(model, store, RequestKeys({})).complete(ASK).from_cache
    assert Cached(model, store, RequestKeys({})).complete(ASK).from_cache


def test_a_disk_that_takes_nothing_costs_no_reply(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        assert said(Cached(Numbered(), ReplyStore(blocked / "cache"), RequestKeys({}))) == "1"
    assert "could not be cached" in caplog.text


def test_what_a_provider_must_remember_is_stored_with_the_reply(tmp_path: Path) -> None:
    class Remembering(Numbered):
        memory: Any = None

        def keepsake(self, reply: ChatReply) -> Any:
            return {"c1": "signature"}

        def restore(self, keepsake: Any) -> None:
            self.memory = keepsake

    store, later = ReplyStore(tmp_path), Remembering()
    Cached(Remembering(), store, RequestKeys({})).complete(ASK)
    Cached(later, store, RequestKeys({})).complete(ASK)
    assert (later.asked, later.memory) == (0, {"c1": "signature"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(min_size=1), st.dictionaries(st.text(), JSON, max_size=3))
def test_replies_survive_the_disk(text: str, args: dict[str, Any]) -> None:
    import orjson

    from agentsys.models.providers.wire_text import encode

    reply = replace(REPLY, message=assistant(text, [FunctionCall(function="f", args=args, id=None)]))
    back = _reply_from(orjson.loads(encode(_reply_to(reply, None))))
    assert back.message == reply.message


def test_log_probabilities_are_kept_with_a_reply_that_has_some(tmp_path: Path) -> None:
    likely = replace(REPLY, logprobs=({"true": -0.1, "false": -2.5}, {"}": 0.0}))
    assert _reply_from(_reply_to(likely, None)).logprobs == likely.logprobs
    assert "logprobs" not in _reply_to(REPLY, None)  # as before there were any: old files are read
