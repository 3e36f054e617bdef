"""`GoogleModel`: Gemini through Google's SDK, with an API key or on Vertex AI; wire format first."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, ChatToolResultMessage

from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, Usage
from agentsys.models.providers import wire_parts
from agentsys.models.providers.reply_reader import (
    PLAIN_READING,
    RawCall,
    RawReply,
    Reading,
    list_call_ids,
)
from agentsys.models.providers.sdk_model import SdkModel, read_env_variable, refuse_environment
from agentsys.models.providers.wire_parts import as_mapping, make_malformed_reply_error, read_system_text

OWN_ID_PREFIX = "agentsys-"
"""Ids we made because the API gave none start so; they are not sent back."""


GeminiPart = dict[str, Any]


UNSIGNED_CALL = "skip_thought_signature_validator"
"""Google's stand-in for the thought signature of a call that no Gemini made: a defense did, or it is the
first of a turn whose signed call a defense took away."""


def build_gemini_contents(
    messages: Sequence[ChatMessage], signatures: Mapping[str, str], *, demands_signatures: bool = False
) -> list[dict[str, Any]]:
    """The conversation without system messages; the results of one turn's calls stand together, as the API demands.

    A call goes back with the thought signature under its id. With `demands_signatures`, as Gemini 3 wants it, the
    first call of each turn must have one.
    """
    contents: list[dict[str, Any]] = []
    in_results = False
    for message in messages:
        if message["role"] == "system":
            continue
        if message["role"] == "tool":
            part = _build_result_part(message)
            if in_results:
                contents[-1]["parts"].append(part)
            else:
                contents.append({"role": "user", "parts": [part]})
        else:
            role = "model" if message["role"] == "assistant" else "user"
            parts = _build_wire_parts(message, signatures)
            first = next((part for part in parts if "functionCall" in part), None)
            if demands_signatures and first is not None:
                first.setdefault("thoughtSignature", UNSIGNED_CALL)
            contents.append({"role": role, "parts": parts})
        in_results = message["role"] == "tool"
    return contents


def _build_wire_parts(message: ChatMessage, signatures: Mapping[str, str]) -> list[GeminiPart]:
    text = wire_parts.read_visible_text(message)
    calls = (message["tool_calls"] or []) if message["role"] == "assistant" else []
    parts: list[GeminiPart] = [{"text": text}] if text or not calls else []
    return parts + [_build_call_part(call, signatures) for call in calls]


def _build_call_part(call: FunctionCall, signatures: Mapping[str, str]) -> GeminiPart:
    without_id = {"name": call.function, "args": json.loads(wire_parts.write_arguments_json(call))}
    part: GeminiPart = {"functionCall": _with_id(without_id, call.id)}
    signature = signatures.get(call.id or "")
    return part | {"thoughtSignature": signature} if signature else part


def _build_result_part(message: ChatToolResultMessage) -> GeminiPart:
    field = "output" if message["error"] is None else "error"
    call = message["tool_call"]
    answer = {"name": call.function, "response": {field: wire_parts.read_result_text(message)}}
    return {"functionResponse": _with_id(answer, message["tool_call_id"] or call.id)}


def _with_id(value: dict[str, Any], call_id: str | None) -> dict[str, Any]:
    return {"id": call_id, **value} if call_id and not call_id.startswith(OWN_ID_PREFIX) else value


def read_gemini_reply(data: object, reading: Reading = PLAIN_READING) -> tuple[ChatReply, dict[str, str]]:
    """Read a reply (see `Reading.read`), and its calls' thought signatures by call id.

    Raises:
        ModelError: `CONTENT_REFUSED` besides if its prompt was blocked.
    """
    signatures: dict[str, str] = {}
    parse = partial(_read_candidates, signatures=signatures, taken=list_call_ids(reading.request))
    return reading.read(data, "candidates", _parse_usage, parse), signatures


def _read_candidates(
    body: Mapping[str, Any], signatures: dict[str, str], taken: Collection[str | None]
) -> RawReply:
    """Read all candidates, calls under ids not `taken`; their thought signatures are put into `signatures`."""
    listed = body.get("candidates")
    candidates = [as_mapping(one) for one in listed] if isinstance(listed, list) else []
    if not any(candidates):
        blocked = as_mapping(body.get("promptFeedback")).get("blockReason")
        if blocked:
            raise ModelError(ErrorKind.CONTENT_REFUSED, f"the provider blocked the prompt ({blocked!s:.60})")
        raise make_malformed_reply_error("the reply has no candidates")
    texts, calls = list[str](), list[RawCall]()
    parts = [part for candidate in candidates for part in _list_parts(candidate)]
    ran_code = any("codeExecutionResult" in part for part in parts)
    for part in parts:
        if "functionCall" in part:
            raw = as_mapping(part["functionCall"])
            call_id = str(raw.get("id") or "")
            if not call_id or call_id in taken:
                call_id = f"{OWN_ID_PREFIX}{uuid.uuid4().hex}"
            calls.append(RawCall(raw.get("name"), raw.get("args"), call_id))
            if part.get("thoughtSignature"):
                # A second call of the same id gets another; the first of a turn is the one that needs it.
                signatures.setdefault(call_id, str(part["thoughtSignature"]))
        elif "executableCode" in part and not ran_code:
            # No code execution is on offer: it is a call that the model wrote as code.
            texts.append(f"```tool_code\n{as_mapping(part['executableCode']).get('code')}\n```")
        elif part.get("text") and not part.get("thought"):
            texts.append(str(part["text"]))
    return RawReply(
        [{"type": "text", "content": "".join(texts)}] if texts else [],
        calls,
        reasons=[candidate.get("finishReason") for candidate in candidates],
        words=next((one["finishMessage"] for one in candidates if one.get("finishMessage")), None),
        is_list=True,
    )


def _list_parts(candidate: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = as_mapping(candidate.get("content")).get("parts") or []
    if not isinstance(parts, list):
        raise make_malformed_reply_error("the reply's parts are not a list")
    return [as_mapping(part) for part in parts]


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    # `candidatesTokenCount` leaves the thoughts out; our `completion` has them.
    thoughts = wire_parts.read_token_count(usage.get("thoughtsTokenCount"))
    # Left out where nothing was said.
    answered = usage.get("candidatesTokenCount", 0 if thoughts or usage.get("totalTokenCount") else None)
    # Gateways count as OpenAI does: their total has the thoughts once.
    both = wire_parts.read_token_count(usage.get("promptTokenCount")) + wire_parts.read_token_count(answered)
    apart = 0 if usage.get("totalTokenCount") == both else thoughts
    return wire_parts.make_usage(
        usage.get("promptTokenCount"),
        answered + apart if isinstance(answered, int) else answered,
        extra=wire_parts.read_token_count(usage.get("toolUsePromptTokenCount")),
        cached=wire_parts.read_token_count(usage.get("cachedContentTokenCount")),
        reasoning=thoughts,
    )


_ADDRESS_VARIABLES = {False: "GOOGLE_GEMINI_BASE_URL", True: "GOOGLE_VERTEX_BASE_URL"}
"""Whether it goes through Vertex AI -> the variable from which the SDK would read an address."""
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
        self._signatures_lock = Lock()
        super().__post_init__()
        self.warm_up()  # at once, as it may lack a variable

    def _read_key(self) -> str | None:
        return None if self.vertexai else super()._read_key()

    def _make_client(self) -> Any:
        if self.base_url is None:
            refuse_environment(self.name, "base_url", (_ADDRESS_VARIABLES[self.vertexai],))
        if self.api_version is None:
            refuse_environment(self.name, "api_version", ("GOOGLE_GENAI_API_VERSION",))
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
            httpx_client=self._make_http_client(httpx2.Client),
        )
        if self.vertexai:
            return genai.Client(vertexai=True, project=project, location=location, http_options=options)
        return genai.Client(vertexai=False, api_key=self._key or "none", http_options=options)

    def _send(self, request: ChatRequest) -> Any:
        # The SDK closes a client that nobody refers to any more, so it is kept for the model's lifetime.
        config = self._build_request_config(request)
        return self._client.models.generate_content(
            model=self.model_id, contents=_PLACEHOLDER_CONTENTS, config=config
        )

    def _read_reply(self, answer: Any, reading: Reading) -> ChatReply:
        http = answer.sdk_http_response
        reply, signatures = read_gemini_reply((http.body if http else None) or "{}", reading)
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
        # Threads share the model: while one looks for the oldest, none may add another.
        with self._signatures_lock:
            self._signatures.update(signatures)
            while len(self._signatures) > _MAX_SIGNATURES:
                del self._signatures[next(iter(self._signatures))]

    def _build_request_config(self, request: ChatRequest) -> Any:
        # The body goes in as `extra_body`, so that the SDK does not rebuild every schema and message as
        # its own types on each call; it still finds the address, signs, sends and raises its errors.
        headers = self._build_role_header(request) or None
        return self._types.GenerateContentConfig(
            automatic_function_calling=self._types.AutomaticFunctionCallingConfig(disable=True),
            automatic_continuation=False,
            should_return_http_response=True,
            http_options=self._types.HttpOptions(headers=headers, extra_body=self._build_body(request)),
        )

    def _build_body(self, request: ChatRequest) -> dict[str, Any]:
        demands = self.demands_signatures
        contents = build_gemini_contents(request.messages, self._signatures, demands_signatures=demands)
        body: dict[str, Any] = {"contents": contents}
        if prompt := read_system_text(request.messages):
            body["systemInstruction"] = {"parts": [{"text": prompt}]}
        if request.tools:
            declarations = [
                {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
                for tool in request.tools
            ]
            body["tools"] = [{"functionDeclarations": declarations}]
            body["toolConfig"] = {"functionCallingConfig": {"mode": request.tool_choice.upper()}}
        body["generationConfig"] = self._build_generation_config(request)
        return {**body, **{k: v for k, v in self._fixed.items() if k != "generationConfig"}}

    def _build_generation_config(self, request: ChatRequest) -> dict[str, Any]:
        config: dict[str, Any] = {**self._build_temperature_field(request)}
        if self.thinking_level is not None:
            config["thinkingConfig"] = {"thinkingLevel": self.thinking_level}
        elif self.thinking_budget is not None:
            config["thinkingConfig"] = {"thinkingBudget": self.thinking_budget}
        max_tokens = request.max_tokens or self.max_tokens
        if max_tokens is not None:
            config["maxOutputTokens"] = max_tokens
        schema = request.schema_to_send(structured=False)
        if schema is not None and not request.tools:  # Gemini refuses both together.
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = dict(schema)
        return config | dict(self._fixed.get("generationConfig", {}))
