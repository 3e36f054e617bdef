"""`GoogleModel`: Gemini through Google's SDK, with an API key or on Vertex AI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec
from agentsys.models.providers.google_wire import read_gemini_reply, gemini_contents, gemini_tools
from agentsys.models.providers.sdk_model import SdkModel, read_env_variable
from agentsys.models.providers.wire_text import system_text

_MAX_SIGNATURES = 50_000
"""Thought signatures kept (1-4 kB each). Only those of conversations under way are needed."""

_PLACEHOLDER_CONTENTS = [{"role": "user", "parts": [{"text": "-"}]}]
"""Stands where the SDK wants contents; the real ones replace it in the body."""


@dataclass(repr=False, eq=False, kw_only=True)
class GoogleModel(SdkModel):
    """A model behind Google's SDK.

    Its `base_url` is given without version, `max_tokens` counts thoughts too, and `extra_body` is spelled
    as in the REST API.
    """

    api_key_env: str | None = field(default=None, kw_only=False)
    """Variable that holds the key; None on Vertex AI or for a server that wants none."""
    vertexai: bool = False
    """Whether to go through Vertex AI, with Google Cloud's own credentials."""
    project_env: str | None = None
    """Variable that holds the Google Cloud project; Vertex AI only."""
    location_env: str | None = None
    """Variable that holds its location; Vertex AI only."""
    api_version: str | None = None
    """API version in the address; None for the SDK's default."""
    thinking_level: str | None = None
    """`minimal`, `low`, `medium` or `high` (Gemini 3); None: not sent, the model's own applies."""
    thinking_budget: int | None = None
    """Most tokens of thoughts, 0 for none, -1 for as many as the model likes (Gemini 2.5); None: not sent."""
    demands_signatures: bool = False
    """Whether calls without a thought signature are refused, as Gemini 3 does: those that a defense made up
    are then sent with Google's stand-in."""

    def __post_init__(self) -> None:
        self._signatures: dict[str, str] = {}
        super().__post_init__()
        self.warm_up()  # at once, as it may lack a variable

    def _read_key(self) -> str | None:
        return None if self.vertexai else super()._read_key()

    def _make_client(self) -> Any:
        project, location = (
            read_env_variable(self.name, variable) if self.vertexai and variable else None
            for variable in (self.project_env, self.location_env)
        )
        import httpx2
        from google import genai  # 1.1 s of CPU: only where a model is really built
        from google.genai import types

        self._types = types
        options = types.HttpOptions(
            base_url=self.base_url,
            api_version=self.api_version,
            timeout=int(self.timeout_s * 1000),
            httpx_client=self._http_client(httpx2.Client),
        )
        if self.vertexai:
            return genai.Client(vertexai=True, project=project, location=location, http_options=options)
        return genai.Client(vertexai=False, api_key=self._key or "none", http_options=options)

    def _encode_tools(self, tools: Sequence[ToolSpec]) -> Any:
        return gemini_tools(tools)

    def _send(self, request: ChatRequest) -> Any:
        # The SDK closes a client that nobody refers to any more, so it is kept for the model's lifetime.
        config = self._request_config(request)
        return self._client.models.generate_content(model=self.model_id, contents=_PLACEHOLDER_CONTENTS, config=config)

    def _read_reply(self, answer: Any, request: ChatRequest) -> ChatReply:
        http = answer.sdk_http_response
        reply, signatures = read_gemini_reply((http.body if http else None) or "{}", self.price, self._key)
        self._remember_signatures(signatures)
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
        self._remember_signatures(keepsake)

    def _remember_signatures(self, signatures: Mapping[str, str]) -> None:
        self._signatures.update(signatures)
        while len(self._signatures) > _MAX_SIGNATURES:
            self._signatures.pop(next(iter(self._signatures)), None)

    def _request_config(self, request: ChatRequest) -> Any:
        # The body goes in as `extra_body`, so that the SDK does not rebuild every schema and message as
        # its own types on each call; it still finds the address, signs, sends and raises its errors.
        headers = self._role_header(request) or None
        return self._types.GenerateContentConfig(
            automatic_function_calling=self._types.AutomaticFunctionCallingConfig(disable=True),
            automatic_continuation=False,
            should_return_http_response=True,
            http_options=self._types.HttpOptions(headers=headers, extra_body=self._body(request)),
        )

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        demands = self.demands_signatures
        contents = gemini_contents(request.messages, self._signatures, demands_signatures=demands)
        body: dict[str, Any] = {"contents": contents}
        if prompt := system_text(request.messages):
            body["systemInstruction"] = {"parts": [{"text": prompt}]}
        if request.tools:
            body["tools"] = self._tools.convert(request.tools)
            body["toolConfig"] = {"functionCallingConfig": {"mode": request.tool_choice.upper()}}
        body["generationConfig"] = self._generation_config(request)
        return {**body, **{k: v for k, v in self._fixed.items() if k != "generationConfig"}}

    def _generation_config(self, request: ChatRequest) -> dict[str, Any]:
        config: dict[str, Any] = {**self._temperature_field(request)}
        if self.thinking_level is not None:
            config["thinkingConfig"] = {"thinkingLevel": self.thinking_level}
        elif self.thinking_budget is not None:
            config["thinkingConfig"] = {"thinkingBudget": self.thinking_budget}
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            config["maxOutputTokens"] = max_tokens
        if request.reply_schema is not None and not request.tools:  # Gemini refuses both together.
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = dict(request.reply_schema)
        return config | dict(self._fixed.get("generationConfig", {}))
