"""`Spoke`: the agent of one app, in a conversation of its own, and the messages between spokes and hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from agentdojo.types import ChatMessage
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, system, user
from agentsys.models.prompted_tools import (
    FINISH_ACTION,
    Action,
    ActionSyntaxError,
    read_action,
    text_before_observation,
    write_observation,
    write_offer,
)
from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import span
from baselines.isolategpt.app_plan import SpokeApp
from baselines.isolategpt.prompts import (
    ILL_FORMED,
    NO_SUCH_ACTION,
    NOT_AVAILABLE,
    OUT_OF_TURNS,
    REMINDER,
    SEND_AGAIN,
    SPOKE,
    UNREADABLE,
)

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


SPOKE_ROLE = "agent"
SPOKE_SPAN = "spoke"


@dataclass
class Spoke:
    """The agent of one app; with no tools of its own, the one that routes.

    Args:
        app: What it runs.
        others: Functionality of another app -> what is told of it.
        model: The model behind it.
        run_tool: Runs a tool of the app: name and arguments -> text.
        wire: To the hub.
        max_iterations: Most replies of one run.
    """

    app: SpokeApp
    others: Mapping[str, str]
    model: ChatModel
    run_tool: Callable[[str, dict[str, Any]], str]
    wire: HubConnection
    max_iterations: int
    specs: dict[str, FunctionalitySpec] = field(default_factory=dict)
    """What it has learned of other apps in this task."""

    def answer_question(self, question: str) -> str:
        """Work on a question, in its tags, in a conversation of its own, and give the final answer.

        Raises:
            ModelError: If the model gave no reply.
        """
        offer = write_offer(self.app.tools, self.others)
        messages = [system(f"{SPOKE}\n\n{offer}"), user(f"{question}\n\n{REMINDER}")]
        with span(SPOKE_SPAN, self.app.name) as opened:
            opened.messages = messages
            for _ in range(self.max_iterations):
                said = text_before_observation(self._ask(messages))
                messages.append(assistant(said, []))
                outcome = self._read_outcome(said)
                if outcome.is_answer:
                    return outcome.text
                messages.append(user(write_observation(outcome.text)))
            return OUT_OF_TURNS

    def _ask(self, messages: list[ChatMessage]) -> str:
        return visible_text(self.model.complete(ChatRequest(tuple(messages), role=SPOKE_ROLE)).message)

    def _read_outcome(self, said: str) -> SpokeTurn:
        try:
            action = read_action(said)
        except ActionSyntaxError:
            return SpokeTurn(UNREADABLE)
        if action is None:
            return SpokeTurn(said, is_answer=True)
        if action.name == FINISH_ACTION:
            return SpokeTurn(_answer_text(action.input), is_answer=True)
        return SpokeTurn(self._observe_action(action))

    def _observe_action(self, action: Action) -> str:
        """What came of an action that is no answer."""
        if action.name in self.others:
            return self._collaborate(action)
        if self.app.find_tool(action.name) is None:
            return NO_SUCH_ACTION.format(name=action.name, names=", ".join(self._action_names()))
        if not isinstance(action.input, dict):
            return UNREADABLE
        return self.run_tool(action.name, action.input)

    def _action_names(self) -> list[str]:
        return [FINISH_ACTION, *(tool.name for tool in self.app.tools), *self.others]

    def _collaborate(self, action: Action) -> str:
        """Ask the hub for another app's functionality: probe, hold the input against the form, request."""
        spec = self.specs.get(action.name)
        if spec is None:
            probe = FunctionProbeRequest(spoke_id=self.app.name, requested_functionality=action.name)
            reply = read_hub_reply(self.wire(encode_message(probe)))
            if not isinstance(reply, FunctionProbeResponse):
                return NOT_AVAILABLE.format(name=action.name, reason=_denial_reason(reply))
            spec = self.specs[action.name] = reply.functionality_offered
        if not isinstance(action.input, dict) or not fits_schema(action.input, spec.request):
            return SEND_AGAIN.format(name=action.name, schema=json.dumps(spec.request))
        request = AppRequest(
            spoke_id=self.app.name, functionality_request=action.name, request_body=action.input
        )
        reply = read_hub_reply(self.wire(encode_message(request)))
        if not isinstance(reply, AppResponse):
            return NOT_AVAILABLE.format(name=action.name, reason=_denial_reason(reply))
        return (
            reply.response
            if fits_schema(reply.response, spec.response)
            else ILL_FORMED.format(name=action.name)
        )


@dataclass(frozen=True)
class SpokeTurn:
    """What a reply of the model leads to."""

    text: str
    is_answer: bool = False
    """Whether it ends the run; else it is the next observation."""


def _answer_text(answer: object) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _denial_reason(reply: object) -> str:
    return str(getattr(reply, "response", ""))
