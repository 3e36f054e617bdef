"""`ConversationRouter`: a defended agent as a model of a server; finds each request's conversation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.serving.wire_format import Problem, RequestRefused, TracedReply, WireCaller, WireRequest
from agentsys.serve_agent.call_handover import ConversationPosition, read_position
from agentsys.serve_agent.client_conversation import ClientConversation
from agentsys.serve_agent.defended_agent import DefendedAgent, Dialogue

_ENDED = "the server is stopping"


@dataclass(frozen=True)
class ConversationLimits:
    """Bounds on what clients may leave behind."""

    at_once: int = 256
    """Conversations with a turn under way; each has a thread."""
    max_resting: int = 4096
    """Conversations at rest that can be gone on with; the oldest are forgotten first."""
    idle_s: float = 600.0
    """Seconds after which a client that does not come back is not waited for any more."""
    rounds: int | None = None
    """Rounds of calls that clients take for one request of the user; then the agent answers with what there
    is. None: as many as it asks for."""


@dataclass(frozen=True)
class CallerModel:
    """A model as one caller of the server asks it."""

    name: str
    complete: Callable[[ChatRequest], ChatReply]


class ConversationRouter:
    """Begins conversations, finds those that requests belong to, and forgets those whose clients stay away.

    Args:
        agent: The agent behind it.
        name: The model's name for clients.
        keep: Stores a conversation after each turn.
        limits: How many conversations there may be, and for how long.
    """

    def __init__(
        self,
        agent: DefendedAgent,
        name: str,
        keep: Callable[[Dialogue], None],
        limits: ConversationLimits | None = None,
    ) -> None:
        self.agent, self.name, self.keep = agent, name, keep
        self.limits = limits or ConversationLimits()
        self._lock = threading.Lock()
        self._known: dict[str, ClientConversation] = {}
        """By trace, those whose client came last at the end."""
        self._room = threading.BoundedSemaphore(self.limits.at_once)
        self._closed = False

    def for_caller(self, caller: WireCaller) -> ChatModel:
        """The agent as one caller sees it: with that caller's conversations alone."""
        return CallerModel(self.name, partial(self.answer, caller.owner))

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer a request of nobody in particular, as `answer` does."""
        return self.answer("", request)

    def answer(self, owner: str, request: ChatRequest) -> TracedReply:
        """Answer a request from the state of the conversation that it belongs to.

        Raises:
            Refused: If it belongs to none, does not fit where that stands, or there are too many.
            ModelError: If a model gave no reply.
        """
        _check_supported(request)
        place = read_position(request)
        with self._lock:
            self._forget_idle()
            find = self._begin_conversation if place.is_new else self._find_conversation
            conversation = find(owner, place)
            self._known[conversation.trace_id] = self._known.pop(conversation.trace_id, conversation)
        try:
            return conversation.take_request(place, request)
        finally:
            if not conversation.has_begun:  # Refused before its first turn: nothing is to be kept of it.
                with self._lock:
                    self._known.pop(conversation.trace_id, None)

    @property
    def running_count(self) -> int:
        """Conversations with a turn under way, waiting for a client's tools included."""
        with self._lock:
            return sum(one.is_running for one in self._known.values())

    @property
    def resting_count(self) -> int:
        """Conversations that can be gone on with."""
        with self._lock:
            return len(self._known)

    def stop(self) -> None:
        """End every conversation and wait until their threads are gone."""
        with self._lock:
            self._closed = True
            known = list(self._known.values())
        for conversation in known:
            conversation.end(_ENDED)
        for conversation in known:
            conversation.join()

    def _begin_conversation(self, owner: str, place: ConversationPosition) -> ClientConversation:
        if self._closed:
            raise RequestRefused(Problem(503, _ENDED))
        if not place.user_text:
            raise RequestRefused(Problem(400, "a conversation begins with words of the user"))
        limits = self.limits
        return ClientConversation(self.agent, owner, self.keep, limits.idle_s, self._room, limits.rounds)

    def _find_conversation(self, owner: str, place: ConversationPosition) -> ClientConversation:
        """The conversation that a transcript comes from; another key's is as unknown as none."""
        if self._closed:
            raise RequestRefused(Problem(503, _ENDED))
        owned = [each for each in reversed(self._known.values()) if each.owner == owner]
        if place.previous_reply_id:
            meant = [each for each in owned if place.previous_reply_id in each.reply_ids]
        elif place.latest_id is not None:
            meant = [each for each in owned if place.latest_id in each.call_ids]
        else:
            meant = [each for each in owned if each.state.history_mark == place.history_mark]
            meant += [each for each in owned if each.state.request_mark == place.request_mark]
        if meant:
            return meant[0]
        why = (
            "the words of an assistant in this request are not this server's, or their conversation is over; "
            "begin a new one without them"
        )
        raise RequestRefused(Problem(410, why, code="unknown_conversation"))

    def _forget_idle(self) -> None:
        now = time.monotonic()
        at_rest = [one for one in self._known.values() if not one.is_running]
        surplus = len(at_rest) - self.limits.max_resting
        for number, one in enumerate(at_rest):
            if number < surplus or now - one.last_heard_s > self.limits.idle_s:
                del self._known[one.trace_id]


def _check_supported(request: ChatRequest) -> None:
    """Refuse what the agent would not do, rather than do something else."""
    if not isinstance(request, WireRequest):
        return
    if request.forced:
        why = f"tool_choice {request.forced!r}: the agent decides itself which tools it calls; send auto"
        raise RequestRefused(Problem(400, why, code="unsupported_tool_choice"))
    if request.nameless_results:
        why = "results of tools have the ids of their calls here: words of the user are believed"
        raise RequestRefused(Problem(400, why, code="nameless_result"))
