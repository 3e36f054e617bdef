"""`AnthropicModel`: Anthropic's messages API through the vendor's SDK."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec
from agentsys.models.providers.anthropic_wire import (
    has_calls_without_thinking,
    read_anthropic_reply,
    stand_in_tools,
    anthropic_messages,
    anthropic_tools_json,
)
from agentsys.models.providers.openai_wire import is_closed_schema
from agentsys.models.providers.sdk_model import PostingModel, append_tools
from agentsys.models.providers.wire_text import encode_for_wire, as_mapping, system_text

WITHOUT_THINKING = "asked without thinking: calls in the conversation have no thoughts of the model's own"
"""Note on a reply to a conversation that a defense rebuilt or made up."""


@dataclass(repr=False, eq=False, kw_only=True)
class AnthropicModel(PostingModel):
    """A model behind Anthropic's SDK. Its `base_url` is given without `/v1`."""

    max_tokens: int = field()
    """Most output tokens, thoughts included; Anthropic demands a bound."""
    thinking: Literal["adaptive", "disabled"] | None = None
    """Whether the model thinks, as much as it likes; None: not sent, the model's own default applies."""
    thinking_budget: int | None = None
    """Most tokens of thoughts, 1024 or more and fewer than `max_tokens`, for models before 4.6, which do not
    know `adaptive`; from 4.7 on it is refused. None: not sent."""
    effort: str | None = None
    """`low`, `medium`, `high`, `xhigh` or `max`; None: not sent, the model's own default applies."""
    structured: bool = False
    """Whether the model can be held to `ChatRequest.reply_schema` (where every object in it is closed)."""

    prompt_cache: bool = False
    """Whether the provider keeps what a request begins with for the next one: tools, system message and the
    conversation so far then cost a tenth, and a quarter more where they are new. Replies are the same."""

    def __post_init__(self) -> None:
        super().__post_init__()
        thinking: dict[str, Any] | None = None
        if self.thinking_budget is not None:
            thinking = {"type": "enabled", "budget_tokens": self.thinking_budget}
        elif self.thinking is not None:
            thinking = {"type": self.thinking}
        if thinking is not None:
            self._fixed.setdefault("thinking", thinking)

    @property
    def _path(self) -> str:
        # The SDK's own `post` also because, for `messages.create`, 2.x has no `temperature` keyword any more
        # and 0.125 refuses large `max_tokens` without streaming.
        return "/v1/messages"

    def _make_client(self) -> Any:
        import anthropic  # 1.5 s of CPU: only where a model is really built

        return self._make_sdk(anthropic.Anthropic, anthropic.DefaultHttpxClient, "https://api.anthropic.com")

    def _encode_tools(self, tools: Sequence[ToolSpec]) -> bytes:
        return anthropic_tools_json(tools)

    def _read_reply(self, answer: bytes, request: ChatRequest) -> ChatReply:
        reply = read_anthropic_reply(answer, self.price, self._key)
        if self._thinks_by_budget and has_calls_without_thinking(anthropic_messages(request.messages)):
            return replace(reply, notes=(*reply.notes, WITHOUT_THINKING))
        return reply

    @property
    def _thinks_by_budget(self) -> bool:
        return as_mapping(self._fixed.get("thinking")).get("type") == "enabled"

    def _output_config(self, request: ChatRequest) -> dict[str, Any]:
        config: dict[str, Any] = {} if self.effort is None else {"effort": self.effort}
        schema = request.reply_schema
        if self.structured and schema is not None and is_closed_schema(schema):
            config["format"] = {"type": "json_schema", "schema": dict(schema)}
        return {"output_config": config} if config else {}

    def _encode_body(self, request: ChatRequest) -> bytes:
        messages = anthropic_messages(request.messages)
        body: dict[str, Any] = {
            "model": self.model_id,
            "max_tokens": request.max_tokens or self.max_tokens,
            "messages": messages,
        }
        if prompt := system_text(request.messages):
            body["system"] = prompt
        if self.prompt_cache:
            body["cache_control"] = {
                "type": "ephemeral"
            }  # on the last block; what comes before it is looked up
        body |= self._temperature_field(request) | self._output_config(request) | self._fixed
        if self._thinks_by_budget and has_calls_without_thinking(messages):
            body["thinking"] = {"type": "disabled"}
        if not request.tools:
            if stand_ins := stand_in_tools(request.messages):
                body |= {"tool_choice": {"type": "none"}, "tools": stand_ins}
            return encode_for_wire(body)
        body["tool_choice"] = {"type": request.tool_choice}
        return append_tools(body, self._tools.convert(request.tools))
