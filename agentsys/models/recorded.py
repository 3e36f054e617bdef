"""`Recorded`: the outermost wrapper, which books every question and answer in the case's trace."""

from __future__ import annotations

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.trace import current_tracer


class Recorded:
    """A model whose calls are booked under the current span of the current case."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model and book usage, cost and role.

        Raises:
            ModelError: As the wrapped model does.
        """
        tracer = current_tracer()
        tracer.model_asked(request)
        reply = self.model.complete(request)
        tracer.model_answered(request.role, reply)
        return reply
