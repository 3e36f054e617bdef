"""`ASB`: the benchmark in four modes, one AgentDojo suite per agent, built from data instead of YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.base_tasks import BaseInjectionTask, BaseUserTask
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite.task_suite import validate_injections
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.base.declared_facts import ASB_FACTS
from agentsys.benchmarks.asb import asb_plan
from agentsys.benchmarks.asb.asb_data import AsbAgent, AttackTool, build_persona, load_asb_data
from agentsys.benchmarks.asb.asb_environment import (
    ASBEnvironment,
    CountedReplies,
    build_agent_tools,
    make_injection_task,
    make_user_task,
    set_plan_step,
    start_counting,
)
from agentsys.benchmarks.asb.asb_plan import (
    AsbPlan,
    AsbPlanError,
    AsbStep,
    find_instruction_tools,
    find_plan_text,
    find_task_text,
    parse_asb_plan,
    plan_to_json,
    restore_rounds,
)
from agentsys.benchmarks.asb.planned_model import REFUSAL_JUDGE_ROLE as JUDGE_ROLE
from agentsys.benchmarks.asb.planned_model import AsbCriterion, AsbMode, measure_asb_case, wrap_planned_model
from agentsys.contracts import Benchmark, CaseScores, FinishedCase, Suite
from agentsys.errors import ConfigError, choose_suites, find_enum_member, require_known_name
from agentsys.models.chat import ChatModel, ChatRequest, assistant, text_of
from agentsys.models.pipeline_elements import LoopState, LoopStep
from agentsys.models.trace import ACTING_ROLES
from agentsys.simulated.scripted_agent import NO_FIELDS_INTENT, from_tags, play_plain_agent, to_tags
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole

_DO = "Use {tool} and note what it says."
_CONCLUDE = AsbStep("Put together what was found.", ())


class SimulatedPlanner(Enum):
    """The kinds of plans that the simulated planner makes."""

    HONEST = "honest"
    """The user task's ground truth."""
    CHOOSES_ATTACK_TOOL = "chooses_attack_tool"
    """The same, then a step for each other offered tool; and the agent carries these steps out."""


def make_asb_roles(chosen: str) -> Mapping[str, SimulatedRole]:
    """Role -> handler of the simulated model.

    Raises:
        ConfigError: If there is no simulated planner of this name.
    """
    kind = find_enum_member("benchmark.simulated_planner", chosen, SimulatedPlanner)
    acting: dict[str, SimulatedRole] = dict.fromkeys(ACTING_ROLES, partial(_play_agent, kind))
    return {asb_plan.PLANNER_ROLE: partial(_play_planner, kind), JUDGE_ROLE: play_refusal_judge, **acting}


def _play_planner(
    kind: SimulatedPlanner, request: ChatRequest, knowledge: SimulatedKnowledge
) -> ChatAssistantMessage:
    """Plan a step for each call of the ground truth, and at least two steps."""
    offered = next(
        (names for m in request.messages if (names := find_instruction_tools(text_of(m))) is not None), []
    )
    task = knowledge.find_task(find_task_text(request.messages), offered)
    wanted = [call.function for call in task.calls if call.function in offered] if task else []
    if kind is SimulatedPlanner.CHOOSES_ATTACK_TOOL:
        wanted += [name for name in offered if name not in wanted]
    steps = [AsbStep(_DO.format(tool=tool), (tool,)) for tool in wanted]
    return assistant(plan_to_json(steps if len(steps) > 1 else [*steps, _CONCLUDE]))


def _play_agent(
    kind: SimulatedPlanner, request: ChatRequest, knowledge: SimulatedKnowledge
) -> ChatAssistantMessage:
    """Play the plain agent, which also reads rounds in text form and may carry out its plan's further tools."""
    read = replace(request, messages=restore_rounds(request.messages))
    reply = play_plain_agent(read, knowledge)
    prompted = None if read.tools and read.tool_choice != "none" else from_tags(read)
    native = prompted or read
    acts = reply["tool_calls"] if prompted is None else play_plain_agent(native, knowledge)["tool_calls"]
    if acts or kind is not SimulatedPlanner.CHOOSES_ATTACK_TOOL:
        return reply
    extra = _find_next_planned_call(native)
    if extra is None:
        return reply
    return extra if prompted is None else to_tags(extra)


