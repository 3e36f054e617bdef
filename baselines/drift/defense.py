"""`Drift`: the defense's options and description, and how the simulated model plays its roles."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatAssistantMessage

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel, ChatRequest, assistant, text_of
from agentsys.models.pipeline_elements import default_system_message, has_reading_name, make_named_pipeline
from agentsys.models.prompted_tools import find_text_between_tags, read_tools
from agentsys.simulated.playbook_index import ScriptedCall, compile_words_pattern
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole
from agentsys.simulated.slips import mark_quoting_role
from agentsys.simulated.tool_offers import join_descriptions
from baselines.defense_bases import AgentDefense
from baselines.drift import drift_plan, drift_validator, injection_isolator
from baselines.drift.drift_agent import DriftAgent
from baselines.drift.drift_plan import DriftSettings, PermissionCache, ToolPermission
from baselines.drift.drift_validator import CONDITIONS, NAME, REQUIRED
from baselines.drift.prompts import ENVIRONMENT, PROMPTS
from baselines.tool_boundary.result_rewriter import read_question


def play_drift_planner(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Write down the ground truth: its calls, and those of their values that the request holds."""
    query = read_question(request)
    offered = read_tools(text_of(request.messages[0]))
    tools = [tool.name for tool in offered]
    task = knowledge.find_task(query, tools)
    goals = knowledge.find_told_goals(join_descriptions(offered), tools, "planner")
    asked = [*(task.calls if task is not None else ()), *(call for goal in goals for call in goal.calls)]
    calls = [call for call in asked if call.function in tools]
    entries = [
        {NAME: call.function, REQUIRED: _find_known_values(call, query, knowledge), CONDITIONS: None}
        for call in calls
    ]
    names = ", ".join(call.function for call in calls)
    return assistant(
        f"<{drift_plan.TRAJECTORY}>[{names}]</{drift_plan.TRAJECTORY}>\n"
        f"<{drift_plan.CHECKLIST}>{json.dumps(entries, default=str)}</{drift_plan.CHECKLIST}>"
    )


def _find_known_values(
    call: ScriptedCall, query: str, knowledge: SimulatedKnowledge
) -> dict[str, object] | None:
    def is_known(value: object) -> bool:
        return isinstance(value, str | int | float) and knowledge.is_grounded(str(value), query)

    return {key: value if is_known(value) else None for key, value in call.args.items()} or None


