"""`FrontDesk`: a defended agent as a model that a server offers; finds each request's conversation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from agentsys.front.agent import DefendedAgent, Dialogue
from agentsys.front.conversation import ClientConversation
from agentsys.front.place import RequestPlace, place_of
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.serving.callers import Refused, TracedReply, WireCaller
from agentsys.models.serving.wire import Problem, WireRequest

_ENDED = "the server is stopping"


@dataclass(frozen=True)
class DeskLimits:
    """Bounds on what clients may leave behind."""

    at_once: int = 256
    """Conversations with a turn under way; each has a thread."""
    kept: int = 4096
    """Conversations at rest that can be gone on with; the oldest are forgotten first."""
    idle_s: float = 600.0
    """Seconds after which a client that does not come back is not waited for any more."""
    rounds: int | None = None
    """Rounds of calls that clients take for one request of the user; then the agent answers with what there
    is. None: as many as it asks for."""


class FrontDesk:
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
        limits: DeskLimits | None = None,
    ) -> None:
        self.agent, self.name, self.keep = agent, name, keep
        self.limits = limits or DeskLimits()
        self._lock = threading.Lock()
        self._known: dict[str, ClientConversation] = {}
        """By trace, those whose client came last at the end."""
        self._room = threading.BoundedSemaphore(self.limits.at_once)
        self._closed = False

    def for_caller(self, caller: WireCaller) -> ChatModel:
        """The agent as one caller sees it: with that caller's conversations alone."""
        return _ForCaller(self, caller.owner)

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer a request of nobody in particular.

        Raises:
            Refused, ModelError: As `answer`.
        """
        return self.answer("", request)

    def answer(self, owner: str, request: ChatRequest) -> TracedReply:
        """Answer a request from the state of the conversation that it belongs to.

        Raises:
            Refused: If it belongs to none, does not fit where that stands, or there are too many.
            ModelError: If a model gave no reply.
        """
        _check_wishes(request)
        place = place_of(request)
        with self._lock:
            self._forget()
            conversation = self._new(owner, place) if place.begins else self._found(owner, place)
            self._known[conversation.trace] = self._known.pop(conversation.trace, conversation)
        try:
            return conversation.take(place, request)
        finally:
            if not conversation.begun:  # Refused at the door: nothing is to be kept of it.
                with self._lock:
                    self._known.pop(conversation.trace, None)

    @property
    def running(self) -> int:
        """Conversations with a turn under way, waiting for a client's tools included."""
        with self._lock:
            return sum(one.running for one in self._known.values())

    @property
    def known(self) -> int:
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

    def _new(self, owner: str, place: RequestPlace) -> ClientConversation:
        if self._closed:
            raise Refused(Problem(503, _ENDED))
        if not place.said:
            raise Refused(Problem(400, "a conversation begins with words of the user"))
        limits = self.limits
        return ClientConversation(self.agent, owner, self.keep, limits.idle_s, self._room, limits.rounds)

    def _found(self, owner: str, place: RequestPlace) -> ClientConversation:
        """The conversation that a transcript comes from; another key's is as unknown as none."""
        if self._closed:
            raise Refused(Problem(503, _ENDED))
        own = [one for one in reversed(self._known.values()) if one.owner == owner]
        if place.after:
            meant = [one for one in own if place.after in one.reply_ids]
        elif place.latest_id is not None:
            meant = [one for one in own if place.latest_id in one.ids]
        else:
            meant = [one for one in own if one.position.rest == place.rest]
            meant += [one for one in own if one.position.came_by == place.mark]
        if meant:
            return meant[0]
        told = (
            "the words of an assistant in this request are not this server's, or their conversation is over; "
            "begin a new one without them"
        )
        raise Refused(Problem(410, told, code="unknown_conversation"))

    def _forget(self) -> None:
        now = time.monotonic()
        at_rest = [one for one in self._known.values() if not one.running]
        surplus = len(at_rest) - self.limits.kept
        for number, one in enumerate(at_rest):
            if number < surplus or now - one.touched > self.limits.idle_s:
                del self._known[one.trace]


def _check_wishes(request: ChatRequest) -> None:
    """Refuse what the agent behind the desk would not do, rather than do something else.

    Raises:
        Refused: With the reason.
    """
    if not isinstance(request, WireRequest):
        return
    if request.forced:
        told = f"tool_choice {request.forced!r}: the agent decides itself which tools it calls; send auto"
        raise Refused(Problem(400, told, code="unsupported_tool_choice"))
    if request.nameless_results:
        told = "results of tools have the ids of their calls here: words of the user are believed"
        raise Refused(Problem(400, told, code="nameless_result"))


@dataclass(frozen=True)
class _ForCaller:
    """The desk as one caller sees it."""

    desk: FrontDesk
    owner: str

    @property
    def name(self) -> str:
        return self.desk.name

    def complete(self, request: ChatRequest) -> ChatReply:
        return self.desk.answer(self.owner, request)
