"""`SdkModel`: what every model behind a vendor's SDK shares: options, key, one HTTP request per call.

Names of tools and parameters as every provider takes them, and back.

Tools of MCP servers may be called `files.read`, their parameters `max-results`, and a model may call what no
provider takes back in the history. Such names alone are written otherwise on the wire.
"""

from __future__ import annotations

import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import lru_cache
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.errors import ConfigError, Unavailable
from agentsys.models.chat import ChatReply, ChatRequest, ModelError, ToolSpec, write_role
from agentsys.models.pricing import Price
from agentsys.models.providers.bounded_http import MAX_REPLY_BYTES, ExchangeLimits, make_bounded_client
from agentsys.models.providers.reply_reader import Reading
from agentsys.models.providers.sdk_errors import make_refused_setting_error, translate_error
from agentsys.models.providers.wire_parts import as_mapping

ROLE_HEADER = "X-Agentsys-Role"
"""Carries `ChatRequest.role`, so that a simulated model we serve can play the role; never prompt text. Sent
only where a model's YAML says `send_role: true`."""


@dataclass(repr=False, eq=False)
class SdkModel(ABC):
    """A model behind a vendor's SDK. The fields are what its YAML may say; a provider adds its own.

    Raises:
        Unavailable: If the key's variable is not set.
    """

    name: str
    """The model's name in configs, records and tables."""
    model_id: str
    """The provider's exact id."""
    api_key_env: str | None
    """Variable that holds the key; None for a server that wants none."""
    _: KW_ONLY
    base_url: str | None = None
    """Address of another server; None for the provider's."""
    temperature: float | None = 0.0
    """Sent as it is, 0.0 too; None: never sent, whatever a request asks (reasoning models refuse it)."""
    max_tokens: int | None = None
    """Most output tokens; None: not sent."""
    timeout_s: float = 300.0
    """Seconds until a whole reply must be there."""
    max_reply_bytes: int = MAX_REPLY_BYTES
    """Longest body of a reply that is read."""
    price: Price | None = None
    """Gives the cost of each call; None: not known."""
    send_role: bool = False
    """Whether the asking role goes along in a header (for our own served models)."""
    extra_body: Mapping[str, Any] | None = None
    """More fields for every request's body."""

    def __post_init__(self) -> None:
        self._key = self._read_key()
        self._fixed = dict(self.extra_body or {})
        self._client_lock = threading.Lock()
        self._shared_client: Any = None

    @property
    def _client(self) -> Any:
        """The SDK's client, made when it is first asked for; all threads send with it."""
        with self._client_lock:
            if self._shared_client is None:
                self._shared_client = self._make_client()
            return self._shared_client

    def warm_up(self) -> None:
        """Import the SDK and make the client, which the first request would wait for."""
        self._client  # noqa: B018

    def complete(self, request: ChatRequest) -> ChatReply:
        """Send one HTTP request.

        A reply that ran into a bound on its tokens is what the model said, and says that it was cut.

        Raises:
            ModelError: If it fails or the reply is not one.
            ConfigError: If the model does not take one of the YAML's settings.
        """
        names = WireNames.find(request) if self._names_tools else None
        asked = request if names is None else names.write_request(request)
        try:
            answer = self._send(asked)
        except Exception as error:  # noqa: BLE001 - translated, or raised again
            translated = self._translate_error(error)
            refused = (
                make_refused_setting_error(self.name, translated)
                if isinstance(translated, ModelError)
                else None
            )
            raise refused or translated from None
        reply = self._read_reply(answer, Reading(asked, self.price, self._key, self.max_tokens))
        return reply if names is None else names.read_reply(reply)

    @property
    def _names_tools(self) -> bool:
        """True if tools and calls stand in fields of the wire, for whose names providers have rules."""
        return True

    @abstractmethod
    def _make_client(self) -> Any:
        """The SDK's client. Imports the SDK here, where a model is really built: that takes a second."""

    @abstractmethod
    def _send(self, request: ChatRequest) -> Any:
        """Send one request and give back what the SDK does."""

    @abstractmethod
    def _read_reply(self, answer: Any, reading: Reading) -> ChatReply:
        """The SDK's answer as a reply.

        Raises:
            ModelError: If it is not one.
        """

    def _read_key(self) -> str | None:
        return None if self.api_key_env is None else read_env_variable(self.name, self.api_key_env)

    def _translate_error(self, error: Exception) -> Exception:
        """Our error for the SDK's; the same one where it is neither the server's doing nor the network's."""
        return translate_error(error, self._key) or error

    def _make_http_client(self, like: type[Any]) -> Any:
        """The HTTP client to hand to the SDK, bounded in time and size; of the library of such a class."""
        return make_bounded_client(like, ExchangeLimits(self.timeout_s, self.max_reply_bytes, self._key))

    def _build_temperature_field(self, request: ChatRequest) -> dict[str, float]:
        """The body's field `temperature`; empty where none is to be sent."""
        if self.temperature is None:
            return {}
        return {"temperature": self.temperature if request.temperature is None else request.temperature}

    def _build_role_header(self, request: ChatRequest) -> dict[str, str]:
        return {ROLE_HEADER: write_role(request)} if self.send_role else {}


