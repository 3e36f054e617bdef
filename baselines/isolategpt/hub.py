"""`Hub`: routes a request to spokes, answers their messages, and asks for permissions.

`PermissionPrompter` answers permission prompts by policy; `ToolRunner` is the one place where the environment
is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage
from pydantic import BaseModel

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, user
from agentsys.models.pipeline_elements import LoopState, ToolsElement
from agentsys.models.prompted_tools import QUESTION, wrap_in_tag, write_request
from agentsys.models.providers.wire_parts import result_text, visible_text
from agentsys.models.trace import span
from baselines.isolategpt.app_plan import (
    AnswerRoute,
    InstalledApps,
    IsolateGPTSettings,
    PermissionPolicy,
    SpokeApp,
    StepGroup,
    choose_route,
    group_steps,
    make_app_plan,
)
from baselines.isolategpt.prompts import (
    DECLINED,
    INVALID_RESPONSE,
    LIMIT_REACHED,
    NO_ANSWER,
    NOT_FOUND,
    REFUSED,
)
from baselines.isolategpt.spoke import (
    SPOKE_ROLE,
    AppRequest,
    AppResponse,
    FunctionalityDenialResponse,
    FunctionProbeRequest,
    FunctionProbeResponse,
    NoFunctionalityResponse,
    Spoke,
    build_response_schema,
    encode_message,
    fits_schema,
    read_spoke_request,
    specify_tool,
)
from baselines.isolategpt.spoke import SPOKE_SPAN as SPOKE_SPAN

PERMISSION_SPAN = "isolategpt_permission"


class PermissionKind(Enum):
    """What a user is asked about."""

    EXEC = "exec"
    """That an app is run."""
    COLLAB = "collab"
    """That an app's answer goes to the app that asked."""


@dataclass(frozen=True)
class PermissionPrompt:
    """One question to the user."""

    kind: PermissionKind
    requester: str | None
    """Which spoke wants it; None: the hub itself, for the user."""
    app: str
    """Whose run, or whose answer."""
    expected: bool
    """Whether the plan accounts for it; a user is warned if not."""


@dataclass
class PermissionPrompter:
    """Answers the prompts of one task. Nothing that was allowed outlives it."""

    policy: PermissionPolicy
    asked: list[tuple[PermissionPrompt, bool]] = field(default_factory=list)
    """Every prompt with its answer, in order."""

    def is_allowed(self, prompt: PermissionPrompt) -> bool:
        """The policy's answer, kept as a span."""
        answer = answer_permission(self.policy, prompt)
        self.asked.append((prompt, answer))
        with span(PERMISSION_SPAN, prompt.app) as opened:
            opened.decision = permission_as_data(prompt, answer)
        return answer


def answer_permission(policy: PermissionPolicy, prompt: PermissionPrompt) -> bool:
    """What a user of this kind answers."""
    match policy:
        case "always_allow":
            return True
        case "deny_all":
            return False
        case "expected_only":
            return prompt.expected


def permission_as_data(prompt: PermissionPrompt, answer: bool) -> dict[str, str | bool | None]:
    """A prompt and its answer, JSON-ready."""
    return {**vars(prompt), "kind": prompt.kind.value, "allow": answer}


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
        return result_text(messages[-1])


ROUTING_SPOKE, VANILLA_SPOKE = "routing spoke", "vanilla spoke"
"""Ids of the two spokes without an app. No tool can have them: tools' names hold no spaces."""
PLAN_SPAN, MESSAGE_SPAN = "isolategpt_route", "isolategpt_message"


