"""`Hub`: plans, starts the first spoke, and stands between all of them for one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, user
from agentsys.models.prompted_tools import QUESTION, wrap_in_tag, write_request
from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import span
from baselines.isolategpt.apps import InstalledApps, SpokeApp
from baselines.isolategpt.permissions import PermissionPrompter, PermissionPrompt, PermissionKind
from baselines.isolategpt.plan import AnswerRoute, StepGroup, group_steps, make_app_plan, choose_route
from baselines.isolategpt.prompts import (
    DECLINED,
    INVALID_RESPONSE,
    LIMIT_REACHED,
    NO_ANSWER,
    NOT_FOUND,
    REFUSED,
)
from baselines.isolategpt.protocol import (
    AppRequest,
    AppResponse,
    FunctionalityDenialResponse,
    FunctionProbeRequest,
    FunctionProbeResponse,
    NoFunctionalityResponse,
    encode_message,
    fits_schema,
    read_spoke_request,
    build_response_schema,
    specify_tool,
)
from baselines.isolategpt.settings import IsolateGPTSettings
from baselines.isolategpt.spoke import SPOKE_ROLE, Spoke
from baselines.isolategpt.spoke import SPOKE_SPAN as SPOKE_SPAN
from baselines.isolategpt.tool_bench import ToolRunner

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
                app, others, self._model, self._bench.run_tool, self.answer_message, self._settings.max_iterations
            )
        return self._spokes[app.name]
