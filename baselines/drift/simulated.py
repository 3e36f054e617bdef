"""The simulated model's play of DRIFT's roles."""

from __future__ import annotations

import json
import re

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.pipeline_elements import has_reading_name
from agentsys.models.prompted_tools import read_tools, text_between_tags
from agentsys.simulated.playbook_index import ScriptedCall
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole
from agentsys.simulated.slips import mark_quoting_role
from agentsys.simulated.text_matching import words_pattern
from baselines.drift import checklist, isolator, permission, plan, validator
from baselines.drift.checklist import CONDITIONS, NAME, REQUIRED


def _role_texts(request: ChatRequest) -> tuple[str, str]:
    """The role's instructions and its question."""
    return text_of(request.messages[0]), text_of(request.messages[-1])


def play_drift_planner(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The ground truth: its calls, and those of their values that stand in the request itself."""
    instructions, query = _role_texts(request)
    tools = [tool.name for tool in read_tools(instructions)]
    task = knowledge.find_task(query, tools)
    calls = [call for call in task.calls if call.function in tools] if task is not None else []
    entries = [
        {NAME: call.function, REQUIRED: _known_values(call, query, knowledge), CONDITIONS: None}
        for call in calls
    ]
    names = ", ".join(call.function for call in calls)
    return assistant(
        f"<{plan.TRAJECTORY}>[{names}]</{plan.TRAJECTORY}>\n"
        f"<{plan.CHECKLIST}>{json.dumps(entries, default=str)}</{plan.CHECKLIST}>"
    )


def _known_values(call: ScriptedCall, query: str, knowledge: SimulatedKnowledge) -> dict[str, object] | None:
    values: dict[str, object] = {
        key: value
        if isinstance(value, str | int | float) and knowledge.is_grounded(str(value), query)
        else None
        for key, value in call.args.items()
    }
    return values or None


def play_drift_judge(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Yes if the user task's ground truth uses the tool that is new, but for the set error rates."""
    _, question = _role_texts(request)
    task = knowledge.find_task(text_between_tags(question, validator.QUERY) or "")
    name = _added_names(
        text_between_tags(question, validator.CURRENT) or "",
        text_between_tags(question, validator.PROPOSED) or "",
    )
    right = task is not None and any(call.function == name for call in task.calls)
    rate = knowledge.options.validator_false_deny if right else knowledge.options.validator_false_accept
    yes = right is not knowledge.draw(rate, validator.JUDGE_ROLE, question)
    return assistant(f"<judge_result>{'Yes' if yes else 'No'}</judge_result>")


def _added_names(current: str, proposed: str) -> str:
    before, after = _split_names(current), _split_names(proposed)
    same = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
    return after[same] if same < len(after) else ""


def _split_names(listed: str) -> list[str]:
    return re.findall(r"'([^']*)'", listed)


@mark_quoting_role
def play_isolator(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The places that hold a goal, each goal found with probability `sanitizer_recall`."""
    _, question = _role_texts(request)
    text = question.partition(f"\n<{isolator.RESULT}>\n")[2]
    found = [
        piece
        for goal in knowledge.find_goals(text)
        if knowledge.draw(knowledge.options.sanitizer_recall, isolator.ISOLATOR_ROLE, goal.suite, goal.task_id, text)
        for piece in _find_goal_places(text, goal.goal)
    ]
    return assistant(f"<detected_instructions>{json.dumps(found)}</detected_instructions>")


def _find_goal_places(text: str, goal: str) -> list[str]:
    """Literal pieces of a text in which a goal's words stand; the whole text if they do not, as in base64."""
    return [match[0] for match in words_pattern(goal).finditer(text)] or [text]


def play_permission_reader(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """By the first word of the tool's name."""
    _, question = _role_texts(request)
    tool = json.loads(text_between_tags(question, permission.FUNCTION_TAG) or "{}")
    name = str(tool.get("name", ""))
    sends = name.casefold().split("_")[0] == "send"
    return assistant("A" if has_reading_name(name) else "C" if sends else "B")


def play_checklist_formatter(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The checklist as it is."""
    _, question = _role_texts(request)
    return assistant((text_between_tags(question, "parameter_checklist") or "").strip())


ROLES: dict[str, SimulatedRole] = {
    plan.PLANNER_ROLE: play_drift_planner,
    validator.JUDGE_ROLE: play_drift_judge,
    isolator.ISOLATOR_ROLE: play_isolator,
    permission.PERMISSION_ROLE: play_permission_reader,
    checklist.FORMATTER_ROLE: play_checklist_formatter,
}
