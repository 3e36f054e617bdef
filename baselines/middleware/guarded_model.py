"""`GuardedModel`: watches what inner agents return to the agent above them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentdojo.types import ChatAssistantMessage, text_content_block_from_string

from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, text_of
from agentsys.models.trace import current_tracer, span
from baselines.middleware.guard import GuardSession, Screened, screen_value
from baselines.middleware.guarded_runtime import MIDDLEWARE_SPAN, screened_as_record

NOT_AVAILABLE = "Not Available: "
"""Begins every replaced value in a returned object, as return gates expect it of a missing one."""


class GuardedModel:
    """A model whose replies in the roles of inner agents are screened for contagion.

    Only replies that end an agent's work are: those without tool calls. In a JSON object each text is
    screened by itself, so that the object keeps its form.
    """

    def __init__(self, model: ChatModel, roles: Sequence[str]) -> None:
        self.model = model
        self.roles = frozenset(roles)
        self.session: GuardSession | None = None
        """The conversation under way; set anew for each run of the pipeline."""

    @property
    def name(self) -> str:
        """The model's own name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request.

        Raises:
            ModelError: As the model does.
        """
        reply = self.model.complete(request)
        if self.session is None or request.role not in self.roles or reply.message["tool_calls"]:
            return reply
        return replace(reply, message=self._screen_message(reply.message, request.role, self.session))

    def _screen_message(
        self, message: ChatAssistantMessage, role: str, session: GuardSession
    ) -> ChatAssistantMessage:
        text = text_of(message)
        seen: list[Screened] = []

        def screen(part: str) -> Screened:
            seen.append(session.passes_on(part, f"return of {role}"))
            return seen[-1]

        shown = _replace_text(text, screen)
        with span(MIDDLEWARE_SPAN, f"return of {role}") as node:
            node.decision = {"what": "return", "texts": [screened_as_record(one) for one in seen if one.findings]}
        if shown == text:
            return message
        current_tracer().text_rewritten(text, shown)
        return {**message, "content": [text_content_block_from_string(shown)]}


def _replace_text(text: str, screen: Any) -> str:
    try:
        data = json.loads(text)
    except ValueError:
        return str(screen(text).text)
    if not isinstance(data, dict | list):
        return str(screen(text).text)

    def marked(part: str) -> Screened:
        found: Screened = screen(part)
        return replace(found, text=NOT_AVAILABLE + found.text) if found.changed else found

    cleaned = screen_value(data, marked)
    return text if cleaned is data else json.dumps(cleaned, ensure_ascii=False)