class PostingModel(SdkModel):
    """A model whose SDK posts a body that we encoded.

    OpenAI's and Anthropic's SDKs come from one generator. Their own calls walk through every tool schema each
    time, 4.6 ms of CPU for Workspace's 24 tools, and what their `post` does is the same each time.
    """

    @property
    @abstractmethod
    def _path(self) -> str:
        """Path of the address that requests go to, behind the client's base address."""

    @abstractmethod
    def _build_body(self, request: ChatRequest) -> bytes:
        """The request's body, as JSON."""

    def _send(self, request: ChatRequest) -> bytes:
        headers = {"Content-Type": "application/json", **self._build_role_header(request)}
        data: bytes = self._client.post(
            self._path, cast_to=bytes, content=self._build_body(request), options={"headers": headers}
        )
        return data

    def _make_sdk(
        self, sdk: type[Any], like: type[Any], default_url: str, headers: Mapping[str, str] | None = None
    ) -> Any:
        return sdk(
            # The SDK wants some key; the address is always given, or it would read it from the environment.
            api_key=self._key or "none",
            base_url=self.base_url or default_url,
            default_headers=headers,
            max_retries=0,
            timeout=self.timeout_s,
            http_client=self._make_http_client(like),
        )


def read_env_variable(model: str, variable: str) -> str:
    """The value of an environment variable that a model cannot do without.

    Raises:
        Unavailable: If it is not set or blank.
    """
    value = os.environ.get(variable, "").strip()
    if not value:
        raise Unavailable(
            f"Model '{model}' needs the variable {variable}: export {variable}=... and run again.",
            needs=variable,
        )
    return value


_TAKEN_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_TAKEN_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NOT_TAKEN = re.compile(r"[^A-Za-z0-9_]")
_LONGEST = 64


@dataclass(frozen=True)
class WireNames:
    """Names of one request as they are written on the wire."""

    tools: Mapping[str, str]
    """Name of a tool -> its name on the wire."""
    parameters: Mapping[str, Mapping[str, str]]
    """Name of a tool -> the same of its parameters, for tools with any that are not taken."""

    @classmethod
    def find(cls, request: ChatRequest) -> WireNames | None:
        """The names of a request; None where all are taken as they are."""
        offered = {tool.name: tuple(as_mapping(tool.parameters.get("properties"))) for tool in request.tools}
        parameters = {
            tool: written
            for tool, names in offered.items()
            if (written := _write_names(names, _TAKEN_PARAMETER))
        }
        called = [call.function for message in request.messages for call in _list_calls(message)]
        names = tuple(dict.fromkeys([*offered, *called]))
        tools = _write_names(names, _TAKEN_TOOL)
        return cls(tools or {name: name for name in names}, parameters) if tools or parameters else None

    def write_request(self, request: ChatRequest) -> ChatRequest:
        """The request with the names of the wire."""
        return replace(
            request,
            tools=[self._write_tool(tool) for tool in request.tools],
            messages=[self._write_message(message) for message in request.messages],
        )

    def read_reply(self, reply: ChatReply) -> ChatReply:
        """The reply with the names of the request."""
        tools = {written: name for name, written in self.tools.items()}
        calls = []
        for call in reply.message["tool_calls"] or ():
            name = tools.get(call.function, call.function)
            own = {written: known for known, written in self.parameters.get(name, {}).items()}
            calls.append(_rename_call(call, name, own))
        return replace(reply, message={**reply.message, "tool_calls": calls or None})

    def _write_tool(self, tool: ToolSpec) -> ToolSpec:
        schema, names = tool.parameters, self.parameters.get(tool.name)
        if names is not None:
            renamed = {names[name]: value for name, value in schema["properties"].items()}
            required = [names.get(name, name) for name in schema.get("required", ())]
            schema = {**schema, "properties": renamed, **({"required": required} if required else {})}
        return replace(tool, name=self.tools[tool.name], parameters=schema)

    def _write_message(self, message: ChatMessage) -> ChatMessage:
        if message["role"] == "assistant" and message["tool_calls"]:
            return {**message, "tool_calls": [self._write_call(call) for call in message["tool_calls"]]}
        if message["role"] == "tool":
            return {**message, "tool_call": self._write_call(message["tool_call"])}
        return message

    def _write_call(self, call: FunctionCall) -> FunctionCall:
        return _rename_call(
            call, self.tools.get(call.function, call.function), self.parameters.get(call.function, {})
        )


def _rename_call(call: FunctionCall, name: str, parameters: Mapping[str, str]) -> FunctionCall:
    args = {parameters.get(key, key): value for key, value in call.args.items()}
    return call.model_copy(update={"function": name, "args": args})


def _list_calls(message: ChatMessage) -> Iterable[FunctionCall]:
    if message["role"] == "tool":
        return [message["tool_call"]]
    return (message["tool_calls"] or ()) if message["role"] == "assistant" else ()


@lru_cache(maxsize=10_000)
def _write_names(known: tuple[str, ...], taken: re.Pattern[str]) -> Mapping[str, str]:
    """Each name as it is written: as it is where it is taken, otherwise as one that none of the others has.

    Empty where all are taken.
    """
    written = {name: name for name in known if taken.fullmatch(name)}
    if len(written) == len(known):
        return {}
    for name in known:
        if name not in written:
            plain = _NOT_TAKEN.sub("_", name)[: _LONGEST - 4]
            plain = plain if taken.fullmatch(plain) else f"_{plain}"
            tries = (plain if number == 1 else f"{plain}_{number}" for number in range(1, len(known) + 2))
            written[name] = next(one for one in tries if one not in written.values())
    return written


def refuse_environment(model: str, field: str, variables: Iterable[str]) -> None:
    """Refuse variables from which a library reads what a record takes from the model's YAML.

    Args:
        model: Name of the model.
        field: A field that its YAML leaves open.
        variables: Variables that the library would read in its place.

    Raises:
        ConfigError: If one is set. Its value is not repeated, as an address may hold a password.
    """
    if variable := next(filter(os.environ.get, variables), None):
        raise ConfigError(
            f"Model '{model}': the variable {variable} decides who answers, and no record would say so. "
            f'Unset it, or write model.{field}="${variable}".'
        )
