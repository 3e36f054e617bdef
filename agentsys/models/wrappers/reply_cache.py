"""`CachingModel`: a repeated call to a model is free; `ReplyStore` keeps one small file for each reply."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import json
import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agentdojo.types import ChatAssistantMessage
from pydantic import BaseModel, ConfigDict

from agentsys.base.atomic_file import CAN_LOCK, PRIVATE, lock_file, make_folder, write_atomically
from agentsys.base.json_values import to_json_bytes
from agentsys.models.chat import (
    UNCOUNTED,
    ChatModel,
    ChatReply,
    ChatRequest,
    ErrorKind,
    ModelError,
    ModelWrapper,
    Usage,
)
from agentsys.models.endings import Ending
from agentsys.models.reply_checks import is_empty_reply, lacks_answer

_LOG = logging.getLogger(__name__)

DAMAGED_SUFFIX = ".damaged"
"""Suffix of a file that was set aside."""


class CacheMode(StrEnum):
    """Use of kept replies."""

    OFF = "off"
    """For nothing: every request is sent, and no reply is kept."""
    READ_WRITE = "read_write"
    """A request that was answered before is not sent, and the replies of others are kept."""
    READ_ONLY = "read_only"
    """Nothing is ever sent: a request that was not answered before is an error."""


class ReplyStore:
    """Replies on disk: `<folder>/<2 hex>/<62 hex>.json`, written whole or not at all, and not if `read_only`.

    Many threads and processes may use one folder; killing any of them leaves it as it was.
    """

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self._lock = threading.Lock()
        self._pending: dict[str, Future[ChatReply | None]] = {}

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Look up a key; None if nothing is stored under it, or nothing that can be read."""
        try:
            # Not orjson, which makes floats of integers beyond 64 bits.
            value = json.loads(self._make_entry_path(key).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a value.

        Raises:
            OSError: If the disk does not take it; then nothing was stored.
        """
        write_atomically(self._make_entry_path(key), to_json_bytes(value), mode=PRIVATE)

    def has(self, key: str) -> bool:
        """Say whether there is a file under a key, readable or not."""
        return self._make_entry_path(key).exists()

    def move_damaged(self, key: str) -> None:
        """Keep a file that is no reply under another name. Only for whoever holds the key (`lock_key`)."""
        path = self._make_entry_path(key)
        with contextlib.suppress(OSError):
            path.replace(path.with_suffix(DAMAGED_SUFFIX))
            _LOG.warning("%s is no reply as it was stored; it was kept as *%s", path, DAMAGED_SUFFIX)

    def claim_request(self, key: str) -> Future[ChatReply | None] | None:
        """Say who asks: None means the caller, who then calls `finish_request`; else what will come of it."""
        with self._lock:
            other = self._pending.get(key)
            if other is None:
                self._pending[key] = Future()
            return other

    def finish_request(self, key: str, reply: ChatReply | None, error: ModelError | None = None) -> None:
        """Tell those who wait for a key what came of it: a reply, an error, or nothing that concerns them."""
        with self._lock:
            future = self._pending.pop(key)
        if error is None:
            future.set_result(reply)
        else:
            future.set_exception(error)

    @contextlib.contextmanager
    def lock_key(self, key: str) -> Iterator[None]:
        """Hold a key against other processes; what a killed one held is free."""
        path = self._make_entry_path(key).with_name(f".{key[2:]}.lock")
        with contextlib.ExitStack() as stack:
            # Where there can be no file two processes may both ask.
            with contextlib.suppress(OSError):
                while CAN_LOCK:
                    make_folder(path.parent)
                    file = stack.enter_context(lock_file(path))
                    if _is_same_file(file, path):
                        stack.callback(path.unlink, missing_ok=True)
                        break
                    stack.close()
            yield

    def _make_entry_path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"


def _is_same_file(descriptor: int, path: Path) -> bool:
    """True if an open file still has its name: who held its lock before has removed it."""
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False


_KEY_FORMAT = 1
"""Part of every key; raised when the key or the file changes its meaning."""


@runtime_checkable
class Keepsakes(Protocol):
    """A provider that must remember something of its own about a reply (Gemini's thought signatures)."""

    def keepsake(self, reply: ChatReply) -> Any:
        """Return the data to store with a reply, JSON-ready; None for nothing."""

    def restore(self, keepsake: Any) -> None:
        """The reply it belongs to was read from the cache.

        Raises:
            ValueError: If it is not what `keepsake` gives.
        """


class RequestKeys:
    """Names the requests of one case: equal ones count up. Made anew for each case.

    Args:
        identity: Everything about the model and its settings that its replies depend on.
        epoch: The case's repetition: epochs do not share replies.
        case: What else tells one draw from another, JSON-ready: the case.
        temperature: What the provider samples at where `identity` does not say; None: nobody knows.
        role_matters: Whether the asking role is part of the key (it is not sent to ordinary providers).
    """

    def __init__(
        self,
        identity: Mapping[str, Any],
        epoch: int = 0,
        *,
        case: object = None,
        temperature: float | None = None,
        role_matters: bool = False,
    ) -> None:
        self._identity_digest = digest_json([_KEY_FORMAT, identity, epoch])
        self._temperature = identity.get("temperature", temperature)
        self._case = case
        self._role_matters = role_matters
        self._lock = threading.Lock()
        self._used_places: defaultdict[str, set[int]] = defaultdict(set)

    @contextmanager
    def take_key(self, request: ChatRequest) -> Iterator[tuple[str, Callable[[], None]]]:
        """Hold a key and the way to keep it: a request that comes to nothing gives its place back."""
        same, confirmed = self._digest_request(request), list[bool]()
        with self._lock:
            repetition = next(n for n in itertools.count() if n not in self._used_places[same])
            self._used_places[same].add(repetition)
        try:
            yield digest_json([same, repetition]), lambda: confirmed.append(True)
        finally:
            if not confirmed:
                with self._lock:
                    self._used_places[same].discard(repetition)

    def _digest_request(self, request: ChatRequest) -> str:
        role = request.role if self._role_matters else None
        settings = [request.temperature, request.max_tokens, request.reply_schema, request.tool_choice, role]
        if request.logprobs:
            settings.append(request.logprobs)
        messages = [_simplify_message(message) for message in request.messages]
        draw = [self._case] if self._is_drawn(request) else []
        tools = digest_json([[tool.name, tool.description, tool.parameters] for tool in request.tools])
        return digest_json([self._identity_digest, messages, tools, settings, *draw])

    def _is_drawn(self, request: ChatRequest) -> bool:
        """True if the same request may be answered in several ways."""
        if self._temperature is None:  # then none is ever sent
            return True
        return bool(self._temperature if request.temperature is None else request.temperature)


class CachingModel(ModelWrapper):
    """A model whose replies are kept. Made anew for each case, as it counts repeated requests.

    The n-th time a case makes the same request it gets the n-th stored reply: a defense that samples
    three votes gets three samples, and the same three when the case is run again. Equal requests of several
    cases share one reply, and while it is under way the others wait for it, so that neither the replies nor
    what they cost depend on how many cases run side by side. Where replies are drawn at random, each case has
    its own. Errors, empty replies and lost calls are never stored. A hit costs nothing and takes no
    request. `keeper` is the object whose `Keepsakes` go along with replies; None: the model.
    """

    def __init__(
        self, model: ChatModel, store: ReplyStore, keys: RequestKeys, *, keeper: object = None
    ) -> None:
        super().__init__(model)
        self._keeper = model if keeper is None else keeper
        self._store = store
        self._keys = keys

    def complete(self, request: ChatRequest) -> ChatReply:
        """The stored reply, or the wrapped model's, which is then stored.

        Raises:
            ModelError: If the wrapped model raises it, for this request or an equal one that was under way;
                `CACHE_MISS` if no reply is stored and none may be asked for.
        """
        with self._keys.take_key(request) as (key, keep):
            reply = self._find_reply(key, request)
            if not lacks_answer(reply):
                keep()
            return reply

    def _find_reply(self, key: str, request: ChatRequest) -> ChatReply:
        while True:
            stored = self._read_stored(key)
            if stored is not None:
                return stored
            if self._store.read_only:
                raise self._make_miss_error(key)
            other = self._store.claim_request(key)
            if other is None:
                return self._ask_for_all(key, request)
            reply = _take_shared_reply(other)
            if reply is None:
                continue
            if lacks_answer(reply):
                return replace(copy.deepcopy(reply), usage=Usage(), cost_usd=0.0, from_cache=True)
            if not self._store.has(key):  # the disk did not take it
                return replace(copy.deepcopy(reply), cost_usd=0.0, attempts=0, from_cache=True)

    def _ask_for_all(self, key: str, request: ChatRequest) -> ChatReply:
        """Ask the model once for all requests that wait for the key."""
        reply, error = None, None
        try:
            with self._store.lock_key(key):
                reply = self._read_stored(key, alone=True) or self.model.complete(request)
                if not reply.from_cache and not lacks_answer(reply):
                    self._store_reply(key, reply)
            return reply
        except ModelError as raised:
            error = raised
            raise
        finally:
            self._store.finish_request(key, reply, error)

    def _make_miss_error(self, key: str) -> ModelError:
        what = "the one that is kept cannot be read" if self._store.has(key) else "none is kept"
        return ModelError(
            ErrorKind.CACHE_MISS,
            f"cache.mode=read_only asks no model, and of the reply to this request {what} "
            f"(key {key[:12]}, in {self._store.folder})",
        )

    def _read_stored(self, key: str, *, alone: bool = False) -> ChatReply | None:
        value = self._store.get(key)
        try:
            if value is not None:
                reply = load_reply(value)
                if value["keepsake"] and isinstance(self._keeper, Keepsakes):
                    self._keeper.restore(value["keepsake"])
                return reply
        except (TypeError, ValueError, RecursionError):
            pass
        if alone and self._store.has(key):
            self._store.move_damaged(key)
        return None

    def _store_reply(self, key: str, reply: ChatReply) -> None:
        keepsake = self._keeper.keepsake(reply) if isinstance(self._keeper, Keepsakes) else None
        try:
            self._store.put(key, dump_reply(reply, keepsake))
        except OSError as error:
            # The reply itself is fine: a full disk must not lose what was just paid for.
            _LOG.warning("A model's reply could not be cached in %s: %s", self._store.folder, error)


def _simplify_message(message: Any) -> dict[str, Any]:
    """Return a message as it enters the key; a tool's result has the function's name (`of`) in place of its call."""
    # The call is left out, as it stands whole in an earlier message; the result's `tool_call_id` points at it.
    return {name: value for name, value in message.items() if name != "tool_call"} | (
        {"of": message["tool_call"].function} if "tool_call" in message else {}
    )


def digest_json(value: object) -> str:
    """SHA-256 of a value's JSON."""
    return hashlib.sha256(to_json_bytes(value)).hexdigest()


def _take_shared_reply(other: Future[ChatReply | None]) -> ChatReply | None:
    """Reply to an equal request; its error is raised as this request's own, which cost nothing."""
    try:
        return other.result()
    except ModelError as error:
        message = str(error).removeprefix(f"{error.kind.value}: ")
        raise ModelError(error.kind, message, error.retry_after_s) from None


def dump_reply(reply: ChatReply, keepsake: Any) -> dict[str, Any]:
    """A reply as plain data."""
    stored = {"message": reply.message, "usage": asdict(reply.usage), "model_id": reply.model_id}
    more: dict[str, Any] = {"ending": reply.ending, "reason": reply.reason} if reply.ending else {}
    servers = {"provider": reply.provider, "system_fingerprint": reply.system_fingerprint}
    more |= {name: value for name, value in servers.items() if value}
    if reply.odd:
        more["odd"] = dict(reply.odd)
    if reply.logprobs:
        more["logprobs"] = [dict(token) for token in reply.logprobs]
    return stored | more | {"notes": list(reply.notes), "keepsake": keepsake}


class _StoredReply(BaseModel):
    """A reply as `dump_reply` writes it; any other shape is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: ChatAssistantMessage
    usage: Usage
    model_id: str
    notes: tuple[str, ...]
    keepsake: Any
    logprobs: tuple[dict[str, float], ...] = ()
    ending: Ending | None = None
    reason: str = ""
    provider: str = ""
    system_fingerprint: str = ""
    odd: dict[str, int] = {}
    cut: bool = False
    """What was stored in place of the ending before there were any."""


def load_reply(value: Mapping[str, Any]) -> ChatReply:
    """The reply that is stored.

    Raises:
        ValueError: If it is none.
    """
    stored = _StoredReply.model_validate(value)
    # No reply takes no token: one was stored before a missing count was told from none.
    usage = UNCOUNTED if stored.usage == Usage() else stored.usage
    reply = ChatReply(stored.message, usage, cost_usd=0.0, model_id=stored.model_id, logprobs=stored.logprobs)
    if is_empty_reply(reply):
        raise ValueError("an empty reply is never stored")
    ending = stored.ending or (Ending.CUT if stored.cut else None)
    whole = replace(reply, ending=ending, reason=stored.reason, odd=stored.odd)
    whole = replace(whole, provider=stored.provider, system_fingerprint=stored.system_fingerprint)
    return replace(whole, attempts=0, from_cache=True, notes=stored.notes)
