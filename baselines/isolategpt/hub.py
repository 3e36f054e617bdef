"""`IsolationHub`: routes a request to spokes, answers their messages, and asks for permissions.

A `Spoke` is the agent of one app, in a conversation of its own. `ToolRunner` is the one place where the environment
is touched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage
from jsonschema import Draft202012Validator

from agentsys.models import prompted_tools
from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, system, text_of, user
from agentsys.models.pipeline_elements import LoopState, ToolsElement
from agentsys.models.providers.wire_parts import read_result_text, read_visible_text
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import ReplyFlaw, span
from baselines.isolategpt import app_plan

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
    """App name of the sending or receiving spoke."""
    type: MessageKind
    body: Mapping[str, Any]
    """Further fields of this kind, by the paper's names."""

    def as_data(self) -> dict[str, Any]:
        """The message as it is logged."""
        return {"spoke_id": self.spoke_id, "type": self.type, **self.body}


LONGEST_STRICT = 256
"""Characters of a response under `strict_response`, as in the published specifications."""


def specify_tool(tool: ToolSpec, *, strict: bool) -> Mapping[str, Any]:
    """Build a tool's specification for other apps: JSON schemas of request and response."""
    asked = {"name": tool.name, "description": tool.description, "request": tool.parameters}
    return {**asked, "response": build_response_schema(strict=strict)}


def build_response_schema(*, strict: bool) -> Mapping[str, Any]:
    """Return the JSON schema of every response: a non-empty text."""
    most = {"maxLength": LONGEST_STRICT} if strict else {}
    return {"type": "string", "minLength": 1, **most}


def fits_schema(value: object, schema: Mapping[str, Any]) -> bool:
    """True if a value satisfies a JSON schema."""
    return bool(Draft202012Validator(schema).is_valid(value))


SPOKE_ROLE = "agent"
SPOKE_SPAN = "spoke"


def read_spoke_action(reply: str) -> prompted_tools.Action | None:
    """Read the action in a reply; a reply without a block is an answer. None if its block holds no action."""
    try:
        return prompted_tools.read_action(reply) or prompted_tools.Action(prompted_tools.FINISH_ACTION, reply)
    except prompted_tools.ActionSyntaxError:
        return None


ACTION_CONTRACT = ReplyContract(SPOKE_ROLE, *app_plan.SPOKE, read_spoke_action)
"""A spoke's answer in each turn."""


@dataclass
class Spoke:
    """The agent of one app; with no tools of its own, the one that routes."""

    app: app_plan.SpokeApp
    others: Mapping[str, str]
    """Functionality of another app -> its description."""
    model: ChatModel
    run_tool: Callable[[str, dict[str, Any]], str]
    ask_hub: Callable[[HubMessage], HubMessage]
    max_iterations: int
    """Most replies of one run."""
    specs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Functionalities of other apps learned in this task."""

    def answer_question(self, question: str) -> str:
        """Work on a question, in its tags, in a conversation of its own, and give the final answer."""
        offer = prompted_tools.write_offer(self.app.tools, self.others)
        prompt = replace(ACTION_CONTRACT, task=f"{ACTION_CONTRACT.task}\n\n{offer}").prompt
        messages = [system(prompt), user(f"{question}\n\n{app_plan.REMINDER}")]
        with span(SPOKE_SPAN, self.app.name) as opened:
            opened.messages = messages
            for _ in range(self.max_iterations):
                reply = self.model.complete(ChatRequest(tuple(messages), role=SPOKE_ROLE)).message
                text = prompted_tools.read_text_before_observation(read_visible_text(reply))
                messages.append(assistant(text, []))
                action = ACTION_CONTRACT.read_reply(text)
                if isinstance(action, ReplyFlaw):
                    observation = text_of(ACTION_CONTRACT.repair(action))
                elif action.name == prompted_tools.FINISH_ACTION:
                    answer = action.input
                    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
                else:
                    observation = self._observe_action(action)
                messages.append(user(prompted_tools.write_observation(observation)))
            return app_plan.OUT_OF_TURNS

    def _observe_action(self, action: prompted_tools.Action) -> str:
        if action.name in self.others:
            return self._collaborate(action)
        if self.app.find_tool(action.name) is None:
            names = [prompted_tools.FINISH_ACTION, *(tool.name for tool in self.app.tools), *self.others]
            return app_plan.NO_SUCH_ACTION.format(name=action.name, names=", ".join(names))
        if not isinstance(action.input, dict):
            return text_of(ACTION_CONTRACT.repair(ReplyFlaw.WRONG_FORM))
        return self.run_tool(action.name, action.input)

    def _collaborate(self, action: prompted_tools.Action) -> str:
        """Ask the hub for another app's functionality: probe, hold the input against the form, request."""
        spec = self.specs.get(action.name)
        if spec is None:
            reply = self._ask_hub("function_probe_request", requested_functionality=action.name)
            if reply.type != "function_probe_response":
                return app_plan.NOT_AVAILABLE.format(name=action.name, reason=reply.body["response"])
            spec = self.specs[action.name] = reply.body["functionality_offered"]
        if not isinstance(action.input, dict) or not fits_schema(action.input, spec["request"]):
            return app_plan.SEND_AGAIN.format(name=action.name, schema=json.dumps(spec["request"]))
        asked = {"functionality_request": action.name, "request_body": action.input}
        reply = self._ask_hub("app_request", **asked)
        response: str = reply.body["response"]
        if reply.type != "app_response":
            return app_plan.NOT_AVAILABLE.format(name=action.name, reason=response)
        return (
            response
            if fits_schema(response, spec["response"])
            else app_plan.ILL_FORMED.format(name=action.name)
        )

    def _ask_hub(self, kind: MessageKind, **body: Any) -> HubMessage:
        return self.ask_hub(HubMessage(self.app.name, kind, body))


