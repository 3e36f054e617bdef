"""`Cached`: what is a hit, what is never stored, and what a broken file does."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from hypothesis import given
from hypothesis import strategies as st

from agentsys.base.json_values import to_json_bytes
from agentsys.models.budget import RunBudgetReached
from agentsys.models.chat import (
    ChatReply,
    ChatRequest,
    ErrorKind,
    ModelError,
    ToolSpec,
    Usage,
    assistant,
    user,
)
from agentsys.models.wrappers.reply_cache import (
    DAMAGED_SUFFIX,
    CachingModel,
    ReplyStore,
    RequestKeys,
    dump_reply,
    load_reply,
)

CALL = FunctionCall(function="f", args={"a": [1, {"b": None}]}, id="c1")
REPLY = ChatReply(assistant("hm", [CALL]), Usage(3, 2, 1, 1), cost_usd=0.5, model_id="m-1")
ASK = ChatRequest([user("Hi")], [ToolSpec("f", "does", {"type": "object"})])


class Numbered:
    """Says 1, 2, 3, ..."""

    name = "numbered"

    def __init__(self) -> None:
        self.asked = 0
        self._lock = threading.Lock()

    def complete(self, request: ChatRequest) -> ChatReply:
        with self._lock:
            self.asked += 1
            return replace(REPLY, message=assistant(str(self.asked)))


def said(cached: CachingModel, request: ChatRequest = ASK) -> str:
    content = cached.complete(request).message["content"]
    assert content
    return str(content[0]["content"])


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
    said(CachingModel(model, store, RequestKeys({})))
    assert said(CachingModel(model, store, RequestKeys({})), replace(ASK, **changed)) == "2"


def test_another_model_or_epoch_is_another_reply_and_another_role_is_not(tmp_path: Path) -> None:
    model, store = Numbered(), ReplyStore(tmp_path)
    assert said(CachingModel(model, store, RequestKeys({"model_id": "a"}))) == "1"
    assert said(CachingModel(model, store, RequestKeys({"model_id": "b"}))) == "2"
    assert said(CachingModel(model, store, RequestKeys({"model_id": "a"}, epoch=1))) == "3"
    worker = replace(ASK, role="worker")
    assert said(CachingModel(model, store, RequestKeys({"model_id": "a"})), worker) == "1"
    assert said(CachingModel(model, store, RequestKeys({"model_id": "a"}, role_matters=True)), worker) == "4"


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
        CachingModel(Failing(), store, RequestKeys({})).complete(ASK)
    silent = CachingModel(Silent(), store, RequestKeys({}))
    silent.complete(ASK)
    silent.complete(ASK)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert said(CachingModel(Numbered(), store, RequestKeys({}))) == "1"


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
    CachingModel(Numbered(), store, RequestKeys({})).complete(ASK)
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(KEPT + REST)
    assert CachingModel(Numbered(), store, RequestKeys({})).complete(ASK).from_cache


def test_an_integer_beyond_64_bits_comes_back_as_it_was(tmp_path: Path) -> None:
    class Rich(Numbered):
        def complete(self, request: ChatRequest) -> ChatReply:
            return ChatReply(assistant(None, [FunctionCall(function="pay", args={"amount": 10**30})]))

    store = ReplyStore(tmp_path)
    CachingModel(Rich(), store, RequestKeys({})).complete(ASK)
    again = CachingModel(Rich(), store, RequestKeys({})).complete(ASK)
    assert again.from_cache
    assert (again.message["tool_calls"] or [])[0].args == {"amount": 10**30}


@pytest.mark.parametrize(
    "junk", [b"", b"{", b"[]", b"{}", b'{"message": {}}', b"\xff\xfe", b"[" * 5000, *WRONG_INSIDE]
)
def test_a_broken_file_is_a_miss_and_is_replaced(tmp_path: Path, junk: bytes) -> None:
    store = ReplyStore(tmp_path)
    CachingModel(Numbered(), store, RequestKeys({})).complete(ASK)
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(junk)
    model = Numbered()
    assert not CachingModel(model, store, RequestKeys({})).complete(ASK).from_cache
    assert CachingModel(model, store, RequestKeys({})).complete(ASK).from_cache


def test_what_a_provider_must_remember_is_stored_with_the_reply(tmp_path: Path) -> None:
    class Remembering(Numbered):
        memory: Any = None

        def keepsake(self, reply: ChatReply) -> Any:
            return {"c1": "signature"}

        def restore(self, keepsake: Any) -> None:
            self.memory = keepsake

    store, later = ReplyStore(tmp_path), Remembering()
    CachingModel(Remembering(), store, RequestKeys({})).complete(ASK)
    CachingModel(later, store, RequestKeys({})).complete(ASK)
    assert (later.asked, later.memory) == (0, {"c1": "signature"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text(min_size=1), st.dictionaries(st.text(), JSON, max_size=3))
def test_replies_survive_the_disk(text: str, args: dict[str, Any]) -> None:
    import orjson

    reply = replace(REPLY, message=assistant(text, [FunctionCall(function="f", args=args, id=None)]))
    back = load_reply(orjson.loads(to_json_bytes(dump_reply(reply, None))))
    assert back.message == reply.message


def test_log_probabilities_are_kept_with_a_reply_that_has_some(tmp_path: Path) -> None:
    likely = replace(REPLY, logprobs=({"true": -0.1, "false": -2.5}, {"}": 0.0}))
    assert load_reply(dump_reply(likely, None)).logprobs == likely.logprobs
    assert "logprobs" not in dump_reply(REPLY, None)  # as before there were any: old files are read


class Held(Numbered):
    """Answers once somebody lets it."""

    def __init__(self, fails: int = 0) -> None:
        super().__init__()
        self.go = threading.Event()
        self.fails = fails

    def complete(self, request: ChatRequest) -> ChatReply:
        assert self.go.wait(60)
        if self.fails:
            self.fails -= 1
            self.asked += 1
            raise ModelError(ErrorKind.OVERLOADED, "come back", retry_after_s=3.0)
        return super().complete(request)


class Watched(ReplyStore):
    """Lets a model answer once so many others wait for it."""

    def __init__(self, folder: Path, model: Held, waiting: int) -> None:
        super().__init__(folder)
        self.model, self.left, self.count = model, waiting, threading.Lock()

    def claim_request(self, key: str) -> Any:
        other = super().claim_request(key)
        with self.count:
            self.left -= other is not None
            if self.left <= 0:
                self.model.go.set()
        return other


CASES = 16


def all_at_once(model: Held, store: ReplyStore) -> list[Any]:
    """What so many cases get that ask the same at the same time: a reply or an error."""

    def ask(number: int) -> Any:
        try:
            return CachingModel(model, store, RequestKeys({"temperature": 0.0}, case=number)).complete(ASK)
        except (ModelError, RunBudgetReached) as error:
            return error

    with ThreadPoolExecutor(CASES) as pool:
        return list(pool.map(ask, range(CASES)))


@pytest.mark.parametrize("disk_takes_it", [True, False])
def test_equal_requests_under_way_wait_for_the_first_and_cost_nothing(
    tmp_path: Path, disk_takes_it: bool
) -> None:
    if not disk_takes_it:
        (tmp_path / "cache").write_text("in the way")
    model = Held()
    replies = all_at_once(model, Watched(tmp_path / "cache", model, CASES - 1))
    assert model.asked == 1
    assert {str(reply.message["content"]) for reply in replies} == {str(replies[0].message["content"])}
    assert sorted(reply.cost_usd for reply in replies) == [0.0] * (CASES - 1) + [0.5]
    assert sum(reply.from_cache for reply in replies) == CASES - 1
    assert sum(reply.attempts for reply in replies if reply.from_cache) == 0
    assert len({id(reply.message) for reply in replies}) == CASES


def test_those_who_wait_share_the_firsts_error_at_no_cost_and_may_ask_again(tmp_path: Path) -> None:
    model = Held(fails=1)
    store = Watched(tmp_path, model, CASES - 1)
    errors = all_at_once(model, store)
    assert model.asked == 1
    assert {(error.kind, str(error), error.retry_after_s) for error in errors} == {
        (ErrorKind.OVERLOADED, "overloaded: come back", 3.0)
    }
    assert said(CachingModel(model, store, RequestKeys({"temperature": 0.0}))) == "2"


def test_those_who_wait_ask_for_themselves_where_the_first_broke_off(tmp_path: Path) -> None:
    class BrokenOff(Held):
        def complete(self, request: ChatRequest) -> ChatReply:
            try:
                return super().complete(request)
            except ModelError:
                raise RunBudgetReached("used up") from None

    model = BrokenOff(fails=1)
    found = all_at_once(model, Watched(tmp_path, model, CASES - 1))
    assert [type(one) for one in found].count(RunBudgetReached) == 1
    assert model.asked == 2


def test_where_replies_are_drawn_each_case_has_its_own_and_keeps_it(tmp_path: Path) -> None:
    store, model = ReplyStore(tmp_path), Numbered()
    for temperature, of_request, own in (
        (None, None, True),
        (None, 0.0, True),
        (0.7, None, True),
        (0.0, 0.7, True),
        (0.0, None, False),
        (0.7, 0.0, False),
    ):
        request = replace(ASK, temperature=of_request, max_tokens=len(str(temperature)))
        ask = [
            CachingModel(model, store, RequestKeys({"temperature": temperature}, case=case))
            for case in ("a", "b", "a", "b")
        ]
        texts = [said(one, request) for one in ask]
        assert texts[:2] == texts[2:]
        assert (texts[0] != texts[1]) is own, (temperature, of_request)


def test_equal_requests_of_one_case_at_the_same_time_are_several_draws(tmp_path: Path) -> None:
    model = Numbered()
    cached = CachingModel(model, ReplyStore(tmp_path), RequestKeys({"temperature": 0.0}))
    with ThreadPoolExecutor(4) as pool:
        texts = list(pool.map(lambda _: said(cached), range(4)))
    assert sorted(texts) == ["1", "2", "3", "4"]


def test_read_only_asks_nobody_and_writes_nothing(tmp_path: Path) -> None:
    said(CachingModel(Numbered(), ReplyStore(tmp_path), RequestKeys({})))
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    model, store = Numbered(), ReplyStore(tmp_path, read_only=True)
    assert said(CachingModel(model, store, RequestKeys({}))) == "1"
    with pytest.raises(ModelError, match=r"cache_miss: cache.mode=read_only asks no model.* none is kept"):
        CachingModel(model, store, RequestKeys({})).complete(replace(ASK, max_tokens=7))
    file.write_bytes(b"{")
    with pytest.raises(ModelError, match="the one that is kept cannot be read"):
        CachingModel(model, store, RequestKeys({})).complete(ASK)
    assert model.asked == 0
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


def test_a_damaged_reply_is_set_aside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    said(CachingModel(Numbered(), ReplyStore(tmp_path), RequestKeys({})))
    (file,) = tmp_path.rglob("*.json")
    file.write_bytes(b'{"message": 1}')
    with caplog.at_level(logging.WARNING):
        said(CachingModel(Numbered(), ReplyStore(tmp_path), RequestKeys({})))
    assert file.with_suffix(DAMAGED_SUFFIX).read_bytes() == b'{"message": 1}'
    assert "is no reply as it was stored" in caplog.text


PROCESSES, KEYS = 8, 12


def _asks(folder: Path, log: Path, start: Any) -> None:
    class Logged(Numbered):
        def complete(self, request: ChatRequest) -> ChatReply:
            with log.open("a") as file:
                file.write(f"{request.max_tokens}\n")
            time.sleep(0.005)
            return super().complete(request)

    start.wait(60)
    for bound in range(1, KEYS + 1):
        CachingModel(Logged(), ReplyStore(folder), RequestKeys({"temperature": 0.0})).complete(
            replace(ASK, max_tokens=bound)
        )


needs_fork = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes here cannot be forked"
)


@needs_fork
def test_eight_processes_ask_for_each_reply_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start, log = context.Event(), tmp_path / "log"
    askers = [context.Process(target=_asks, args=(tmp_path / "cache", log, start)) for _ in range(PROCESSES)]
    for asker in askers:
        asker.start()
    start.set()
    for asker in askers:
        asker.join(120)
    assert [asker.exitcode for asker in askers] == [0] * PROCESSES
    assert sorted(map(int, log.read_text().split())) == list(range(1, KEYS + 1))
    assert not list((tmp_path / "cache").rglob("*.lock"))


fcntl = pytest.importorskip("fcntl")
KEY = "ab" * 32


@pytest.mark.parametrize("anew", [True, False])
def test_a_lock_whose_file_was_removed_meanwhile_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """Or two would ask, and pay, for the same reply."""
    waits, locks = list[int](), fcntl.flock

    def lock(descriptor: int, how: int) -> None:
        (file,) = tmp_path.rglob("*.lock")
        if not waits:  # while we waited its holder removed it, and somebody else may have made another
            file.unlink()
            if anew:
                file.touch()
        waits.append(descriptor)
        locks(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lock)
    # Somebody else may remove his own, too, just after it was seen.
    monkeypatch.setattr(Path, "exists", lambda _: True)
    with ReplyStore(tmp_path).lock_key(KEY):
        (file,) = tmp_path.rglob("*.lock")
        with file.open("rb") as other, pytest.raises(BlockingIOError):
            locks(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert len(waits) == 2 and not list(tmp_path.rglob("*.lock"))


def lowest_free() -> int:
    """The number that the next file gets."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number


@pytest.mark.parametrize("fails", [False, True])
def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Or a run of many replies could open no more."""
    if fails:  # a file system without locks

        def lock(*_: int) -> None:
            raise OSError(37, "No locks available")

        monkeypatch.setattr(fcntl, "flock", lock)
    before = lowest_free()
    for _ in range(3):
        with ReplyStore(tmp_path).lock_key(KEY):
            pass
    assert lowest_free() == before


def test_a_reply_that_was_paid_for_is_on_the_disk_when_it_counts_as_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    ReplyStore(tmp_path).put(KEY, {"paid": True})
    assert len(flushed) == 2  # the file, and its name