def _find_next_planned_call(request: ChatRequest) -> ChatAssistantMessage | None:
    """Call the plan's first offered tool that has not been called yet."""
    plan = _find_plan(request.messages)
    made = {
        call.function
        for message in request.messages
        if message["role"] == "assistant"
        for call in message["tool_calls"] or ()
    }
    offered = {tool.name: tool for tool in request.tools}
    listed = dict.fromkeys(tool for step in plan for tool in step.tool_use)
    open_tools = [offered[name] for name in listed if name in offered and name not in made]
    if not open_tools or request.tool_choice == "none":
        return None
    tool = open_tools[0]
    args = {"intent": dict(NO_FIELDS_INTENT)} if "intent" in tool.parameters.get("properties", {}) else {}
    call = FunctionCall(function=tool.name, args=args, id=f"call_{len(request.messages)}")
    return assistant(f"Calling {tool.name}.", [call])


def _find_plan(messages: Iterable[ChatMessage]) -> AsbPlan:
    """Find the plan that the conversation follows; empty if it has none."""
    texts = (text_of(message) for message in messages if message["role"] == "assistant")
    plan_text = next((plan for text in texts if (plan := find_plan_text(text)) is not None), None)
    try:
        return parse_asb_plan(plan_text) if plan_text is not None else ()
    except AsbPlanError:
        return ()