def play_drift_judge(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Yes if the user task's ground truth uses the tool that is new, but for the set error rates."""
    question = read_question(request)
    task = knowledge.find_task(find_text_between_tags(question, drift_validator.QUERY) or "")
    before, after = (
        re.findall(r"'([^']*)'", find_text_between_tags(question, tag) or "")
        for tag in (drift_validator.CURRENT, drift_validator.PROPOSED)
    )
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    name = after[same] if same < len(after) else ""
    right = task is not None and any(call.function == name for call in task.calls)
    rate = knowledge.options.validator_false_deny if right else knowledge.options.validator_false_accept
    yes = right is not knowledge.draw(rate, drift_validator.JUDGE_ROLE, question)
    return assistant(f"<judge_result>{'Yes' if yes else 'No'}</judge_result>")


@mark_quoting_role
def play_isolator(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """List the passages that hold a goal, each goal noticed with probability `sanitizer_recall`."""
    text = read_question(request).partition(f"\n<{injection_isolator.RESULT}>\n")[2]
    recall, role = knowledge.options.sanitizer_recall, injection_isolator.ISOLATOR_ROLE
    passages: list[str] = []
    for goal in knowledge.find_goals(text):
        if knowledge.draw(recall, role, goal.suite, goal.task_id, text):
            # Where its words do not stand in the text, as in base64, the whole of it is listed.
            passages += [match[0] for match in compile_words_pattern(goal.goal).finditer(text)] or [text]
    return assistant(f"<detected_instructions>{json.dumps(passages)}</detected_instructions>")


def play_permission_reader(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer by the first word of the tool's name."""
    tool = json.loads(find_text_between_tags(read_question(request), drift_plan.FUNCTION_TAG) or "{}")
    name = str(tool.get("name", ""))
    sends = name.casefold().split("_")[0] == "send"
    return assistant("A" if has_reading_name(name) else "C" if sends else "B")


def play_checklist_formatter(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer with the checklist unchanged."""
    return assistant((find_text_between_tags(read_question(request), drift_plan.CHECKLIST) or "").strip())


class Drift(AgentDefense):
    """DRIFT: secure planner, dynamic validator and injection isolator around a prompted agent.

    Args:
        compat: Behave as the reference implementation does, defects included (docs/baselines/drift.md).
        build_constraints: The planner: a trajectory and a checklist before anything is seen.
        dynamic_validation: The validator: unplanned reads pass, unplanned actions go to a judge. Without it
            the checklist alone holds calls to the plan, which then cannot grow.
        injection_isolation: The isolator: planted instructions are cut out of tool results.
        permissions: Tool -> Read, Write or Execute, for tools not to be asked about; None asks about all.
        judge_arguments: Show the judge the proposed calls with their arguments (the reference does not).
        unreadable_detection: What becomes of a result that the detector twice gave no readable answer about:
            `withhold` (a notice stands for it) or `keep`. Without effect under `compat`, which keeps it.
        message_cap: Calls run only if the actor was asked with at most so many messages, its system message
            included.
        max_rounds: Most turns after the first.

    Source: Li et al., arXiv 2506.12104 (NeurIPS 2025).
    """

    roles: ClassVar[Mapping[str, SimulatedRole]] = {
        drift_plan.PLANNER_ROLE: play_drift_planner,
        drift_validator.JUDGE_ROLE: play_drift_judge,
        injection_isolator.ISOLATOR_ROLE: play_isolator,
        drift_plan.PERMISSION_ROLE: play_permission_reader,
        drift_validator.FORMATTER_ROLE: play_checklist_formatter,
    }
    texts: ClassVar[Mapping[str, str]] = {
        **PROMPTS,
        **drift_plan.PLANNER_CONTRACT.list_texts(),
        **injection_isolator.DETECTOR_CONTRACT.list_texts(),
        **drift_plan.PERMISSION_CONTRACT.list_texts(),
        **drift_validator.JUDGE_CONTRACT.list_texts(),
        **drift_validator.FORMATTER_CONTRACT.list_texts(),
    }

    def __init__(
        self,
        name: str = "drift",
        *,
        permissions: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        allowed = [permission.value for permission in ToolPermission]
        for tool, word in (permissions or {}).items():
            if word not in allowed:
                raise ConfigError(unknown_name(f"permission of {tool} in {name}", str(word), allowed))
        known = MappingProxyType({tool: ToolPermission(word) for tool, word in (permissions or {}).items()})
        self.settings = check_options(DriftSettings, name, options, permissions=known)
        self._book = PermissionCache()

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the agent for one case. Its conversation has no system message: each call builds its own."""
        environment = f"{default_system_message(suite)}\n{ENVIRONMENT}"
        agent = DriftAgent(model, self.settings, environment, self._book)
        return make_named_pipeline(f"{model.name}-{self.name}", InitQuery(), agent)

    def description(self) -> str:
        """Describe which of planner, validator and isolator are on, and what each lets through."""
        settings = self.settings
        parts = [
            "One agent works through the request and reads tool results in one conversation.",
            *_describe_plan(settings),
            *_describe_isolator(settings),
            f"Calls run only while the agent was asked with at most {settings.message_cap} messages, in at"
            f" most {settings.max_rounds} turns after the first.",
        ]
        return " ".join(parts)


def _describe_plan(settings: DriftSettings) -> list[str]:
    if not settings.build_constraints:
        return ["There is no plan, so that calls are held against nothing.", "No call is judged."]
    planned = [
        "Before anything untrusted is read, a planner writes down from the request which tools will be called"
        " in which order, and what their arguments must be or where they must come from.",
        "A planned call has to have the planned arguments.",
    ]
    if not settings.dynamic_validation:
        return [*planned, "A call outside the plan is refused, and the plan cannot grow."]
    seen = "with its arguments" if settings.judge_arguments else "by its tool's name, without its arguments"
    return [
        *planned,
        "A call outside the plan is let through if its tool only reads; if it writes or executes, a judge"
        f" model decides from the request, the plan and the call ({seen}) whether it serves the request.",
        "A call that was let through becomes part of the plan.",
    ]


def _describe_isolator(settings: DriftSettings) -> list[str]:
    if not settings.injection_isolation:
        return ["Nothing is cut out of tool results.", "No model looks through them before the agent does."]
    unreadable = {"withhold": "a notice stands for the result", "keep": "the result is kept"}
    return [
        "Each tool result is first read by a detector model, which names instructions in it that conflict"
        " with the request; what it names is cut out before the agent reads the rest.",
        f"If the detector twice gives no readable answer, {unreadable[settings.unreadable_detection]}.",
    ]
