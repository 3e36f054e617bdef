"""`AnthropicModel`: Anthropic's messages API through the vendor's SDK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec
from agentsys.models.providers.anthropic_wire import (
    read_reply,
    stand_in_tools,
    system_text,
    wire_messages,
    wire_tools_json,
)
from agentsys.models.providers.sdk_model import PostingModel, with_tools
from agentsys.models.providers.wire_text import encode


@dataclass(repr=False, eq=False, kw_only=True)
class AnthropicModel(PostingModel):
    """A model behind Anthropic's SDK. `ChatRequest.reply_schema` is not enforced here.

    Its `base_url` is given without `/v1`; `extra_body` may hold, for one, `thinking`.
    """

    max_tokens: int = field()
    """Most output tokens; Anthropic demands a bound."""

    # The SDK's own `post` also because, for `messages.create`, 2.x has no `temperature` keyword any more and
    # 0.125 refuses large `max_tokens` without streaming.
    _path: ClassVar[str] = "/v1/messages"

    def _connected(self) -> Any:
        import anthropic  # 1.5 s of CPU: only where a model is really built

        return anthropic.Anthropic(
            **self._client_options("https://api.anthropic.com", anthropic.DefaultHttpxClient)
        )

    def _wire_tools(self, tools: Sequence[ToolSpec]) -> bytes:
        return wire_tools_json(tools)

    def _read(self, answer: bytes, request: ChatRequest) -> ChatReply:
        return read_reply(answer, self.price, self._key)

    def _body(self, request: ChatRequest) -> bytes:
        body: dict[str, Any] = {
            "model": self.model_id,
            "max_tokens": request.max_tokens or self.max_tokens,
            "messages": wire_messages(request.messages),
        }
        if prompt := system_text(request.messages):
            body["system"] = prompt
        body |= self._temperature(request) | self._fixed
        if not request.tools:
            if stand_ins := stand_in_tools(request.messages):
                body |= {"tool_choice": {"type": "none"}, "tools": stand_ins}
            return encode(body)
        body["tool_choice"] = {"type": request.tool_choice}
        return with_tools(body, self._tools.get(request.tools))
