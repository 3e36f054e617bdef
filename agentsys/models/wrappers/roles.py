"""`ByRole`: another model for some roles, e.g. a cheaper worker or a stronger validator."""

from __future__ import annotations

from collections.abc import Mapping

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest


class ByRole:
    """Sends each request to the model of the role that asks.

    Args:
        default: Who answers roles that have no model of their own; gives the name.
        roles: Role -> model.
    """

    def __init__(self, default: ChatModel, roles: Mapping[str, ChatModel]) -> None:
        self.default = default
        self.roles = dict(roles)

    @property
    def name(self) -> str:
        """The default model's name."""
        return self.default.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the role's model.

        Raises:
            ModelError: As that model does.
        """
        return self.roles.get(request.role, self.default).complete(request)
