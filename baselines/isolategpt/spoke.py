"""`Spoke`: the agent of one app, in a conversation of its own, and the messages between spokes and hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, system, text_of, user
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
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import ReplyFlaw, span
from baselines.isolategpt.app_plan import SpokeApp
from baselines.isolategpt.prompts import (
    ILL_FORMED,
    NO_SUCH_ACTION,
    NOT_AVAILABLE,
    OUT_OF_TURNS,
    REMINDER,
    SEND_AGAIN,
    SPOKE,
)


class FunctionalitySpec(BaseModel):
    """What a functionality takes and gives."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    description: str
    request: Mapping[str, Any]
    """JSON schema of a request's body."""
    response: Mapping[str, Any]
    """JSON schema of what comes back."""


class _SpokeMessage(BaseModel):
    # The paper's apps exchange JSON documents; within one process the checked objects are the messages.
    model_config = ConfigDict(frozen=True, extra="forbid")

    spoke_id: str
    """The spoke that speaks or is spoken to: its app's name."""


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

LONGEST_STRICT = 256
"""Characters of a response under `strict_response`, as in the published specifications."""


def specify_tool(tool: ToolSpec, *, strict: bool) -> FunctionalitySpec:
    """What others are told of a tool, made from the tool itself."""
    response = build_response_schema(strict=strict)
    return FunctionalitySpec(
        name=tool.name, description=tool.description, request=tool.parameters, response=response
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


def read_spoke_action(reply: str) -> Action | None:
    """The action in a reply, which is an answer where it has no block; None where its block holds no action."""
    try:
        return read_action(reply) or Action(FINISH_ACTION, reply)
    except ActionSyntaxError:
        return None


ACTION_CONTRACT = ReplyContract(SPOKE_ROLE, *SPOKE, read_spoke_action)
"""What a spoke answers in each turn."""


@dataclass
class Spoke:
    """The agent of one app; with no tools of its own, the one that routes."""

    app: SpokeApp
    others: Mapping[str, str]
    """Functionality of another app -> what is told of it."""
    model: ChatModel
    run_tool: Callable[[str, dict[str, Any]], str]
    ask_hub: Callable[[SpokeRequest], HubReply]
    max_iterations: int
    """Most replies of one run."""
    specs: dict[str, FunctionalitySpec] = field(default_factory=dict)
    """What it has learned of other apps in this task."""

    def answer_question(self, question: str) -> str:
        """Work on a question, in its tags, in a conversation of its own, and give the final answer."""
        offer = write_offer(self.app.tools, self.others)
        told = replace(ACTION_CONTRACT, task=f"{ACTION_CONTRACT.task}\n\n{offer}").prompt
        messages = [system(told), user(f"{question}\n\n{REMINDER}")]
        with span(SPOKE_SPAN, self.app.name) as opened:
            opened.messages = messages
            for _ in range(self.max_iterations):
                reply = self.model.complete(ChatRequest(tuple(messages), role=SPOKE_ROLE)).message
                text = text_before_observation(visible_text(reply))
                messages.append(assistant(text, []))
                action = ACTION_CONTRACT.read_reply(text)
                if isinstance(action, ReplyFlaw):
                    observation = text_of(ACTION_CONTRACT.repair(action))
                elif action.name == FINISH_ACTION:
                    return _answer_text(action.input)
                else:
                    observation = self._observe_action(action)
                messages.append(user(write_observation(observation)))
            return OUT_OF_TURNS

    def _observe_action(self, action: Action) -> str:
        if action.name in self.others:
            return self._collaborate(action)
        if self.app.find_tool(action.name) is None:
            names = [FINISH_ACTION, *(tool.name for tool in self.app.tools), *self.others]
            return NO_SUCH_ACTION.format(name=action.name, names=", ".join(names))
        if not isinstance(action.input, dict):
            return text_of(ACTION_CONTRACT.repair(ReplyFlaw.WRONG_FORM))
        return self.run_tool(action.name, action.input)

    def _collaborate(self, action: Action) -> str:
        """Ask the hub for another app's functionality: probe, hold the input against the form, request."""
        spec = self.specs.get(action.name)
        if spec is None:
            probe = FunctionProbeRequest(spoke_id=self.app.name, requested_functionality=action.name)
            reply = self.ask_hub(probe)
            if not isinstance(reply, FunctionProbeResponse):
                return NOT_AVAILABLE.format(name=action.name, reason=reply.response)
            spec = self.specs[action.name] = reply.functionality_offered
        if not isinstance(action.input, dict) or not fits_schema(action.input, spec.request):
            return SEND_AGAIN.format(name=action.name, schema=json.dumps(spec.request))
        request = AppRequest(
            spoke_id=self.app.name, functionality_request=action.name, request_body=action.input
        )
        reply = self.ask_hub(request)
        if not isinstance(reply, AppResponse):
            reason = getattr(reply, "response", "")
            return NOT_AVAILABLE.format(name=action.name, reason=reason)
        fits = fits_schema(reply.response, spec.response)
        return reply.response if fits else ILL_FORMED.format(name=action.name)


def _answer_text(answer: object) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
