"""A chat model whose replies are written down, and clients of a server that offers it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anthropic
import openai
from agentdojo.functions_runtime import FunctionCall
from google import genai
from google.genai import types
from scripted_model import ScriptedModel

from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant
from agentsys_plugins.serve.served_model import Server

WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Scripted(ScriptedModel):
    """Answers with the given replies in turn, the last one for ever."""

    def __init__(self, *replies: ChatReply) -> None:
        super().__init__(list(replies), repeat=True)

    @property
    def asked(self) -> list[ChatRequest]:
        return self.requests


def says(text: str | None, usage: Usage | None = None) -> ChatReply:
    return ChatReply(assistant(text), usage=usage or Usage())


def calls(*pairs: tuple[str, dict[str, Any]], text: str | None = None, ids: Sequence[str] = ()) -> ChatReply:
    made = [
        FunctionCall(function=name, args=args, id=ids[index] if ids else None)
        for index, (name, args) in enumerate(pairs)
    ]
    return ChatReply(assistant(text, made))


def openai_client(server: Server, timeout: float = 10.0) -> openai.OpenAI:
    return openai.OpenAI(api_key="none", base_url=server.openai_base_url, max_retries=0, timeout=timeout)


def anthropic_client(server: Server, timeout: float = 10.0) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="none", base_url=server.base_url, max_retries=0, timeout=timeout)


def google_client(server: Server, timeout: float = 10.0, **options: Any) -> genai.Client:
    http = {"base_url": server.base_url, "timeout": int(timeout * 1000), **options}
    return genai.Client(api_key="none", http_options=http)  # type: ignore[arg-type]


def generate(
    server: Server, contents: Any, timeout: float = 10.0, **more: Any
) -> types.GenerateContentResponse:
    """One request by a client of its own, which must be kept: a forgotten one is closed at once."""
    client = google_client(server, timeout)
    return client.models.generate_content(model="m", contents=contents, **more)
