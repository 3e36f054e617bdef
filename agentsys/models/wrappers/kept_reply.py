"""A reply as it is kept on disk, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from agentdojo.types import ChatAssistantMessage
from pydantic import BaseModel, ConfigDict

from agentsys.models.chat import UNCOUNTED, ChatReply, Usage
from agentsys.models.odd_reply import is_empty


def reply_to(reply: ChatReply, keepsake: Any) -> dict[str, Any]:
    """A reply as plain data."""
    kept = {"message": reply.message, "usage": asdict(reply.usage), "model_id": reply.model_id}
    more = {"logprobs": [dict(token) for token in reply.logprobs]} if reply.logprobs else {}
    return kept | more | {"notes": list(reply.notes), "keepsake": keepsake}


class _KeptReply(BaseModel):
    """A reply as `reply_to` gives it; any other shape is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    message: ChatAssistantMessage
    usage: Usage
    model_id: str
    notes: tuple[str, ...]
    keepsake: Any
    logprobs: tuple[dict[str, float], ...] = ()


def reply_from(value: Mapping[str, Any]) -> ChatReply:
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
