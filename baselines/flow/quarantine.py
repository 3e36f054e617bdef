"""`Quarantine`: a model without tools and history turns text into a value of a declared type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeVar

from agentdojo.types import ChatMessage
from pydantic import BaseModel, ValidationError

from agentsys.models.chat import ChatModel, ChatRequest, assistant, system, text_of, user
from agentsys.models.trace import span

ROLE = "query"
_Shape = TypeVar("_Shape", bound=BaseModel)


class NoTypedAnswer(Exception):
    """No reply had the declared type."""


class QuarantinedModel:
    """Asks for typed answers. What follows a reply that does not fit (`again`) names nothing of the reply."""

    def __init__(self, model: ChatModel, instructions: str, again: str, attempts: int) -> None:
        self.model = model
        self.instructions, self.again, self.attempts = instructions, again, attempts

    def ask(self, question: str, shape: type[_Shape]) -> _Shape:
        """A reply that is an object of the shape.

        Raises:
            NoAnswer: If none of the replies was.
            ModelError: If the model gave no reply.
        """
        schema = shape.model_json_schema()
        told = f"{question}\n\nAnswer with a JSON object of this schema:\n{json.dumps(schema)}"
        messages: list[ChatMessage] = [system(self.instructions), user(told)]
        with span(ROLE) as opened:
            for attempt in range(1, self.attempts + 1):
                reply = self.model.complete(ChatRequest(messages, role=ROLE, reply_schema=schema)).message
                answer = _parse_reply(text_of(reply), shape)
                if answer is not None:
                    opened.messages = [*messages, reply]
                    opened.decision = {"answered": True, "attempts": attempt}
                    return answer
                # A model may answer with nothing; some providers refuse empty messages.
                messages += [assistant(text_of(reply) or "(nothing)"), user(self.again)]
            opened.messages = messages
            opened.decision = {"answered": False, "attempts": self.attempts}
        raise NoTypedAnswer


def _parse_reply(text: str, shape: type[_Shape]) -> _Shape | None:
    """The object in a reply, whatever stands around it."""
    start, end = text.find("{"), text.rfind("}")
    if not 0 <= start < end:
        return None
    for candidate in _reply_variants(text[start : end + 1]):
        try:
            return shape.model_validate_json(candidate)
        except (ValidationError, RecursionError):
            continue
    return None


def _reply_variants(text: str) -> Sequence[str]:
    """The text as it is, and without a comma behind the last entry, which many models write."""
    inside = text[:-1].rstrip()
    return [text, f"{inside[:-1]}}}"] if inside.endswith(",") else [text]
