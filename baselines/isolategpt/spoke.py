"""`Spoke`: the agent of one app, in a conversation of its own, and the messages between spokes and hub."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from jsonschema import Draft202012Validator

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

MessageKind = Literal[
    "function_probe_request",
    "function_probe_response",
    "no_functionality_response",
    "functionality_denial_response",
    "app_request",
    "app_response",
]


@dataclass(frozen=True)
class HubMessage:
    """A message between a spoke and the hub. The paper's are JSON documents between processes."""

    spoke_id: str
    """The spoke that speaks or is spoken to: its app's name."""
    type: MessageKind
    body: Mapping[str, Any]
    """What the kind has besides, by the paper's names."""

    def as_data(self) -> dict[str, Any]:
        """The message as it is logged."""
        return {"spoke_id": self.spoke_id, "type": self.type, **self.body}


LONGEST_STRICT = 256
"""Characters of a response under `strict_response`, as in the published specifications."""


def specify_tool(tool: ToolSpec, *, strict: bool) -> Mapping[str, Any]:
    """What others are told of a tool, made from the tool itself: JSON schemas of request and response."""
    asked = {"name": tool.name, "description": tool.description, "request": tool.parameters}
    return {**asked, "response": build_response_schema(strict=strict)}


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
    ask_hub: Callable[[HubMessage], HubMessage]
    max_iterations: int
    """Most replies of one run."""
    specs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
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
            reply = self._ask_hub("function_probe_request", requested_functionality=action.name)
            if reply.type != "function_probe_response":
                return NOT_AVAILABLE.format(name=action.name, reason=reply.body["response"])
            spec = self.specs[action.name] = reply.body["functionality_offered"]
        if not isinstance(action.input, dict) or not fits_schema(action.input, spec["request"]):
            return SEND_AGAIN.format(name=action.name, schema=json.dumps(spec["request"]))
        asked = {"functionality_request": action.name, "request_body": action.input}
        reply = self._ask_hub("app_request", **asked)
        response: str = reply.body["response"]
        if reply.type != "app_response":
            return NOT_AVAILABLE.format(name=action.name, reason=response)
        return response if fits_schema(response, spec["response"]) else ILL_FORMED.format(name=action.name)

    def _ask_hub(self, kind: MessageKind, **body: Any) -> HubMessage:
        return self.ask_hub(HubMessage(self.app.name, kind, body))


def _answer_text(answer: object) -> str:
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
