"""`Hub`: plans, starts the first spoke, and stands between all of them for one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, user
from agentsys.models.prompted_tools import QUESTION, wrap_in_tag, write_request
from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import span
from baselines.isolategpt.apps import AppBook, SpokeApp
from baselines.isolategpt.permissions import PermissionDesk, PermissionPrompt, PromptKind
from baselines.isolategpt.plan import Route, StepGroup, grouped, make_plan, route_of
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
    as_line,
    fits,
    read_spoke_request,
    response_schema,
    specification,
)
from baselines.isolategpt.settings import IsolateGPTSettings
from baselines.isolategpt.spoke import ROLE, Spoke
from baselines.isolategpt.spoke import SPAN as SPOKE_SPAN
from baselines.isolategpt.tool_bench import ToolBench

ROUTING_SPOKE, VANILLA_SPOKE = "routing spoke", "vanilla spoke"
"""Ids of the two spokes without an app. No tool can have them: tools' names hold no spaces."""
PLAN_SPAN, MESSAGE_SPAN = "isolategpt_route", "isolategpt_message"


class Hub:
    """One task's hub. Holds the task's state: plan, spokes, permissions."""

    def __init__(
        self, model: ChatModel, settings: IsolateGPTSettings, apps: AppBook, bench: ToolBench
    ) -> None:
        self.desk = PermissionDesk(settings.permissions)
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

    def answer(self, query: str, planned_with: Sequence[ToolSpec]) -> str:
        """Do what the user asks; never an empty text.

        Raises:
            ModelError: If a model gave no reply.
        """
        steps = make_plan(self._model, query, planned_with)
        self.groups = grouped(steps, self._apps, self._settings.apps)
        route = route_of(self.groups)
        with span(PLAN_SPAN, route.value) as opened:
            opened.decision = self.route_data()
        match route:
            case Route.VANILLA:
                answer = self._plainly(query)
            case Route.DIRECT:
                answer = self._directly(query, self.groups[0].apps[0])
            case Route.ROUTING:
                answer = self._run(SpokeApp(ROUTING_SPOKE, ()), wrap_in_tag(QUESTION, query))
        return answer or NO_ANSWER

    def route_data(self) -> dict[str, Any]:
        """Route and groups, JSON-ready."""
        groups = [
            {"apps": list(group.apps), "tools": [step.name for step in group.steps]} for group in self.groups
        ]
        return {"route": route_of(self.groups).value, "groups": groups}

    def _plainly(self, query: str) -> str:
        with span(SPOKE_SPAN, VANILLA_SPOKE) as opened:
            opened.messages = [user(query)]
            reply = self._model.complete(ChatRequest([user(query)], role=ROLE)).message
            opened.messages = [user(query), reply]
            return visible_text(reply)

    def _directly(self, query: str, app: str) -> str:
        if not self.desk.allows(PermissionPrompt(PromptKind.EXEC, None, app, expected=True)):
            return DECLINED.format(app=app)
        found = next(one for one in self._apps.apps if one.name == app)
        return self._run(found, wrap_in_tag(QUESTION, query))

    def serve(self, line: bytes) -> bytes:
        """Answer what a spoke sent."""
        request = read_spoke_request(line)
        with span(MESSAGE_SPAN, request.type) as opened:
            self._keep(request)
            match request:
                case FunctionProbeRequest():
                    reply = self._probed(request)
                case AppRequest():
                    reply = self._requested(request)
            self._keep(reply)
            opened.decision = {"asked": request.model_dump(), "answered": type(reply).__name__}
        return as_line(reply)

    def _keep(self, message: BaseModel) -> None:
        self.messages.append(message.model_dump())

    def _probed(self, probe: FunctionProbeRequest) -> BaseModel:
        who, wanted = probe.spoke_id, probe.requested_functionality
        owner = self._apps.owner(wanted)
        tool = owner.tool(wanted) if owner else None
        if owner is None or tool is None:
            return NoFunctionalityResponse(spoke_id=who, response=NOT_FOUND)
        expected = self.expects(who, owner.name)
        if not self.desk.allows(PermissionPrompt(PromptKind.EXEC, who, owner.name, expected)):
            return FunctionalityDenialResponse(spoke_id=who, response=REFUSED)
        self._offered.add((who, wanted))
        offered = specification(tool, strict=self._settings.strict_response)
        return FunctionProbeResponse(spoke_id=who, functionality_offered=offered)

    def expects(self, requester: str, app: str) -> bool:
        """Whether the plan accounts for an app being asked for by this spoke."""
        if requester == ROUTING_SPOKE:
            return any(app in group.apps for group in self.groups)
        return any(app in group.apps and requester in group.apps for group in self.groups)

    def _requested(self, request: AppRequest) -> BaseModel:
        who, wanted = request.spoke_id, request.functionality_request
        owner = self._apps.owner(wanted)
        if owner is None:
            return NoFunctionalityResponse(spoke_id=who, response=NOT_FOUND)
        if (who, wanted) not in self._offered:
            return FunctionalityDenialResponse(spoke_id=who, response=REFUSED)
        if self._runs >= self._settings.max_runs or self._depth >= self._settings.max_depth:
            return FunctionalityDenialResponse(spoke_id=who, response=LIMIT_REACHED)
        answer = self._run(owner, write_request(wanted, request.request_body))
        if not fits(answer, response_schema(strict=self._settings.strict_response)):
            answer = INVALID_RESPONSE
        # Only who is asked decides: a user who let the app run is not surprised that it answers.
        if not self.desk.allows(PermissionPrompt(PromptKind.COLLAB, who, owner.name, expected=True)):
            return FunctionalityDenialResponse(spoke_id=who, response=REFUSED)
        return AppResponse(spoke_id=who, response=answer)

    def _run(self, app: SpokeApp, question: str) -> str:
        self._runs += 1
        self._depth += 1
        try:
            return self._spoke(app).answer(question)
        finally:
            self._depth -= 1

    def _spoke(self, app: SpokeApp) -> Spoke:
        """The app's spoke; started at its first use and kept for the task."""
        if app.name not in self._spokes:
            others = {
                tool.name: tool.description if self._settings.placeholders == "described" else tool.name
                for tool in self._apps.tools
                if app.tool(tool.name) is None
            }
            self._spokes[app.name] = Spoke(
                app, others, self._model, self._bench.run, self.serve, self._settings.max_iterations
            )
        return self._spokes[app.name]
