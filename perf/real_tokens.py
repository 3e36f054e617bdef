"""Counts a request and its reply with a real tokenizer, as OpenAI bills them: cl100k, tools as types.

The tokenizer is tiktoken's; its data come with the package litellm, so nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from agentsys.models.chat import ChatReply, ChatRequest, Scene, Usage, text_of
from agentsys.models.estimated_usage import shown_tool
from agentsys.models.providers.wire_text import arguments_json, result_text

PER_MESSAGE = 4
"""Tokens that frame a message: its start, its role, its end."""
PER_CALL = 4
"""Tokens that frame a tool call."""
PER_TOOLS = 16
"""Tokens that frame the tools: a heading, a name space, its end."""
PER_REPLY = 3
"""Tokens with which a prompt opens the reply."""


@dataclass
class Tally:
    """What has been asked and answered so far."""

    tokens: Counter[str] = field(default_factory=Counter)
    """Role -> tokens, prompt and reply."""
    calls: Counter[str] = field(default_factory=Counter)
    """Role -> model calls."""


@dataclass(frozen=True)
class Counted:
    """A model whose requests and replies are counted, whether or not they are booked to a case."""

    model: Any
    tally: Tally

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return str(self.model.name)

    def for_scene(self, scene: Scene) -> Counted:
        """The wrapped model in one case, counted."""
        return Counted(self.model.for_scene(scene), self.tally)

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model and count."""
        reply: ChatReply = self.model.complete(request)
        usage = usage_of(request, reply)
        self.tally.tokens[request.role] += usage.prompt + usage.completion
        self.tally.calls[request.role] += 1
        return replace(reply, usage=usage)


def usage_of(request: ChatRequest, reply: ChatReply) -> Usage:
    """Tokens of one call."""
    tools = sum(tokens(shown_tool(tool)) for tool in request.tools)
    prompt = sum(map(_message, request.messages)) + PER_REPLY + (tools + PER_TOOLS if tools else 0)
    return Usage(prompt=prompt, completion=_message(reply.message) - PER_MESSAGE)


def _message(message: Any) -> int:
    text = result_text(message) if message["role"] == "tool" else text_of(message)
    calls = message["tool_calls"] or () if message["role"] == "assistant" else ()
    return PER_MESSAGE + tokens(text) + sum(_call(call) for call in calls)


def _call(call: Any) -> int:
    return tokens(call.function) + tokens(arguments_json(call)) + PER_CALL


@lru_cache(maxsize=50_000)
def tokens(text: str) -> int:
    """Tokens of a text; what looks like a special token is text."""
    return len(_encoding().encode(text, disallowed_special=()))


@lru_cache(maxsize=1)
def _encoding() -> Any:
    """The tokenizer.

    Raises:
        SystemExit: If tiktoken or its data are missing.
    """
    found = importlib.util.find_spec("litellm")
    if found is None or found.origin is None:
        raise SystemExit("The tokenizer's data come with litellm: pip install -e '.[litellm]'")
    data = Path(found.origin).parent / "litellm_core_utils" / "tokenizers"
    os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(data))
    import tiktoken

    return tiktoken.get_encoding("cl100k_base")