class ToolRunner:
    """The one place where the environment is touched."""

    def __init__(self, at: LoopState) -> None:
        self.log: list[ChatMessage] = []
        """Every executed call with its result, as an ordinary agent's conversation would have them."""
        self._at = at
        self._executor = ToolsElement()

    def run_tool(self, name: str, args: dict[str, Any]) -> str:
        """Run a tool: its value as text, or its error."""
        call = FunctionCall(function=name, args=args, id=f"call_{len(self.log)}")
        asked = [assistant(f"Calling {name}.", [call])]
        messages = self._executor.query(self._at.query, self._at.runtime, self._at.env, asked)[3]
        self.log += messages
        return read_result_text(messages[-1])


ROUTING_SPOKE, VANILLA_SPOKE = "routing spoke", "vanilla spoke"
"""Ids of the two spokes without an app. No tool can have them: tools' names hold no spaces."""
PLAN_SPAN, MESSAGE_SPAN, PERMISSION_SPAN = "isolategpt_route", "isolategpt_message", "isolategpt_permission"
_Answer = tuple[MessageKind, dict[str, Any]]
PermissionKind = Literal["exec", "collab"]
"""Subject of a permission: running an app, or returning its answer to the requesting app."""


class IsolationHub:
    """The hub and the state of one task: plan, spokes, permissions."""

    def __init__(
        self,
        model: ChatModel,
        settings: app_plan.IsolateGPTSettings,
        apps: app_plan.InstalledApps,
        tool_runner: ToolRunner,
    ) -> None:
        self.permissions: list[dict[str, Any]] = []
        """Every prompt with its answer, in order. Nothing that was allowed outlives the task."""
        self.groups: tuple[app_plan.StepGroup, ...] = ()
        self.messages: list[dict[str, Any]] = []
        """Everything spokes and hub said to each other, in order."""
        self._model = model
        self._settings = settings
        self._apps = apps
        self._tool_runner = tool_runner
        self._spokes: dict[str, Spoke] = {}
        self._offered: set[tuple[str, str]] = set()
        self._runs = self._depth = 0

    def answer_request(self, query: str, planned_with: Sequence[ToolSpec]) -> str:
        """Do what the user asks; never an empty text."""
        steps = app_plan.make_app_plan(self._model, query, planned_with)
        self.groups = app_plan.group_steps(steps, self._apps, self._settings.apps)
        with span(PLAN_SPAN, self._route) as opened:
            opened.decision = self.make_route_data()
        if self._route == "vanilla":
            answer = self._answer_without_apps(query)
        elif self._route == "direct":
            answer = self._answer_with_app(query, self.groups[0].apps[0])
        else:
            answer = self._run_app(
                app_plan.SpokeApp(ROUTING_SPOKE, ()),
                prompted_tools.wrap_in_tag(prompted_tools.QUESTION, query),
            )
        return answer or app_plan.NO_ANSWER

    @property
    def _route(self) -> str:
        # Nothing was planned: a spoke without tools that cannot ask anybody answers the user. One group: its
        # first app. Several: a spoke without tools of its own that asks apps.
        return ("vanilla", "direct", "routing")[min(len(self.groups), 2)]

    def make_route_data(self) -> dict[str, Any]:
        """Route and groups, JSON-ready."""
        groups = [
            {"apps": list(group.apps), "tools": [step.name for step in group.steps]} for group in self.groups
        ]
        return {"route": self._route, "groups": groups}

    def _answer_without_apps(self, query: str) -> str:
        with span(SPOKE_SPAN, VANILLA_SPOKE) as opened:
            opened.messages = [user(query)]
            reply = self._model.complete(ChatRequest([user(query)], role=SPOKE_ROLE)).message
            opened.messages = [user(query), reply]
            return read_visible_text(reply)

    def _answer_with_app(self, query: str, app: str) -> str:
        if not self.is_allowed("exec", None, app, expected=True):
            return app_plan.DECLINED.format(app=app)
        chosen = next(installed for installed in self._apps.apps if installed.name == app)
        return self._run_app(chosen, prompted_tools.wrap_in_tag(prompted_tools.QUESTION, query))

    def is_allowed(self, kind: PermissionKind, requester: str | None, app: str, expected: bool) -> bool:
        """Ask the user about an app's run or answer; the policy of the settings answers.

        `requester` is the spoke that wants it; None: the hub. A user is warned of what the plan has not.
        """
        allow = {"always_allow": True, "deny_all": False}.get(self._settings.permissions, expected)
        data = {"kind": kind, "requester": requester, "app": app, "expected": expected, "allow": allow}
        self.permissions.append(data)
        with span(PERMISSION_SPAN, app) as opened:
            opened.decision = data
        return allow

    def answer_message(self, request: HubMessage) -> HubMessage:
        """Answer what a spoke sent."""
        answer = self._answer_probe if request.type == "function_probe_request" else self._answer_app_request
        with span(MESSAGE_SPAN, request.type) as opened:
            self.messages.append(request.as_data())
            kind, body = answer(request.spoke_id, request.body)
            self.messages.append(HubMessage(request.spoke_id, kind, body).as_data())
            answered = "".join(map(str.capitalize, kind.split("_")))
            opened.decision = {"asked": request.as_data(), "answered": answered}
        return HubMessage(request.spoke_id, kind, body)

    def _answer_probe(self, who: str, probe: Mapping[str, Any]) -> _Answer:
        wanted = probe["requested_functionality"]
        owner = self._apps.find_owner(wanted)
        tool = owner.find_tool(wanted) if owner else None
        if owner is None or tool is None:
            return "no_functionality_response", {"response": app_plan.NOT_FOUND}
        planned = (group.apps for group in self.groups if who in (ROUTING_SPOKE, *group.apps))
        if not self.is_allowed("exec", who, owner.name, any(owner.name in apps for apps in planned)):
            return "functionality_denial_response", {"response": app_plan.REFUSED}
        self._offered.add((who, wanted))
        offered = specify_tool(tool, strict=self._settings.strict_response)
        return "function_probe_response", {"functionality_offered": offered}

    def _answer_app_request(self, who: str, request: Mapping[str, Any]) -> _Answer:
        wanted = request["functionality_request"]
        owner = self._apps.find_owner(wanted)
        if owner is None:
            return "no_functionality_response", {"response": app_plan.NOT_FOUND}
        if (who, wanted) not in self._offered:
            return "functionality_denial_response", {"response": app_plan.REFUSED}
        if self._runs >= self._settings.max_runs or self._depth >= self._settings.max_depth:
            return "functionality_denial_response", {"response": app_plan.LIMIT_REACHED}
        answer = self._run_app(owner, prompted_tools.write_request(wanted, request["request_body"]))
        if not fits_schema(answer, build_response_schema(strict=self._settings.strict_response)):
            answer = app_plan.INVALID_RESPONSE
        # Only who is asked decides: a user who let the app run is not surprised that it answers.
        if not self.is_allowed("collab", who, owner.name, expected=True):
            return "functionality_denial_response", {"response": app_plan.REFUSED}
        return "app_response", {"response": answer}

    def _run_app(self, app: app_plan.SpokeApp, question: str) -> str:
        self._runs += 1
        self._depth += 1
        try:
            return self._get_spoke(app).answer_question(question)
        finally:
            self._depth -= 1

    def _get_spoke(self, app: app_plan.SpokeApp) -> Spoke:
        """Return the app's spoke; it is started at its first use and kept for the task."""
        if app.name not in self._spokes:
            others = {
                tool.name: tool.description if self._settings.placeholders == "described" else tool.name
                for tool in self._apps.tools
                if app.find_tool(tool.name) is None
            }
            self._spokes[app.name] = Spoke(
                app,
                others,
                self._model,
                self._tool_runner.run_tool,
                self.answer_message,
                self._settings.max_iterations,
            )
        return self._spokes[app.name]
