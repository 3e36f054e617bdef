"""`LiteLLMModel`: every other provider, through litellm (an extra: `pip install 'agentsys-bench[litellm]'`).

Only a fallback: litellm reports a lost connection as a server error 500 and takes 5 s to import.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, dropwhile
from typing import Any

from agentsys.base.json_values import read_json_data
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
from agentsys.models.providers.sdk_model import SdkModel, refuse_environment

_KIND_BY_CLASS = {
    "ContextWindowExceededError": ErrorKind.CONTEXT_LENGTH,
    "ContentPolicyViolationError": ErrorKind.CONTENT_REFUSED,
    "Timeout": ErrorKind.TIMEOUT,
    "JSONSchemaValidationError": ErrorKind.MALFORMED_REPLY,
}
_THINKERS = ("deepseek/", "moonshot/")
"""Providers that refuse calls without their thoughts; in place of a missing one litellm (1.105) sends a blank."""


Arguments = Mapping[str, Any]
"""Those of `litellm.completion`, in OpenAI's form."""


def _has_calls_without_tools(asked: Arguments) -> bool:
    return "tools" not in asked and any(message.get("tool_calls") for message in asked["messages"])


def _has_empty_text(asked: Arguments) -> bool:
    texts = (m.get("content") for m in asked["messages"] if m["role"] != "tool" and not m.get("tool_calls"))
    return any(not str(text or "").strip() for text in texts)


def _has_late_system_text(asked: Arguments) -> bool:
    roles = [message["role"] for message in asked["messages"]]
    return "system" in dropwhile(lambda role: role == "system", roles)


def _repeats_an_id(asked: Arguments) -> bool:
    turns = ([call["id"] for call in message.get("tool_calls", ())] for message in asked["messages"])
    return any(len(set(ids)) < len(ids) for ids in turns)


def _has_object_result(asked: Arguments) -> bool:
    results = (message["content"] for message in asked["messages"] if message["role"] == "tool")
    return any(isinstance(read_json_data(result), dict) for result in results)


_NAMED, _LISTED = ("properties", "patternProperties", "$defs", "definitions"), ("allOf", "anyOf", "oneOf")
"""Keywords that hold schemas, by name and in a list."""


def _spell_booleans(schema: Any) -> Any:
    """The same schema without `true` and `false` in a schema's stead, at which litellm (1.110) ends for Gemini."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    if not isinstance(schema, Mapping):
        return schema
    spelled = dict(schema)
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            spelled[key] = {name: _spell_booleans(each) for name, each in value.items()}
        elif key in _LISTED and isinstance(value, list):
            spelled[key] = [_spell_booleans(each) for each in value]
        elif key == "items":
            spelled[key] = _spell_booleans(value)
    return spelled


def _find_schemas(schema: Any) -> Iterator[Mapping[str, Any]]:
    """A schema, and all that it holds."""
    if isinstance(schema, Mapping):
        yield schema
        named = [schema[key].values() for key in _NAMED if isinstance(schema.get(key), Mapping)]
        listed = [schema[key] for key in _LISTED if isinstance(schema.get(key), list)]
        for part in (*chain(*named, *listed), schema.get("items")):
            yield from _find_schemas(part)


def _find_tool_schemas(asked: Arguments) -> Iterator[Mapping[str, Any]]:
    for tool in asked.get("tools", ()):
        yield from _find_schemas(tool["function"]["parameters"])


def _has_untyped_argument(asked: Arguments) -> bool:
    return any(_TYPING.isdisjoint(schema) for schema in _find_tool_schemas(asked))


def _has_lost_keyword(asked: Arguments) -> bool:
    return any(not _LOST_BY_GEMINI.isdisjoint(schema) for schema in _find_tool_schemas(asked))


_TYPING = {"type", "$ref", "const", "allOf", "anyOf", "oneOf"}
_LOST_BY_GEMINI = {
    *("additionalProperties", "allOf", "const", "examples", "exclusiveMaximum", "exclusiveMinimum"),
    *("multipleOf", "not", "oneOf", "patternProperties", "prefixItems", "uniqueItems"),
}
REWRITES: Mapping[str, Mapping[str, Callable[[Arguments], bool]]] = {
    "anthropic": {
        "a request without tools offers one of litellm's own": _has_calls_without_tools,
        "an empty text is a notice of litellm's in brackets": _has_empty_text,
        "a late system text is the user's, after a sentence of litellm's": _has_late_system_text,
        "of calls with one id the first alone is left": _repeats_an_id,
    },
    "gemini": {
        "a late system text stands before the conversation": _has_late_system_text,
        "a result that is a JSON object is fields, not a text": _has_object_result,
        "schemas of tools lose keywords": _has_lost_keyword,
        "what has no type is an object": _has_untyped_argument,
    },
}
"""What litellm (1.105 to 1.110) changes: provider -> what its model reads instead -> whether a request has such things.

