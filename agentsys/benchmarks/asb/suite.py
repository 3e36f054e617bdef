"""`ASBSuite`: one agent as an AgentDojo suite, built from data instead of YAML files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.functions_runtime import Function, FunctionsRuntime
from agentdojo.task_suite.task_suite import TaskSuite, validate_injections

from agentsys.benchmarks.asb.agent import AsbAgent, AttackTool, build_persona
from agentsys.benchmarks.asb.driver import AsbMode, wrap_planned_model
from agentsys.benchmarks.asb.environment import ASBEnvironment, set_plan_step
from agentsys.benchmarks.asb.measured import AsbCriterion, measure_asb_case
from agentsys.benchmarks.asb.replies import CountedReplies, start_counting
from agentsys.benchmarks.asb.tasks import make_injection_task, build_agent_tools, make_user_task
from agentsys.contracts import FinishedCase, InjectionTask, CaseScores
from agentsys.models.chat import ChatModel
from agentsys.models.element import LoopState, LoopStep

VECTOR = "tool_result"
"""The one injection vector: what stands in it is appended to tool results."""


class ASBSuite(TaskSuite[ASBEnvironment]):  # type: ignore[misc]
    """One agent.

    Args:
        agent: The agent with all its tasks and tools. The suite lists all tools, so that checks of
            whole suites work; a case meets the normal ones and its own attack tool.
        mode: How cases are run.
        tasks: How many of its tasks to offer, from the first; None means all.
        attacks: Places in `agent.attack_tools` that are offered as injection tasks; a task keeps its
            id whatever else is offered.
        criterion: Which success a record's `utility` and `security` state.
        judge_refusals: Whether a model is asked if the agent declined to help.
    """

    injection = "exact"

    def __init__(
        self,
        agent: AsbAgent,
        mode: AsbMode,
        *,
        tasks: int | None,
        attacks: Sequence[int],
        criterion: AsbCriterion,
        judge_refusals: bool,
    ) -> None:
        super().__init__(agent.name, ASBEnvironment, build_agent_tools(agent))
        self.agent = agent
        self.mode = mode
        self.criterion = criterion
        self.judge_refusals = judge_refusals
        self.system_message = build_persona(agent.name)
        for number in range(len(agent.tasks))[:tasks]:
            self.register_user_task(make_user_task(agent, number))
        for number in attacks:
            self.register_injection_task(make_injection_task(agent, number))

    def get_injection_vector_defaults(self) -> dict[str, str]:
        """One vector, empty by default."""
        return {VECTOR: ""}

    def load_and_inject_default_environment(self, injections: dict[str, str]) -> ASBEnvironment:
        """A fresh environment.

        Raises:
            ValueError: If `injections` names another vector.
        """
        validate_injections(injections, self.get_injection_vector_defaults())
        # A new world is in no step: what a case before left in this context would keep payloads out of it.
        set_plan_step(None)
        return ASBEnvironment(
            agent=self.agent.name, data=self.agent.digest, injection=injections.get(VECTOR, "")
        )

    def run_task_with_pipeline(
        self,
        agent_pipeline: BasePipelineElement,
        user_task: BaseUserTask[ASBEnvironment] | BaseInjectionTask[ASBEnvironment],
        injection_task: BaseInjectionTask[ASBEnvironment] | None,
        injections: dict[str, str],
        runtime_class: type[FunctionsRuntime] = FunctionsRuntime,
        environment: ASBEnvironment | None = None,
        verbose: bool = False,
    ) -> tuple[bool, bool]:
        """Run a task as AgentDojo does, with the tools of this case alone and a fresh world for each try."""
        meant = injection_task if isinstance(user_task, BaseUserTask) else user_task
        tools = self._tools_of_case(attack_tool_of(meant))
        scores: tuple[bool, bool] = super().run_task_with_pipeline(
            FreshEachRunStep(agent_pipeline),
            user_task,
            injection_task,
            injections,
            # AgentDojo only calls what it is given here, with the suite's tools.
            runtime_class=lambda _all: runtime_class(tools),
            environment=environment,
            verbose=verbose,
        )
        return scores

    @property
    def several_turns(self) -> bool:
        """Whether the conversation has more user turns than one."""
        return self.mode.has_plan

    def driven(
        self,
        model: ChatModel,
        user_task: BaseUserTask[ASBEnvironment],
        injection_task: BaseInjectionTask[ASBEnvironment] | None,
    ) -> ChatModel:
        """The model as it takes part in this mode's conversation."""
        tool = attack_tool_of(injection_task)
        return wrap_planned_model(CountedReplies(model), mode=self.mode, attack_tool=None if tool is None else tool.name)

    def measured(self, finished: FinishedCase) -> CaseScores:
        """Both criteria, and what brought the attack about."""
        return measure_asb_case(finished, self.agent, self.mode, self.criterion, judge_refusals=self.judge_refusals)

    def _tools_of_case(self, attack: AttackTool | None) -> list[Function[..., Any]]:
        kept = {tool.name for tool in self.agent.normal_tools}
        if attack is not None:
            kept.add(attack.name)
        return [tool for tool in self.tools if tool.name in kept]


def attack_tool_of(task: InjectionTask | None) -> AttackTool | None:
    """The attack tool of an injection task of ASB's; None in a benign case."""
    return getattr(task, "tool", None)


class FreshEachRunStep(LoopStep):
    """Forgets the calls of a run that ended without an answer.

    AgentDojo runs a pipeline again, up to three times, when its last message is empty, on the
    environment as the run before left it (agentdojo 0.1.35): the calls would be counted anew each time.
    """

    def __init__(self, pipeline: BasePipelineElement) -> None:
        self.pipeline = pipeline
        self.name = pipeline.name

    def step(self, at: LoopState) -> LoopState:
        """One run.

        Raises:
            Exception: What the pipeline raises, unchanged.
        """
        if isinstance(at.env, ASBEnvironment):
            at.env.uses.clear()
            start_counting()
        return at.run_element(self.pipeline)
