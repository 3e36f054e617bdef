"""`AnthropicModel`: Anthropic's messages API through the vendor's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.models.headers import ROLE_HEADER
from agentsys.models.price import Price
from agentsys.models.providers.anthropic_wire import (
    read_reply,
    stand_in_tools,
    system_text,
    wire_messages,
    wire_tools_json,
)
from agentsys.models.providers.api_key import read_key
from agentsys.models.providers.bounded_http import MOST_REPLY_BYTES, Bounds, bounded_client
from agentsys.models.providers.sdk_errors import transport_error
from agentsys.models.providers.wire_text import encode
from agentsys.models.providers.wire_tools import ToolLists


class AnthropicModel:
    """A model behind Anthropic's SDK. `ChatRequest.reply_schema` is not enforced here.

    Args:
        name: The model's name in configs, records and tables.
        model_id: The provider's exact id.
        api_key_env: Variable that holds the key; None for a server that wants none.
        max_tokens: Most output tokens; Anthropic demands a bound.
        base_url: Address of another server, without `/v1`; None for Anthropic's.
        temperature: Sent as it is, 0.0 too; None: never sent, whatever a request asks.
        timeout_s: Seconds until a whole reply must be there.
        max_reply_bytes: Longest reply's body that is read.
        price: For the cost of each call.
        send_role: Whether the asking role goes along in a header (for our own served models).
        extra_body: More fields for every request's body, e.g. `thinking`.

    Raises:
        ConfigError: If the key's variable is not set.
    """

    def __init__(
        self,
        name: str,
        model_id: str,
        api_key_env: str | None,
        max_tokens: int,
        *,
        base_url: str | None = None,
        temperature: float | None = 0.0,
        timeout_s: float = 300.0,
        max_reply_bytes: int = MOST_REPLY_BYTES,
        price: Price | None = None,
        send_role: bool = False,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        key = read_key(name, api_key_env)
        import anthropic  # 1.5 s of CPU: only where a model is really built

        self.name = name
        self.model_id = model_id
        self.max_tokens = max_tokens
        self.temperature = temperature
        self.price = price
        self.send_role = send_role
        self._key = key
        self._fixed = dict(extra_body or {})
        self._tools = ToolLists(wire_tools_json)
        self._client = anthropic.Anthropic(
            api_key=key or "none",
            base_url=base_url or "https://api.anthropic.com",
            max_retries=0,
            timeout=timeout_s,
            http_client=bounded_client(anthropic.DefaultHttpxClient, Bounds(timeout_s, max_reply_bytes), key),
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
            # The SDK's own `post` instead of `messages.create`: 2.x has no `temperature` keyword any more,
            # 0.125 refuses large `max_tokens` without streaming, and both walk through every tool schema.
            data = self._client.post(
                "/v1/messages", cast_to=bytes, content=self._body(request), options={"headers": headers}
            )
        except Exception as error:  # noqa: BLE001 - translated, or raised again
            raise transport_error(error) or error from None
        return read_reply(data, self.price, self._key)

    def _body(self, request: ChatRequest) -> bytes:
        body: dict[str, Any] = {
            "model": self.model_id,
            "max_tokens": request.max_tokens or self.max_tokens,
            "messages": wire_messages(request.messages),
        }
        if prompt := system_text(request.messages):
            body["system"] = prompt
        if self.temperature is not None:
            asked = request.temperature
            body["temperature"] = self.temperature if asked is None else asked
        body.update(self._fixed)
        if not request.tools:
            if stand_ins := stand_in_tools(request.messages):
                body |= {"tool_choice": {"type": "none"}, "tools": stand_ins}
            return encode(body)
        body["tool_choice"] = {"type": request.tool_choice}
        return encode(body)[:-1] + b',"tools":' + self._tools.get(request.tools) + b"}"
