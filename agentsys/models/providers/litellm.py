"""`LiteLLMModel`: every other provider, through litellm (an extra: `pip install 'agentsys-bench[litellm]'`).

Only a fallback: litellm reports a lost connection as a server error 500 and takes 5 s to import.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from agentsys.extras import not_installed
from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.headers import ROLE_HEADER
from agentsys.models.price import Price
from agentsys.models.providers.api_key import read_key
from agentsys.models.providers.bounded_http import MOST_REPLY_BYTES, Bounds, bounded_client
from agentsys.models.providers.openai_wire import read_reply, response_format, wire_messages, wire_tools
from agentsys.models.providers.sdk_errors import (
    http_error,
    one_line,
    own_error,
    retry_after_s,
    transport_error,
)
from agentsys.models.providers.wire_tools import ToolLists

_BY_CLASS = {
    "ContextWindowExceededError": ErrorKind.CONTEXT_LENGTH,
    "ContentPolicyViolationError": ErrorKind.CONTENT_REFUSED,
    "Timeout": ErrorKind.TIMEOUT,
    "JSONSchemaValidationError": ErrorKind.MALFORMED_REPLY,
}


class LiteLLMModel:
    """A model behind litellm.

    Args:
        name: The model's name in configs, records and tables.
        model_id: litellm's id, provider first: `together_ai/meta-llama/...`.
        api_key_env: Variable that holds the key; None: litellm looks for the provider's own variable.
        base_url: Address of another server; None for the provider's.
        temperature: Sent as it is, 0.0 too; None: never sent, whatever a request asks.
        max_tokens: Most output tokens; None: not sent.
        timeout_s: Seconds until a whole reply must be there; see docs/errors.md for what litellm holds to.
        max_reply_bytes: Longest reply's body that is read; of the first of several such models.
        price: For the cost of each call.
        send_role: Whether the asking role goes along in a header (for our own served models).
        extra_body: More arguments for every `litellm.completion` call.

    Raises:
        Unavailable: If litellm is not installed or the key's variable is not set.
    """

    def __init__(
        self,
        name: str,
        model_id: str,
        api_key_env: str | None = None,
        *,
        base_url: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        timeout_s: float = 300.0,
        max_reply_bytes: int = MOST_REPLY_BYTES,
        price: Price | None = None,
        send_role: bool = False,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._key = read_key(name, api_key_env)
        self._litellm = _import_litellm(name)
        if self._litellm.client_session is None:
            # One client for all models that litellm asks in OpenAI's format: the first one's bounds hold.
            bounds = Bounds(timeout_s, max_reply_bytes)
            self._litellm.client_session = bounded_client(import_module("httpx").Client, bounds, None)
        self.name = name
        self.model_id = model_id
        self.base_url = base_url
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.timeout_s = timeout_s
        self.price = price
        self.send_role = send_role
        self._fixed = dict(extra_body or {})
        self._tools = ToolLists(wire_tools)

    def complete(self, request: ChatRequest) -> ChatReply:
        """Send one HTTP request.

        Raises:
            ModelError: If it fails or the reply is not one.
        """
        try:
            response = self._litellm.completion(**self._arguments(request))
        except Exception as error:  # noqa: BLE001 - translated, or raised again
            raise self._translated(error) from None
        return read_reply(response.model_dump(), self.price, self._key)

    def _arguments(self, request: ChatRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.model_id,
            "messages": wire_messages(request.messages, "system"),
            "timeout": self.timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "api_key": self._key,
            "api_base": self.base_url,
            "max_tokens": request.max_tokens or self.max_tokens,
        }
        if self.temperature is not None:
            asked = request.temperature
            arguments["temperature"] = self.temperature if asked is None else asked
        if request.tools:
            arguments |= {"tools": self._tools.get(request.tools), "tool_choice": request.tool_choice}
        if request.reply_schema is not None:
            arguments["response_format"] = response_format(request.reply_schema)
        if self.send_role:
            arguments["extra_headers"] = {ROLE_HEADER: request.role}
        return {key: value for key, value in arguments.items() if value is not None} | self._fixed

    def _translated(self, error: Exception) -> Exception:
        ours = own_error(error)
        if ours is not None:
            said = str(ours).partition(": ")[2]
            return ModelError(ours.kind, one_line(said, self._key), ours.retry_after_s)
        status = getattr(error, "status_code", None)
        message = one_line(str(error), self._key)
        kind = _BY_CLASS.get(type(error).__name__)
        if kind is not None:
            return ModelError(kind, message)
        if not isinstance(status, int):
            return transport_error(error) or error
        headers = getattr(error, "litellm_response_headers", None)
        if headers is None:
            headers = getattr(getattr(error, "response", None), "headers", None)
        found = http_error(status, message, headers, self._key)
        found.retry_after_s = retry_after_s(headers)
        return found


def _import_litellm(name: str) -> Any:
    # Without this it asks the network for its price table on import, and again from a thread.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    try:
        import litellm
    except ImportError:
        raise not_installed(f"Model '{name}'", ["litellm"], "litellm") from None
    return litellm
