"""Counts the replies with tool calls in a case, so that it can be told which calls one reply made.

Whether the attacked model had read the injected text when it decided on a call is not a matter of
the order in which tools ran: calls that one reply makes together are decided on together.
"""

from __future__ import annotations

from contextvars import ContextVar

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.trace import ACTING_ROLES

_COUNT: ContextVar[int] = ContextVar("asb_replies_with_calls", default=0)


class CountedReplies:
    """A model whose replies with tool calls are counted, in this case only.

    A worker that one call starts (an isolating defense) replies in between, so a later call of the
    same outer reply counts as decided after it: on doubt, for the injection.
    """

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        start_counting()  # one is made per case, in the case's own context

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the model.

        Raises:
            ModelError: As the model does.
        """
        reply = self.model.complete(request)
        # An agent that writes its calls as text is counted by its role: words alone share nothing with calls.
        if reply.message["tool_calls"] or request.role in ACTING_ROLES:
            _COUNT.set(_COUNT.get() + 1)
        return reply


def start_counting() -> None:
    """Count from nothing: a case begins, or AgentDojo runs its pipeline again."""
    _COUNT.set(0)


def count_replies_with_calls() -> int:
    """Count the replies with tool calls that this run of the pipeline has had so far."""
    return _COUNT.get()
