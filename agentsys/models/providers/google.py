"""`GoogleModel`: Gemini through Google's SDK, with an API key or on Vertex AI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentsys.models.chat import ChatReply, ChatRequest
from agentsys.models.headers import ROLE_HEADER
from agentsys.models.price import Price
from agentsys.models.providers.api_key import read_key, read_variable
from agentsys.models.providers.bounded_http import MOST_REPLY_BYTES, Bounds, bounded_client
from agentsys.models.providers.google_wire import read_reply, system_text, wire_contents, wire_tools
from agentsys.models.providers.sdk_errors import transport_error
from agentsys.models.providers.wire_tools import ToolLists

_MOST_SIGNATURES = 50_000
"""Thought signatures kept (1-4 kB each). Only those of conversations under way are needed."""

_PLACEHOLDER = [{"role": "user", "parts": [{"text": "-"}]}]
"""Stands where the SDK wants contents; the real ones replace it in the body."""


class GoogleModel:
    """A model behind Google's SDK.

    Args:
        name: The model's name in configs, records and tables.
        model_id: The provider's exact id.
        api_key_env: Variable that holds the key; None on Vertex AI or for a server that wants none.
        vertexai: Whether to go through Vertex AI, with Google Cloud's own credentials.
        project_env: Variable that holds the Google Cloud project; Vertex AI only.
        location_env: Variable that holds its location; Vertex AI only.
        base_url: Address of another server, without version; None for Google's.
        api_version: API version in the address; None for the SDK's default.
        temperature: Sent as it is, 0.0 too; None: never sent, whatever a request asks.
        max_tokens: Most output tokens, thoughts included; None: not sent.
        timeout_s: Seconds until a whole reply must be there.
        max_reply_bytes: Longest reply's body that is read.
        price: For the cost of each call.
        send_role: Whether the asking role goes along in a header (for our own served models).
        extra_body: More fields for every request's body, in the REST API's spelling.

    Raises:
        ConfigError: If a variable is not set.
    """

    def __init__(
        self,
        name: str,
        model_id: str,
        api_key_env: str | None = None,
        *,
        vertexai: bool = False,
        project_env: str | None = None,
        location_env: str | None = None,
        base_url: str | None = None,
        api_version: str | None = None,
        temperature: float | None = 0.0,
        max_tokens: int | None = None,
        timeout_s: float = 300.0,
        max_reply_bytes: int = MOST_REPLY_BYTES,
        price: Price | None = None,
        send_role: bool = False,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        key = None if vertexai else read_key(name, api_key_env)
        project = read_variable(name, project_env) if vertexai and project_env else None
        location = read_variable(name, location_env) if vertexai and location_env else None
        from google import genai  # 1.1 s of CPU: only where a model is really built
        from google.genai import types

        self.name = name
        self.model_id = model_id
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.price = price
        self.send_role = send_role
        self._key = key
        self._fixed = dict(extra_body or {})
        self._tools = ToolLists(wire_tools)
        self._signatures: dict[str, str] = {}
        self._types = types
        options = types.HttpOptions(
            base_url=base_url,
            api_version=api_version,
            timeout=int(timeout_s * 1000),
            httpx_client=bounded_client(None, Bounds(timeout_s, max_reply_bytes), key),
        )
        # Kept for the model's lifetime: the SDK closes a client that nobody refers to any more.
        self._client = (
            genai.Client(vertexai=True, project=project, location=location, http_options=options)
            if vertexai
            else genai.Client(vertexai=False, api_key=key or "none", http_options=options)
        )

    def complete(self, request: ChatRequest) -> ChatReply:
        """Send one HTTP request.

        Raises:
            ModelError: If it fails or the reply is not one.
        """
        try:
            response = self._client.models.generate_content(
                model=self.model_id,
                contents=_PLACEHOLDER,  # type: ignore[arg-type]  # a plain content, as the API spells it
                config=self._config(request),
            )
        except Exception as error:  # noqa: BLE001 - translated, or raised again
            raise transport_error(error) or error from None
        http = response.sdk_http_response
        reply, signatures = read_reply((http.body if http else None) or "{}", self.price, self._key)
        self._remember(signatures)
        return reply

    def keepsake(self, reply: ChatReply) -> Any:
        """The thought signatures of a reply's calls, to be stored with it in a cache; JSON-ready."""
        calls = reply.message["tool_calls"] or ()
        return {call.id: self._signatures[call.id] for call in calls if call.id in self._signatures} or None

    def restore(self, keepsake: Any) -> None:
        """Take back what `keepsake` gave: a reply with these calls was read from a cache.

        Raises:
            ValueError: If it is anything else.
        """
        if not isinstance(keepsake, dict) or not all(isinstance(text, str) for text in keepsake.values()):
            raise ValueError("thought signatures are texts by call id")
        self._remember(keepsake)

    def _remember(self, signatures: Mapping[str, str]) -> None:
        self._signatures.update(signatures)
        while len(self._signatures) > _MOST_SIGNATURES:
            self._signatures.pop(next(iter(self._signatures)), None)

    def _config(self, request: ChatRequest) -> Any:
        # The body goes in as `extra_body`, so that the SDK does not rebuild every schema and message as
        # its own types on each call; it still finds the address, signs, sends and raises its errors.
        headers = {ROLE_HEADER: request.role} if self.send_role else None
        return self._types.GenerateContentConfig(
            automatic_function_calling=self._types.AutomaticFunctionCallingConfig(disable=True),
            automatic_continuation=False,
            should_return_http_response=True,
            http_options=self._types.HttpOptions(headers=headers, extra_body=self._body(request)),
        )

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"contents": wire_contents(request.messages, self._signatures)}
        if prompt := system_text(request.messages):
            body["systemInstruction"] = {"parts": [{"text": prompt}]}
        if request.tools:
            body["tools"] = self._tools.get(request.tools)
            body["toolConfig"] = {"functionCallingConfig": {"mode": request.tool_choice.upper()}}
        body["generationConfig"] = self._generation(request)
        return {**body, **{k: v for k, v in self._fixed.items() if k != "generationConfig"}}

    def _generation(self, request: ChatRequest) -> dict[str, Any]:
        config: dict[str, Any] = {}
        if self.temperature is not None:
            asked = request.temperature
            config["temperature"] = self.temperature if asked is None else asked
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            config["maxOutputTokens"] = max_tokens
        if request.reply_schema is not None and not request.tools:  # Gemini refuses both together.
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = dict(request.reply_schema)
        return config | dict(self._fixed.get("generationConfig", {}))
