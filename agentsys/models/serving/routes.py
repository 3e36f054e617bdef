"""Which path belongs to which wire format."""

from __future__ import annotations

from email.message import Message

from agentsys.models.serving.anthropic_wire import ANTHROPIC
from agentsys.models.serving.gemini_wire import GEMINI
from agentsys.models.serving.openai_wire import OPENAI
from agentsys.models.serving.wire import WireFormat

MODELS_PATH = "/v1/models"
"""GET lists the one model, in OpenAI's format."""


def endpoint(path: str) -> WireFormat | None:
    """The format whose model answers a POST to this path (without its query); None: there is none.

    Gemini's version and model are free: `/v1/models/m:generateContent`, `/v1beta/models/...`, and
    Vertex's longer `/v1beta1/projects/.../models/m:generateContent`.
    """
    if path == "/v1/chat/completions":
        return OPENAI
    if path == "/v1/messages":
        return ANTHROPIC
    if path.startswith("/v1") and "/models/" in path and path.endswith(":generateContent"):
        return GEMINI
    return None


def dialect(path: str, headers: Message) -> WireFormat:
    """The format in which a client that asks for an unknown path expects its error."""
    if "anthropic-version" in headers or path.startswith("/v1/messages"):
        return ANTHROPIC
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers or ":" in path:
        return GEMINI
    return OPENAI