docs/models.md has the table, tests/contracts a request for each line.
"""


_OPENAI = "https://api.openai.com/v1"


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
        self._address = self.base_url or self._find_address(litellm)
        if litellm.client_session is None:
            import httpx

            limits = ExchangeLimits(self.timeout_s, self.max_reply_bytes, None)
            litellm.client_session = make_bounded_client(httpx.Client, limits)
        return litellm

    def _find_address(self, litellm: Any) -> str | None:
        """Find the address to ask; None for the provider's own.

        Raises:
            ConfigError: If a variable would choose the server: one named like the provider, or one with its address.
        """
        try:
            _, provider, _, found = litellm.get_llm_provider(self.model_id)
        except litellm.exceptions.BadRequestError:
            return None  # an unknown provider: the first question says so
        names = {f"{provider}_{end}".upper() for end in ("api_base", "base_url", "url")}
        # FIREWORKS_API_BASE of `fireworks_ai`; OLLAMA_HOST may hold the same address, and litellm does not read it.
        addresses = {name for name in os.environ if name.endswith(("API_BASE", "BASE_URL"))}
        holding = {name for name in addresses if found and os.environ[name] == found}
        refuse_environment(self.name, "base_url", sorted(names | holding))
        # Set here, as `agentsys probe` later gives the tested agent's client an address by OPENAI_BASE_URL.
        return _OPENAI if provider == "openai" else None

    def _send(self, request: ChatRequest) -> Any:
        # A copy: litellm 1.105 writes its changes into the schemas that it is given, which are the tools' own.
        return self._client.completion(**copy.deepcopy(self._build_completion_arguments(request)))

    def _read_reply(self, answer: Any, reading: Reading) -> ChatReply:
        reply = read_openai_reply(answer.model_dump(), reading)
        asked = self._build_completion_arguments(reading.request)
        rewrites = REWRITES.get(self._client.get_llm_provider(self.model_id)[1], {})
        notes = (f"litellm: {note}" for note, applies in rewrites.items() if applies(asked))
        return replace(reply, notes=(*reply.notes, *notes))

    def _build_completion_arguments(self, request: ChatRequest) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self.model_id,
            "messages": build_openai_messages(request.messages, "system", self._reasoning_field),
            "timeout": self.timeout_s,
            "num_retries": 0,
            "max_retries": 0,
            "api_key": self._key,
            "api_base": self._address,
            "max_tokens": request.max_tokens or self.max_tokens,
            **self._build_temperature_field(request),
        }
        if request.tools:
            tools = [replace(tool, parameters=_spell_booleans(tool.parameters)) for tool in request.tools]
            arguments |= {"tools": build_openai_tools(tools), "tool_choice": request.tool_choice}
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
    # Without these it asks the network for its price table on import, and again from a thread, and for Anthropic's
    # names of previews.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    try:
        import litellm
    except ImportError:
        raise make_not_installed_error(f"Model '{name}'", ["litellm"], "litellm") from None
    return litellm
