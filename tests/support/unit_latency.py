"""Counts model calls in a row: every call takes one unit of a clock that stands still otherwise.

A call asked ahead starts at the moment at which it was asked, whatever its thread does meanwhile.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ModelWrapper
from agentsys.models.wrappers.accounting import RecordingModel

NOW: ContextVar[float] = ContextVar("now", default=0.0)


class _TakesOneUnit(ModelWrapper):
    def complete(self, request: ChatRequest) -> ChatReply:
        asked_at = NOW.get()
        return replace(self.model.complete(request), latency_s=asked_at + 1)


class _WaitsForReplies(ModelWrapper):
    def complete(self, request: ChatRequest) -> ChatReply:
        reply = self.model.complete(request)
        NOW.set(max(NOW.get(), reply.latency_s))
        return reply


def with_unit_latency(model: ChatModel, *, side_by_side: bool = True) -> ChatModel:
    """A recorded model whose calls take one unit of `NOW` each."""
    return _WaitsForReplies(RecordingModel(_TakesOneUnit(model), side_by_side=side_by_side))