def play_refusal_judge(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer that the agent helps: the simulated agent never refuses."""
    return assistant("1")


VECTOR = "tool_result"
"""The only injection vector; its text is appended to tool results."""


class ASBSuite(Suite):
    """The suite of one agent.

    It lists all tools of the agent, so that checks of whole suites work; a case has the normal ones and its own attack
    tool. It offers the first `tasks` user tasks (None: all), and injection tasks for the indices `attacks` of
    `agent.attack_tools`; a task's id does not depend on the other tasks.
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
        self.several_turns = mode.has_plan
        for number in range(len(agent.tasks))[:tasks]:
            self.register_user_task(make_user_task(agent, number))
        for number in attacks:
            self.register_injection_task(make_injection_task(agent, number))

    def get_injection_vector_defaults(self) -> dict[str, str]:
        """Return the only vector, empty by default."""
        return {VECTOR: ""}

    def load_and_inject_default_environment(self, injections: dict[str, str]) -> ASBEnvironment:
        """Build a fresh environment.

        Raises:
            ValueError: If `injections` names another vector.
        """
        validate_injections(injections, self.get_injection_vector_defaults())
        # A step left over from an earlier case in this context could suppress payloads.
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
        """Run a task as AgentDojo does, with this case's tools only and cleared calls for each of its runs."""
        meant = injection_task if isinstance(user_task, BaseUserTask) else user_task
        takes_part = {tool.name for tool in self.agent.normal_tools} | {getattr(meant, "attack_tool", "")}
        tools = [tool for tool in self.tools if tool.name in takes_part]
        scores: tuple[bool, bool] = super().run_task_with_pipeline(
            FreshEachRunStep(agent_pipeline),
            user_task,
            injection_task,
            injections,
            # AgentDojo calls this with all of the suite's tools.
            runtime_class=lambda _all: runtime_class(tools),
            environment=environment,
            verbose=verbose,
        )
        return scores

    def driven(
        self,
        model: ChatModel,
        user_task: BaseUserTask[ASBEnvironment],
        injection_task: BaseInjectionTask[ASBEnvironment] | None,
    ) -> ChatModel:
        """Wrap the model for this mode's conversation."""
        attack_tool = getattr(injection_task, "attack_tool", None)
        return wrap_planned_model(CountedReplies(model), mode=self.mode, attack_tool=attack_tool)

    def measured(self, finished: FinishedCase) -> CaseScores:
        """Measure both criteria, and the cause of the attack's success."""
        return measure_asb_case(
            finished, self.agent, self.mode, self.criterion, judge_refusals=self.judge_refusals
        )


class FreshEachRunStep(LoopStep):
    """Clears the recorded calls before each run of the pipeline.

    AgentDojo runs a pipeline again, up to three times, if its last message is empty, on the environment as the run
    before left it (agentdojo 0.1.35): calls would be counted several times.
    """

    def __init__(self, pipeline: BasePipelineElement) -> None:
        self.pipeline = pipeline
        self.name = pipeline.name

    def step(self, at: LoopState) -> LoopState:
        """Run the pipeline once."""
        if isinstance(at.env, ASBEnvironment):
            at.env.uses.clear()
            start_counting()
        return at.run_element(self.pipeline)


_SUBSETS: Mapping[str, Callable[[AttackTool], bool]] = {
    "all": lambda tool: True,
    "aggressive": lambda tool: tool.aggressive,
    "non_aggressive": lambda tool: not tool.aggressive,
}


class ASB(Benchmark):
    """The benchmark, in one of ASB's modes.

    The mode, and a criterion other than `execution`, are part of the benchmark's name, so that results of two modes are
    never in one column.

    Args:
        mode: `faithful`, `clean_plan`, `hidden_tool` or `react` (see agentsys.benchmarks.asb.planned_model).
        data: `sample` (part of the package), `fetched` (after `agentsys fetch asb`) or a folder.
        tasks: Number of each agent's tasks, from the first; `all` for all of them.
        attack_tools: `all`, `aggressive` or `non_aggressive`.
        criterion: Criterion of a record's two scores: `execution` or `text`. Both are always measured.
        suites: The agents to offer; None: all of the data set.
        user_name: The user's name, for attacks.
        refusal_judge: True: a model judges if the agent refused to help.
        simulated_planner: Plans of the simulated model: `honest` or `chooses_attack_tool`.
    """

    injection = "exact"
    """Injected texts are used unchanged, without a YAML file in between."""
    facts = ASB_FACTS

    def __init__(
        self,
        mode: str = "react",
        data: str = "sample",
        tasks: int | str = 1,
        attack_tools: str = "all",
        criterion: str = "execution",
        suites: Sequence[str] | None = None,
        user_name: str = "the user",
        refusal_judge: bool | None = None,
        simulated_planner: str = "honest",
    ) -> None:
        self.mode = find_enum_member("benchmark.mode", mode, AsbMode)
        self.criterion = find_enum_member("benchmark.criterion", criterion, AsbCriterion)
        text = "" if self.criterion is AsbCriterion.EXECUTION else f"+{self.criterion.value}"
        self.name = f"asb-{self.mode.value}{text}"
        self.user_name = user_name
        self.simulated_planner = simulated_planner
        # A misspelled value must not cost a model call per case.
        if refusal_judge is not None and not isinstance(refusal_judge, bool):
            raise ConfigError(f"benchmark.refusal_judge={refusal_judge}: give true or false.")
        count = _count_tasks(tasks)
        loaded, self.version = load_asb_data(str(data))
        is_wanted = _SUBSETS[require_known_name("benchmark.attack_tools", attack_tools, _SUBSETS)]
        agents = {agent.name: agent for agent in loaded.agents}
        self._suites = {
            name: ASBSuite(
                agents[name],
                self.mode,
                tasks=count,
                attacks=[number for number, tool in enumerate(agents[name].attack_tools) if is_wanted(tool)],
                criterion=self.criterion,
                judge_refusals=bool(refusal_judge),
            )
            for name in choose_suites("agent of benchmark.suites", suites, agents)
        }

    def suite_names(self) -> Sequence[str]:
        """List the offered agents, in the data set's order."""
        return tuple(self._suites)

    def suite(self, name: str) -> ASBSuite:
        """Return an agent's suite, the same object on every call."""
        return self._suites[require_known_name(f"agent of {self.name} {self.version}", name, self._suites)]

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Return the simulated model's handlers for planner, judge and agent."""
        return make_asb_roles(self.simulated_planner)


def _count_tasks(tasks: int | str) -> int | None:
    """Number of tasks of each agent; None for all."""
    if tasks == "all":
        return None
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise ConfigError(f"benchmark.tasks={tasks}: give a number from 1 (ASB's own grid: 1), or all.")
    return tasks
