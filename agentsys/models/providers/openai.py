"""`OpenAIModel`: OpenAI's chat completions, and every server that speaks them (vLLM, Ollama, ...)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.models.headers import ROLE_HEADER
from agentsys.models.price import Price
from agentsys.models.providers.api_key import read_key
from agentsys.models.providers.bounded_http import MOST_REPLY_BYTES, Bounds, bounded_client
from agentsys.models.providers.openai_wire import read_reply, response_format, wire_messages, wire_tools_json
from agentsys.models.providers.sdk_errors import transport_error
from agentsys.models.providers.wire_text import encode
from agentsys.models.providers.wire_tools import ToolLists


class OpenAIModel:
    """A model behind OpenAI's SDK.

    Args:
        name: The model's name in configs, records and tables.
        model_id: The provider's exact id.
        api_key_env: Variable that holds the key; None for a server that wants none.
        base_url: Address of another server, `/v1` included; None for OpenAI's.
        temperature: Sent as it is, 0.0 too; None: never sent, whatever a request asks (reasoning models
            refuse it).
        max_tokens: Most output tokens; None: not sent.
        max_tokens_field: What the server calls that bound; newer OpenAI models know only the second.
        timeout_s: Seconds until a whole reply must be there.
        max_reply_bytes: Longest reply's body that is read.
        price: For the cost of each call.
        system_role: Role under which system messages go.
        reasoning_effort: Sent as it is; None: not sent.
        send_role: Whether the asking role goes along in a header (for our own served models).
        extra_body: More fields for every request's body.

    Raises:
        ConfigError: If the key's variable is not set.
    """

    def __init__(
        self,
        name: str,
        model_id: str,
        api_key_env: str | None,
        *,
        base_url: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens",
        timeout_s: float = 300.0,
        max_reply_bytes: int = MOST_REPLY_BYTES,
        price: Price | None = None,
        system_role: Literal["system", "developer"] = "system",
        reasoning_effort: str | None = None,
        send_role: bool = False,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        key = read_key(name, api_key_env)
        import openai  # 0.9 s of CPU: only where a model is really built

        self.name = name
        self.model_id = model_id
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.max_tokens_field = max_tokens_field
        self.price = price
        self.system_role = system_role
        self.send_role = send_role
        self._key = key
        self._fixed = dict(extra_body or {})
        if reasoning_effort is not None:
            self._fixed["reasoning_effort"] = reasoning_effort
        self._tools = ToolLists(wire_tools_json)
        # The SDK wants some key; the address is always given, or the SDK would read it from OPENAI_BASE_URL.
        self._client = openai.OpenAI(
            api_key=key or "none",
            base_url=base_url or "https://api.openai.com/v1",
            max_retries=0,
            timeout=timeout_s,
            http_client=bounded_client(openai.DefaultHttpxClient, Bounds(timeout_s, max_reply_bytes), key),
        )

    def complete(self, request: ChatRequest) -> ChatReply:
        """Send one HTTP request.

        Raises:
            ModelError: If it fails or the reply is not one.
        """
        headers = {"Content-Type": "application/json"}
        if self.send_role:
            headers[ROLE_HEADER] = request.role
        try:
            # `chat.completions.create` walks through every tool schema on each call: 4.6 ms of CPU for
            # Workspace's 24 tools against 0.7 ms for the SDK's own `post` with a body we encoded.
            data = self._client.post(
                "/chat/completions",
                cast_to=bytes,
                content=self._body(request),
                options={"headers": headers},
            )
        except Exception as error:  # noqa: BLE001 - translated, or raised again
            raise transport_error(error) or error from None
        return read_reply(data, self.price, self._key)

    def _body(self, request: ChatRequest) -> bytes:
        body: dict[str, Any] = {
            "model": self.model_id,
            "messages": wire_messages(request.messages, self.system_role),
        }
        if self.temperature is not None:
            asked = request.temperature
            body["temperature"] = self.temperature if asked is None else asked
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            body[self.max_tokens_field] = max_tokens
        if request.reply_schema is not None:
            body["response_format"] = response_format(request.reply_schema)
        body.update(self._fixed)
        if not request.tools:
            return encode(body)
        body["tool_choice"] = request.tool_choice
        return encode(body)[:-1] + b',"tools":' + self._tools.get(request.tools) + b"}"
