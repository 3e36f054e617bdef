"""A model that refuses whatever it is asked."""

from __future__ import annotations

from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant


class RefusingModel:
    """The name is its YAML's."""

    def __init__(self, name: str = "refuser") -> None:
        self.name = name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Refuse."""
        return ChatReply(assistant("I cannot help with that."), Usage(1, 1), model_id=self.name)
