"""`Cached`: a repeated call to a model is free. One small file per reply."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from agentdojo.types import ChatAssistantMessage
from pydantic import BaseModel, ConfigDict

from agentsys.atomic_file import write_atomically
from agentsys.models.chat import UNCOUNTED, ChatModel, ChatReply, ChatRequest, ToolSpec, Usage
from agentsys.models.odd_reply import is_empty
from agentsys.models.providers.wire_text import encode
from agentsys.models.providers.wire_tools import ToolLists

_LOG = logging.getLogger(__name__)

_FORMAT = 1
"""Part of every key; raised when the key or the file changes its meaning."""


@runtime_checkable
class Keepsakes(Protocol):
    """A provider that must remember something of its own about a reply (Gemini's thought signatures)."""

    def keepsake(self, reply: ChatReply) -> Any:
        """What to store with a reply, JSON-ready; None for nothing."""
        ...

    def restore(self, keepsake: Any) -> None:
        """The reply it belongs to was read from the cache.

        Raises:
            ValueError: If it is not what `keepsake` gives.
        """
        ...


class ReplyStore:
    """Replies on disk: `<folder>/<2 hex>/<62 hex>.json`, written whole or not at all.

    Args:
        folder: The replies' folder; made when the first one is stored.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str) -> Mapping[str, Any] | None:
        """Look up a key; None if nothing is stored under it, or nothing that can be read."""
        try:
            # Not orjson, which makes floats of integers beyond 64 bits.
            value = json.loads(self._path(key).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def put(self, key: str, value: Mapping[str, Any]) -> None:
        """Store a value.

        Raises:
            OSError: If the disk does not take it; then nothing was stored.
        """
        write_atomically(self._path(key), encode(value), durable=False)

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"


class RequestKeys:
    """Names the requests of one case: equal ones that were served count up. Made anew for each case.

    Args:
        identity: Everything about the model and its settings that its replies depend on.
        epoch: The case's repetition: epochs do not share replies.
        role_matters: Whether the asking role is part of the key (it is not sent to ordinary providers).
    """

    def __init__(self, identity: Mapping[str, Any], epoch: int = 0, *, role_matters: bool = False) -> None:
        self._settled = digest([_FORMAT, identity, epoch])
        self._role_matters = role_matters
        self._lock = threading.Lock()
        self._served: Counter[str] = Counter()

    def next(self, request: ChatRequest) -> tuple[str, str]:
        """(key of a request, what `served` wants to hear of it)."""
        role = request.role if self._role_matters else None
        settings = [request.temperature, request.max_tokens, request.reply_schema, request.tool_choice, role]
        if request.logprobs:
            settings.append(request.logprobs)
        messages = [_plain_message(message) for message in request.messages]
        same = digest([self._settled, messages, _TOOLS.get(request.tools), settings])
        return digest([same, self._served[same]]), same

    def served(self, same: str) -> None:
        """Count a request that got its reply."""
        with self._lock:
            self._served[same] += 1


class Cached:
    """A model whose replies are kept. Made anew for each case, as it counts repeated requests.

    The n-th time a case makes the same request it gets the n-th stored reply: a defense that samples
    three votes gets three samples, and the same three when the case is run again. Errors and empty
    replies are never stored. A hit costs nothing and takes no request.

    Args:
        model: The model to ask.
        store: The store of replies.
        keys: The keys of this case's requests.
        keeper: The object whose `Keepsakes` go along with replies; None: the model.
    """

    def __init__(
        self, model: ChatModel, store: ReplyStore, keys: RequestKeys, *, keeper: object = None
    ) -> None:
        self.model = model
        self._keeper = model if keeper is None else keeper
        self._store = store
        self._keys = keys

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """The stored reply, or the wrapped model's, which is then stored.

        Raises:
            ModelError: If the wrapped model raises it.
        """
        key, same = self._keys.next(request)
        stored = self._read(key)
        reply = stored or self.model.complete(request)
        if is_empty(reply):
            return reply
        self._keys.served(same)
        if stored is None:
            self._write(key, reply)
        return reply

    def _read(self, key: str) -> ChatReply | None:
        value = self._store.get(key)
        if value is None:
            return None
        try:
            reply = _reply_from(value)
            if value["keepsake"] and isinstance(self._keeper, Keepsakes):
                self._keeper.restore(value["keepsake"])
        except (TypeError, ValueError, RecursionError):
            return None
        return reply

    def _write(self, key: str, reply: ChatReply) -> None:
        keepsake = self._keeper.keepsake(reply) if isinstance(self._keeper, Keepsakes) else None
        try:
            self._store.put(key, _reply_to(reply, keepsake))
        except OSError as error:
            # The reply itself is fine: a full disk must not lose what was just paid for.
            _LOG.warning("A model's reply could not be cached in %s: %s", self._store.folder, error)


def _plain_message(message: Any) -> dict[str, Any]:
    # Which tool call a result answers is told by its id; the call itself stands in the earlier message.
    return {name: value for name, value in message.items() if name != "tool_call"} | (
        {"of": message["tool_call"].function} if "tool_call" in message else {}
    )


def digest(value: object) -> str:
    """Hash of a value, as JSON."""
    return hashlib.sha256(encode(value)).hexdigest()


def _tools_digest(tools: Sequence[ToolSpec]) -> str:
    return digest([[tool.name, tool.description, tool.parameters] for tool in tools])


_TOOLS = ToolLists(_tools_digest)


def _reply_to(reply: ChatReply, keepsake: Any) -> dict[str, Any]:
    kept = {"message": reply.message, "usage": asdict(reply.usage), "model_id": reply.model_id}
    more = {"logprobs": [dict(token) for token in reply.logprobs]} if reply.logprobs else {}
    return kept | more | {"notes": list(reply.notes), "keepsake": keepsake}


class _KeptReply(BaseModel):
    """A reply as `_reply_to` stores it; a file of any other shape is a miss."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: ChatAssistantMessage
    usage: Usage
    model_id: str
    notes: tuple[str, ...]
    keepsake: Any
    logprobs: tuple[dict[str, float], ...] = ()


def _reply_from(value: object) -> ChatReply:
    """The reply that is stored.

    Raises:
        ValueError: If it is none.
    """
    kept = _KeptReply.model_validate(value)
    # No reply takes no token: one was stored before a missing count was told from none.
    usage = UNCOUNTED if kept.usage == Usage() else kept.usage
    reply = ChatReply(kept.message, usage, cost_usd=0.0, model_id=kept.model_id, logprobs=kept.logprobs)
    if is_empty(reply):
        raise ValueError("an empty reply is never stored")
    return replace(reply, attempts=0, from_cache=True, notes=kept.notes)