class IsolationHub:
    """One task's hub. Holds the task's state: plan, spokes, permissions."""

    def __init__(
        self, model: ChatModel, settings: IsolateGPTSettings, apps: InstalledApps, bench: ToolRunner
    ) -> None:
        self.desk = PermissionPrompter(settings.permissions)
        self.groups: tuple[StepGroup, ...] = ()
        self.messages: list[dict[str, Any]] = []
        """Everything spokes and hub said to each other, in order."""
        self._model = model
        self._settings = settings
        self._apps = apps
        self._bench = bench
        self._spokes: dict[str, Spoke] = {}
        self._offered: set[tuple[str, str]] = set()
        self._runs = self._depth = 0

    def answer_request(self, query: str, planned_with: Sequence[ToolSpec]) -> str:
        """Do what the user asks; never an empty text.

        Raises:
            ModelError: If a model gave no reply.
        """
        steps = make_app_plan(self._model, query, planned_with)
        self.groups = group_steps(steps, self._apps, self._settings.apps)
        route = choose_route(self.groups)
        with span(PLAN_SPAN, route.value) as opened:
            opened.decision = self.route_data()
        match route:
            case AnswerRoute.VANILLA:
                answer = self._answer_without_apps(query)
            case AnswerRoute.DIRECT:
                answer = self._answer_with_app(query, self.groups[0].apps[0])
            case AnswerRoute.ROUTING:
                answer = self._run_app(SpokeApp(ROUTING_SPOKE, ()), wrap_in_tag(QUESTION, query))
        return answer or NO_ANSWER

    def route_data(self) -> dict[str, Any]:
        """Route and groups, JSON-ready."""
        groups = [
            {"apps": list(group.apps), "tools": [step.name for step in group.steps]} for group in self.groups
        ]
        return {"route": choose_route(self.groups).value, "groups": groups}

    def _answer_without_apps(self, query: str) -> str:
        with span(SPOKE_SPAN, VANILLA_SPOKE) as opened:
            opened.messages = [user(query)]
            reply = self._model.complete(ChatRequest([user(query)], role=SPOKE_ROLE)).message
            opened.messages = [user(query), reply]
            return visible_text(reply)

    def _answer_with_app(self, query: str, app: str) -> str:
        if not self.desk.is_allowed(PermissionPrompt(PermissionKind.EXEC, None, app, expected=True)):
            return DECLINED.format(app=app)
        found = next(one for one in self._apps.apps if one.name == app)
        return self._run_app(found, wrap_in_tag(QUESTION, query))

    def answer_message(self, line: bytes) -> bytes:
        """Answer what a spoke sent."""
        request = read_spoke_request(line)
        with span(MESSAGE_SPAN, request.type) as opened:
            self._record_message(request)
            match request:
                case FunctionProbeRequest():
                    reply = self._answer_probe(request)
                case AppRequest():
                    reply = self._answer_app_request(request)
            self._record_message(reply)
            opened.decision = {"asked": request.model_dump(), "answered": type(reply).__name__}
        return encode_message(reply)

    def _record_message(self, message: BaseModel) -> None:
        self.messages.append(message.model_dump())

    def _answer_probe(self, probe: FunctionProbeRequest) -> BaseModel:
        who, wanted = probe.spoke_id, probe.requested_functionality
        owner = self._apps.find_owner(wanted)
        tool = owner.find_tool(wanted) if owner else None
        if owner is None or tool is None:
            return NoFunctionalityResponse(spoke_id=who, response=NOT_FOUND)
        expected = self.is_expected(who, owner.name)
        if not self.desk.is_allowed(PermissionPrompt(PermissionKind.EXEC, who, owner.name, expected)):
            return FunctionalityDenialResponse(spoke_id=who, response=REFUSED)
        self._offered.add((who, wanted))
        offered = specify_tool(tool, strict=self._settings.strict_response)
        return FunctionProbeResponse(spoke_id=who, functionality_offered=offered)

    def is_expected(self, requester: str, app: str) -> bool:
        """Whether the plan accounts for an app being asked for by this spoke."""
        if requester == ROUTING_SPOKE:
            return any(app in group.apps for group in self.groups)
        return any(app in group.apps and requester in group.apps for group in self.groups)

    def _answer_app_request(self, request: AppRequest) -> BaseModel:
        who, wanted = request.spoke_id, request.functionality_request
        owner = self._apps.find_owner(wanted)
        if owner is None:
            return NoFunctionalityResponse(spoke_id=who, response=NOT_FOUND)
        if (who, wanted) not in self._offered:
            return FunctionalityDenialResponse(spoke_id=who, response=REFUSED)
        if self._runs >= self._settings.max_runs or self._depth >= self._settings.max_depth:
            return FunctionalityDenialResponse(spoke_id=who, response=LIMIT_REACHED)
        answer = self._run_app(owner, write_request(wanted, request.request_body))
        if not fits_schema(answer, build_response_schema(strict=self._settings.strict_response)):
            answer = INVALID_RESPONSE
        # Only who is asked decides: a user who let the app run is not surprised that it answers.
        if not self.desk.is_allowed(PermissionPrompt(PermissionKind.COLLAB, who, owner.name, expected=True)):
            return FunctionalityDenialResponse(spoke_id=who, response=REFUSED)
        return AppResponse(spoke_id=who, response=answer)

    def _run_app(self, app: SpokeApp, question: str) -> str:
        self._runs += 1
        self._depth += 1
        try:
            return self._get_spoke(app).answer_question(question)
        finally:
            self._depth -= 1

    def _get_spoke(self, app: SpokeApp) -> Spoke:
        """The app's spoke; started at its first use and kept for the task."""
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
                self._bench.run_tool,
                self.answer_message,
                self._settings.max_iterations,
            )
        return self._spokes[app.name]
