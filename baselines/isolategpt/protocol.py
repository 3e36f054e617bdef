"""What spokes and the hub say to each other: typed messages, each one JSON document.

A spoke has no other way to anything outside it. Both sides hold a `Wire`, which carries bytes: here a call
in the same process; a runner that forks would put a socket in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agentsys.models.chat import ToolSpec

HubConnection = Callable[[bytes], bytes]
"""Carries a spoke's message to the hub and its answer back."""


class _SpokeMessage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    spoke_id: str
    """The spoke that speaks or is spoken to: its app's name."""


class FunctionalitySpec(BaseModel):
    """What a functionality takes and gives."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    request: Mapping[str, Any]
    """JSON schema of a request's body."""
    response: Mapping[str, Any]
    """JSON schema of what comes back."""


class FunctionProbeRequest(_SpokeMessage):
    """Asks who offers a functionality, and in which form it is to be asked for."""

    type: Literal["function_probe_request"] = "function_probe_request"
    requested_functionality: str


class FunctionProbeResponse(_SpokeMessage):
    """The user lets the spoke ask for it."""

    type: Literal["function_probe_response"] = "function_probe_response"
    functionality_offered: FunctionalitySpec


class NoFunctionalityResponse(_SpokeMessage):
    """Nobody offers it."""

    type: Literal["no_functionality_response"] = "no_functionality_response"
    response: str


class FunctionalityDenialResponse(_SpokeMessage):
    """The user, or a limit, does not let it pass."""

    type: Literal["functionality_denial_response"] = "functionality_denial_response"
    response: str


class AppRequest(_SpokeMessage):
    """Asks another app for one thing."""

    type: Literal["app_request"] = "app_request"
    functionality_request: str
    request_body: Mapping[str, Any]


class AppResponse(_SpokeMessage):
    """What the other app answered."""

    type: Literal["app_response"] = "app_response"
    response: str


SpokeRequest = FunctionProbeRequest | AppRequest
HubReply = FunctionProbeResponse | NoFunctionalityResponse | FunctionalityDenialResponse | AppResponse
_REQUESTS: TypeAdapter[SpokeRequest] = TypeAdapter(Annotated[SpokeRequest, Field(discriminator="type")])
_REPLIES: TypeAdapter[HubReply] = TypeAdapter(Annotated[HubReply, Field(discriminator="type")])


def encode_message(message: BaseModel) -> bytes:
    """A message as its JSON document."""
    return message.model_dump_json().encode()


def read_spoke_request(line: bytes) -> SpokeRequest:
    """What a spoke asks.

    Raises:
        ValidationError: If it is no such message (pydantic's).
    """
    return _REQUESTS.validate_json(line)


def read_hub_reply(line: bytes) -> HubReply:
    """What the hub answers.

    Raises:
        ValidationError: If it is no such message (pydantic's).
    """
    return _REPLIES.validate_json(line)


LONGEST_STRICT = 256
"""Characters of a response under `strict_response`, as in the published specifications."""


def specify_tool(tool: ToolSpec, *, strict: bool) -> FunctionalitySpec:
    """What others are told of a tool, made from the tool itself."""
    return FunctionalitySpec(
        name=tool.name,
        description=tool.description,
        request=tool.parameters,
        response=build_response_schema(strict=strict),
    )


def build_response_schema(*, strict: bool) -> Mapping[str, Any]:
    """The JSON schema of every response: text, and not none."""
    most = {"maxLength": LONGEST_STRICT} if strict else {}
    return {"type": "string", "minLength": 1, **most}


def fits_schema(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a value is what a JSON schema asks for."""
    return bool(Draft202012Validator(schema).is_valid(value))
