"""`OpenAIModel`: OpenAI's chat completions, and every server that speaks them (vLLM, Ollama, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec
from agentsys.models.providers.openai_wire import read_reply, response_format, wire_messages, wire_tools_json
from agentsys.models.providers.sdk_model import PostingModel, with_tools
from agentsys.models.providers.wire_text import encode


@dataclass(repr=False, eq=False, kw_only=True)
class OpenAIModel(PostingModel):
    """A model behind OpenAI's SDK. Its `base_url` includes `/v1`."""

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the server calls the bound on output tokens; newer OpenAI models know only the second."""
    system_role: Literal["system", "developer"] = "system"
    """Role under which system messages go."""
    reasoning_effort: str | None = None
    """Sent as it is; None: not sent."""

    _path: ClassVar[str] = "/chat/completions"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reasoning_effort is not None:
            self._fixed["reasoning_effort"] = self.reasoning_effort

    def _connected(self) -> Any:
        import openai  # 0.9 s of CPU: only where a model is really built

        return openai.OpenAI(**self._client_options("https://api.openai.com/v1", openai.DefaultHttpxClient))

    def _wire_tools(self, tools: Sequence[ToolSpec]) -> bytes:
        return wire_tools_json(tools)

    def _read(self, answer: bytes, request: ChatRequest) -> ChatReply:
        return read_reply(answer, self.price, self._key)

    def _body(self, request: ChatRequest) -> bytes:
        body: dict[str, Any] = {
            "model": self.model_id,
            "messages": wire_messages(request.messages, self.system_role),
            **self._temperature(request),
        }
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            body[self.max_tokens_field] = max_tokens
        if request.reply_schema is not None:
            body["response_format"] = response_format(request.reply_schema)
        body.update(self._fixed)
        if not request.tools:
            return encode(body)
        body["tool_choice"] = request.tool_choice
        return with_tools(body, self._tools.get(request.tools))
