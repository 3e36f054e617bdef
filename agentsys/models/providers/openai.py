"""`OpenAIModel`: OpenAI's two APIs, and every server that speaks one of them (vLLM, Ollama, ...)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentsys.errors import ConfigError, require_known_name
from agentsys.models import text_tools
from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, text_of
from agentsys.models.providers import openai_wire, responses_wire
from agentsys.models.providers.sdk_model import PostingModel, append_tools
from agentsys.models.providers.wire_text import encode_for_wire
from agentsys.models.text_tools import TEXT_PROTOCOLS, ProtocolName, ToolRole


@dataclass(repr=False, eq=False, kw_only=True)
class OpenAIModel(PostingModel):
    """A model behind OpenAI's SDK. Its `base_url` includes `/v1`."""

    api: Literal["chat", "responses"] = "chat"
    """Chat completions, which every server speaks, or OpenAI's newer API, which keeps a model's reasoning
    from one tool call to the next and which `gpt-5.4` and later demand for tools together with reasoning."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What chat completions call the bound on output tokens; newer OpenAI models know only the second."""
    system_role: Literal["system", "developer"] = "system"
    """Role under which system messages go."""
    reasoning_effort: str | None = None
    """`none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`, as far as the model knows it; None: not
    sent, and the model's own default applies."""
    reasoning_summary: Literal["auto", "concise", "detailed"] | None = None
    """Whether the reply's record tells what was thought, with `api: responses`; None: no."""
    reasoning_field: Literal["reasoning_content", "reasoning"] | None = None
    """Field in which a server of chat completions wants a model's thoughts back with its tool calls, empty
    ones too (DeepSeek V4, Kimi, GLM: `reasoning_content`); None: they are read and never sent."""
    strip_think: bool = False
    """Whether `<think>` at the beginning of a text is taken for thoughts, for servers without a reasoning
    parser; with chat completions."""

    prompt_cache: bool = False
    """Whether requests say which conversation they belong to (`prompt_cache_key`), so that the provider sends
    them where their beginning is in its cache. Replies are the same."""

    tools: Literal["native", "text"] = "native"
    """Whether tools go through the server's own tool calls, or through text: told in the system message, with
    calls read from what the model writes. For servers without a parser for the model, and for models that
    were trained to have results under a role of their own."""
    text_protocol: ProtocolName = "agentdojo"
    """With `tools: text`: `agentdojo` is what AgentDojo's own element for local models sends and reads;
    `agentdojo+` reads every call of a reply and tells the model of one that cannot be read; `llama3` is the
    form that Llama 3 was trained on."""
    tool_role: ToolRole | None = None
    """With `tools: text`, the role of results: `tool`, `user`, `input` (Meta-SecAlign) or `ipython` (Llama
    3); None: the protocol's own."""

    def __post_init__(self) -> None:
        if self.tools == "text" and self.api == "responses":
            raise ConfigError(f"Model '{self.name}': tools: text goes with api: chat.")
        require_known_name("text_protocol", self.text_protocol, TEXT_PROTOCOLS)
        super().__post_init__()
        if self.reasoning_effort is not None and self.api == "chat":
            self._fixed["reasoning_effort"] = self.reasoning_effort

    @property
    def _path(self) -> str:
        return "/responses" if self.api == "responses" else "/chat/completions"

    def _make_client(self) -> Any:
        import openai  # 0.9 s of CPU: only where a model is really built

        return self._make_sdk(openai.OpenAI, openai.DefaultHttpxClient, "https://api.openai.com/v1")

    def _encode_tools(self, tools: Sequence[ToolSpec]) -> bytes:
        if self.api == "responses":
            return responses_wire.responses_tools_json(tools)
        return openai_wire.openai_tools_json(tools)

    def _read_reply(self, answer: bytes, request: ChatRequest) -> ChatReply:
        if self.api == "responses":
            return responses_wire.read_responses_reply(answer, self.price, self._key)
        reply = openai_wire.read_openai_reply(answer, self.price, self._key, strip_think=self.strip_think)
        if self.tools == "native":
            return reply
        message = text_tools.with_parsed_calls(reply.message, request, TEXT_PROTOCOLS[self.text_protocol])
        return replace(reply, message=message)

    def _encode_body(self, request: ChatRequest) -> bytes:
        body = self._responses_body(request) if self.api == "responses" else self._completion_body(request)
        if self.prompt_cache:
            body["prompt_cache_key"] = _conversation_key(request)
        body.update(self._fixed)
        if not request.tools or self.tools == "text":
            return encode_for_wire(body)
        body["tool_choice"] = request.tool_choice
        return append_tools(body, self._tools.convert(request.tools))

    def _completion_body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model_id,
            "messages": self._wire_messages(request),
            **self._temperature_field(request),
        }
        if self.tools == "text":
            body["seed"] = text_tools.request_seed(body["messages"])
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            body[self.max_tokens_field] = max_tokens
        if request.logprobs:
            body |= {"logprobs": True, "top_logprobs": request.logprobs}
        if request.reply_schema is not None:
            body["response_format"] = openai_wire.response_format(request.reply_schema)
        return body

    def _wire_messages(self, request: ChatRequest) -> list[dict[str, Any]]:
        if self.tools == "text":
            return text_tools.text_tool_messages(request, TEXT_PROTOCOLS[self.text_protocol], self.tool_role)
        return openai_wire.openai_messages(request.messages, self.system_role, self.reasoning_field)

    def _responses_body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model_id,
            "input": responses_wire.responses_items(request.messages, self.system_role),
            "store": False,
            **self._temperature_field(request),
        }
        if self.reasoning_effort is not None:
            asked = {"effort": self.reasoning_effort, "summary": self.reasoning_summary}
            body["reasoning"] = {name: value for name, value in asked.items() if value is not None}
            # Refused by models that do not reason; without it nothing could be sent back.
            body["include"] = ["reasoning.encrypted_content"]
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            body["max_output_tokens"] = max_tokens
        if request.reply_schema is not None:
            body["text"] = responses_wire.responses_text_format(request.reply_schema)
        return body


def _conversation_key(request: ChatRequest) -> str:
    """One word for a conversation: what it was opened with, by whom; 32 hex digits."""
    texts = [text_of(message) for message in request.messages]
    opening = next((n for n, message in enumerate(request.messages) if message["role"] == "user"), 0)
    said = [request.role, *texts[: opening + 1], *(tool.name for tool in request.tools)]
    return hashlib.sha256(encode_for_wire(said)).hexdigest()[:32]
