"""`LiteLLMModel`: every other provider, through litellm (an extra: `pip install 'agentsys-bench[litellm]'`).

Only a fallback: litellm reports a lost connection as a server error 500 and takes 5 s to import.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from agentsys.errors import make_not_installed_error
from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError
from agentsys.models.providers.bounded_http import ExchangeLimits, make_bounded_client
from agentsys.models.providers.openai_wire import (
    build_openai_messages,
    build_openai_tools,
    build_response_format,
    read_openai_reply,
)
from agentsys.models.providers.reply_reader import Reading
from agentsys.models.providers.sdk_errors import find_own_error, make_http_error, redact_line
from agentsys.models.providers.sdk_model import SdkModel

_KIND_BY_CLASS = {
    "ContextWindowExceededError": ErrorKind.CONTEXT_LENGTH,
    "ContentPolicyViolationError": ErrorKind.CONTENT_REFUSED,
    "Timeout": ErrorKind.TIMEOUT,
    "JSONSchemaValidationError": ErrorKind.MALFORMED_REPLY,
}
_THINKERS = ("deepseek/", "moonshot/")
"""Providers that refuse calls without their thoughts; in place of a missing one litellm (1.105) sends a blank."""


@dataclass(repr=False, eq=False, kw_only=True)
class LiteLLMModel(SdkModel):
    """A model behind litellm.

    `model_id` is litellm's, provider first: `together_ai/meta-llama/...`. `extra_body` holds more arguments
    for every `litellm.completion` call. All models that litellm asks in OpenAI's format share one HTTP
    client: the first one's `timeout_s` and `max_reply_bytes` hold; docs/errors.md says how far.

    Raises:
        Unavailable: If litellm is not installed or the key's variable is not set.
    """

    api_key_env: str | None = field(default=None, kw_only=False)
    """Variable that holds the key; None: litellm looks for the provider's own variable."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.warm_up()  # at once, as litellm may not be installed

    def _make_client(self) -> Any:
        litellm = _import_litellm(self.name)
        if litellm.client_session is None:
            import httpx

            limits = ExchangeLimits(self.timeout_s, self.max_reply_bytes, None)
            litellm.client_session = make_bounded_client(httpx.Client, limits)
        return litellm

    def _send(self, request: ChatRequest) -> Any:
        return self._client.completion(**self._build_completion_arguments(request))

    def _read_reply(self, answer: Any, reading: Reading) -> ChatReply:
        return read_openai_reply(answer.model_dump(), reading)

    def _build_completion_arguments(self, request: ChatRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.model_id,
            "messages": build_openai_messages(request.messages, "system", self._reasoning_field),
            "timeout": self.timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "api_key": self._key,
            "api_base": self.base_url,
            "max_tokens": request.max_tokens or self.max_tokens,
            **self._build_temperature_field(request),
        }
        if request.tools:
            arguments |= {"tools": build_openai_tools(request.tools), "tool_choice": request.tool_choice}
        if (schema := request.schema_to_send(structured=False)) is not None:
            arguments["response_format"] = build_response_format(schema)
        if headers := self._build_role_header(request):
            arguments["extra_headers"] = headers
        return {key: value for key, value in arguments.items() if value is not None} | self._fixed

    @property
    def _reasoning_field(self) -> str | None:
        return "reasoning_content" if self.model_id.startswith(_THINKERS) else None

    def _translate_error(self, error: Exception) -> Exception:
        ours = find_own_error(error)
        if ours is not None:
            message_of_ours = str(ours).partition(": ")[2]
            return ModelError(ours.kind, redact_line(message_of_ours, self._key), ours.retry_after_s)
        status = getattr(error, "status_code", None)
        message = redact_line(str(error), self._key)
        kind = _KIND_BY_CLASS.get(type(error).__name__)
        if kind is not None:
            return ModelError(kind, message)
        if not isinstance(status, int):
            return super()._translate_error(error)
        headers = getattr(error, "litellm_response_headers", None)
        if headers is None:
            headers = getattr(getattr(error, "response", None), "headers", None)
        return make_http_error(status, message, headers, self._key)


def _import_litellm(name: str) -> Any:
    # Without this it asks the network for its price table on import, and again from a thread.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        import litellm
    except ImportError:
        raise make_not_installed_error(f"Model '{name}'", ["litellm"], "litellm") from None
    return litellm
