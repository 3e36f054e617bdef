"""`IsolateGPT`: a hub, and every app's agent in a spoke of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel, assistant
from agentsys.models.pipeline_elements import (
    LoopState,
    LoopStep,
    default_system_message,
    make_named_pipeline,
    tool_specs,
)
from baselines.defense_bases import AgentDefense
from baselines.isolategpt import app_plan
from baselines.isolategpt.hub import ACTION_CONTRACT, IsolationHub, ToolRunner

EXTRA = "isolategpt"
"""Key in the pipeline's extra arguments under which plan, messages and permissions are handed back."""


class IsolateGPT(AgentDefense):
    """IsolateGPT: apps in spokes, a hub between them, and a user's answers given by policy.

    Args:
        apps: What an app is: each tool (`per_tool`), groups of tools (`per_app`), or all of them together
            (`one_app`: nothing is kept apart).
        app_of: Tool -> app under `per_app`; None: AgentDojo's tools as in `apps.yaml`. A tool that is not
            named is an app of its own.
        permissions: Who answers the prompts: a user who heeds the warning about what the plan does not
            account for (`expected_only`), who allows all (`always_allow`), or nothing (`deny_all`).
        placeholders: What a spoke is told of other apps' functionalities: their names (`bare`), or what
            they do as well (`described`).
        strict_response: Whether a response to another spoke may have 256 characters at most.
        max_iterations: Most replies of one run of a spoke.
        max_depth: Most spokes that wait for each other, the first one included.
        max_runs: Most runs of spokes in a task.
        retrieved: How many tools the planner is shown, those spelled most like the request; None: all.

    Source: Wu, Roesner, Kohno, Zhang, Iqbal, NDSS 2025 (arXiv 2403.04960).
    """

    roles = app_plan.ROLES
    texts: ClassVar[Mapping[str, str]] = {
        "planner": app_plan.PLAN_CONTRACT.prompt,
        "spoke": ACTION_CONTRACT.prompt,
        **app_plan.PROMPTS,
    }

    whole_program = True

    def __init__(
        self, name: str = "isolategpt", *, app_of: Mapping[str, str] | None = None, **options: Any
    ) -> None:
        self.name = name
        apps = app_plan.APP_OF if app_of is None else MappingProxyType(dict(app_of))
        self.settings = check_options(app_plan.IsolateGPTSettings, name, options, app_of=apps)

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the agent for one case. The system message stays in the log; no spoke is given it."""
        system_message = SystemMessage(default_system_message(suite))
        agent = IsolateGPTAgent(model, self.settings)
        return make_named_pipeline(f"{model.name}-{self.name}", system_message, InitQuery(), agent)

    def description(self) -> str:
        """Describe what is isolated, and who answers the prompts."""
        settings = self.settings
        describe = _describe_one_agent if settings.apps == "one_app" else _describe_spokes
        plan = [_PLANNER]
        if settings.retrieved is not None:
            plan.append(
                f"It is shown only the {settings.retrieved} tools that are spelled most like the request."
            )
        return " ".join([*plan, *describe(settings), _CLOSING])


class IsolateGPTAgent(LoopStep):
    """Hub and spokes as one element; all they remember of a task lives in one call of `query`."""

    name = "isolategpt_agent"

    def __init__(self, model: ChatModel, settings: app_plan.IsolateGPTSettings) -> None:
        self.model = model
        self.settings = settings

    def step(self, at: LoopState) -> LoopState:
        """Work on the user's request from plan to answer."""
        tools = tool_specs(at.runtime.functions.values())
        tool_runner = ToolRunner(at)
        hub = IsolationHub(
            self.model, self.settings, app_plan.group_into_apps(tools, self.settings), tool_runner
        )
        most = self.settings.retrieved
        answer = hub.answer_request(
            at.query, tools if most is None else app_plan.find_nearest_tools(at.query, tools, most)
        )
        log = {**hub.make_route_data(), "messages": hub.messages, "permissions": hub.permissions}
        answered = at.with_messages(*tool_runner.log, assistant(answer, []))
        return replace(answered, extra={**at.extra, EXTRA: log})


_PLANNER = (
    "Before anything untrusted is read, a planner writes down from the request which tools are needed and"
    " which of them take what others return."
)
_CLOSING = "What an agent does with its own tools, and what it says in the end, is not checked."


def _describe_one_agent(settings: app_plan.IsolateGPTSettings) -> list[str]:
    answer = "refuses" if settings.permissions == "deny_all" else "agrees"
    return [
        "All tools belong to one agent, which reads all results raw in one conversation: nothing is kept"
        " apart.",
        f"The user is asked once, before it starts, and {answer}.",
        "Where the plan names no tool, an agent without tools answers.",
    ]


def _describe_spokes(settings: app_plan.IsolateGPTSettings) -> list[str]:
    division = {
        "per_tool": "Each tool has an agent of its own, with a conversation of its own",
        "per_app": "The tools of an app share an agent, which has a conversation of its own",
    }[settings.apps]
    most = " of at most 256 characters" if settings.strict_response else ""
    return [
        f"{division}; it reads the results of its own tools raw.",
        "The request goes to the agent of the first planned tool, or, where the plan has several parts that"
        " do not depend on each other, to one without tools.",
        "An agent reaches another one's tool only through a hub, by a typed request that must follow the"
        f" tool's schema, and hears nothing of it but a final answer{most}.",
        _PERMISSIONS[settings.permissions],
    ]


_PERMISSIONS = {
    "expected_only": "The hub asks a user before it lets one agent use another's tool, and warns where the"
    " plan does not account for it. This user refuses whatever comes with a warning, and allows the rest.",
    "always_allow": "The hub asks a user before it lets one agent use another's tool. This user allows"
    " everything, warned or not.",
    "deny_all": "The hub asks a user before it runs anything. This user refuses everything, so that no tool"
    " is ever run.",
}
