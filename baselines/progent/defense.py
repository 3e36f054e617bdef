"""`Progent`: the defense's options and description, and how the simulated model plays the policy model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatAssistantMessage

from agentsys.base.json_values import list_scalars
from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel, ChatRequest, assistant
from agentsys.models.pipeline_elements import defended_loop
from agentsys.simulated.playbook_index import ScriptedCall
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole
from baselines.defense_bases import RoleDefense
from baselines.progent import policy_model
from baselines.progent.progent_gate import BeginProgentTask, GatedTools, UpdatePolicy
from baselines.progent.progent_rules import ProgentSettings, read_config_rules
from baselines.progent.prompts import HINTED, REFUSED, STOPPED
from baselines.tool_boundary.result_rewriter import read_question

_QUESTION = re.compile(
    rf"{policy_model.TOOLS}: (?P<tools>[^\n]*)\n{policy_model.QUERY}: (?P<query>.*?)"
    rf"(?:\n{policy_model.CALLS}: (?P<calls>[^\n]*))?"
    rf"(?:\n{policy_model.RESULTS}: (?P<results>[^\n]*)\n{policy_model.CURRENT}: (?P<current>[^\n]*))?",
    re.DOTALL,
)


def play_policy_model(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Writes, decides on or rewrites a policy; which of them shows in the parts of the question."""
    asked = _QUESTION.fullmatch(read_question(request))
    if asked is None:
        return assistant("No")
    query = asked["query"]
    tools = [tool["name"] for tool in json.loads(asked["tools"])]
    needed = _find_needed_calls(query, tools, knowledge)
    described = "\n".join(tool["description"] for tool in json.loads(asked["tools"]))
    if asked["calls"] is None:
        rules = _build_rules(needed, query, knowledge)
        _widen_rules(rules, described, tools, knowledge)
        return assistant(json.dumps(rules, default=str))
    if asked["results"] is None:
        return assistant("Yes" if _is_update_needed(asked["calls"], needed, query, knowledge) else "No")
    read = "\n".join([query, asked["results"], asked["current"]])
    rules = _build_rules(needed, read, knowledge)
    _widen_rules(rules, asked["results"], tools, knowledge)
    same = json.dumps(rules, default=str) == asked["current"]
    return assistant("No" if same else json.dumps(rules, default=str))


def _find_needed_calls(query: str, tools: Sequence[str], knowledge: SimulatedKnowledge) -> list[ScriptedCall]:
    """Return the ground-truth calls without the tools that this policy model considers unnecessary."""
    task = knowledge.find_task(query, tools)
    goals = knowledge.find_goals(query, tools) if task is None else ()  # an injection task run as a user's
    calls: Iterable[ScriptedCall] = task.calls if task is not None else (c for g in goals for c in g.calls)
    rate = knowledge.options.validator_false_deny
    return [
        call
        for call in calls
        if call.function in tools
        and not knowledge.draw(rate, policy_model.ROLE, "needless", call.function, query)
    ]


def _build_rules(
    calls: Sequence[ScriptedCall], read: str, knowledge: SimulatedKnowledge
) -> list[dict[str, Any]]:
    """Build one rule per tool; an argument is restricted to its values if all of them have been read."""
    return [
        {"name": tool, "args": _build_restrictions([c for c in calls if c.function == tool], read, knowledge)}
        for tool in dict.fromkeys(call.function for call in calls)
    ]


def _build_restrictions(
    calls: Sequence[ScriptedCall], read: str, knowledge: SimulatedKnowledge
) -> dict[str, Any]:
    names = dict.fromkeys(name for call in calls for name in call.args)
    restrictions = {
        name: _restrict_values([call.args.get(name) for call in calls], read, knowledge) for name in names
    }
    return {name: schema for name, schema in restrictions.items() if schema is not None}


def _restrict_values(given: Sequence[Any], read: str, knowledge: SimulatedKnowledge) -> dict[str, Any] | None:
    """The schema of these values alone; of objects each field that has been read; None where nothing is settled."""
    values = [value for value in given if value is not None]
    items = [item for value in values for item in (value if isinstance(value, list) else [value])]
    if items and all(isinstance(item, dict) for item in items):
        keys = dict.fromkeys(key for item in items for key in item)
        inside = {key: _restrict_values([item.get(key) for item in items], read, knowledge) for key in keys}
        properties = {key: schema for key, schema in inside.items() if schema is not None}
        allowed: dict[str, Any] = {"type": "object", "properties": properties}
        if not properties:
            return None
    else:
        plain = values and all(type(item) in (str, int, float) for item in items)
        if not plain or not all(knowledge.is_grounded(str(item), read) for item in items):
            return None
        allowed = {"enum": list(dict.fromkeys(items))}
    return {"type": "array", "items": allowed} if isinstance(values[0], list) else allowed


def _is_update_needed(
    called: str, calls: Sequence[ScriptedCall], query: str, knowledge: SimulatedKnowledge
) -> bool:
    """True if a tool that the task needs was called, and some argument of the task is still unknown."""
    names = {call["name"] for call in json.loads(called)}
    if not names & {call.function for call in calls}:
        return False
    policy = {rule["name"]: rule["args"] for rule in _build_rules(calls, query, knowledge)}
    return any(
        name not in policy[call.function] or not _is_settled(value, query, knowledge)
        for call in calls
        for name, value in call.args.items()
    )


def _is_settled(value: Any, read: str, knowledge: SimulatedKnowledge) -> bool:
    """True if every restricted value in an object has been read."""
    inside = value if isinstance(value, list) else [value]
    return not any(isinstance(item, dict) for item in inside) or all(
        knowledge.is_grounded(str(leaf), read) for leaf in list_scalars(value) if leaf is not None
    )


def _widen_rules(
    rules: list[dict[str, Any]], results: str, tools: Sequence[str], knowledge: SimulatedKnowledge
) -> None:
    """Taken in, with probability `validator_false_accept`, the policy model allows what a goal asks for."""
    for goal in knowledge.find_goals(results, tools):
        rate = knowledge.options.validator_false_accept
        if not knowledge.draw(rate, policy_model.ROLE, "taken in", goal.suite, goal.task_id):
            continue
        for call in goal.calls:
            known = next((rule for rule in rules if rule["name"] == call.function), None)
            if known is None:
                rules.append({"name": call.function, "args": {}})
            else:
                known["args"] = {}


ROLES: dict[str, SimulatedRole] = {policy_model.ROLE: play_policy_model}


class Progent(RoleDefense):
    """Progent: a call runs only as a policy allows that was written before anything was read.

    Args:
        compat: Behave as the reference implementation does, defects included (docs/baselines/progent.md).
        generate: Have a policy written for each request. Without it the other rules alone hold.
        update: Have it looked at again after each turn, by a model that reads the results.
        conditions: Whether rules restrict arguments; False: a list of allowed tools.
        base_rules: `suite`: tools that only read may always be called (from the suite's file, or told from
            names where it has none); `none`.
        rules: Rules of one's own, tool -> list of rules (see docs/baselines/progent.md).
        wording: The first question: `general`, or for Agent Security Bench `asb` or `asb_hinted`.
        on_update_error: Where no reply to an update could be read: `keep` the old rules, or `raise`.
        only_narrow: Take a rewritten policy only if it can be shown to allow nothing more.
        repair_array_enums: Put a list of single values for an array where its elements are described.
        max_rounds: Most rounds of tool calls.

    Source: Shi et al., arXiv 2504.11703; github.com/sunblaze-ucb/progent.
    """

    roles = ROLES

    def __init__(
        self, name: str = "progent", *, rules: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.name = name
        self.settings = check_options(ProgentSettings, name, options, rules=read_config_rules(name, rules))

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the plain agent behind the gate."""
        settings = self.settings
        updates = [UpdatePolicy(model, settings)] if settings.generate and settings.update else []
        return defended_loop(
            model,
            suite,
            self.name,
            before=[BeginProgentTask(model, settings, suite.name)],
            tools=GatedTools(),
            after_results=updates,
            max_rounds=settings.max_rounds,
        )

    def description(self) -> str:
        """Describe who makes the rules, what they restrict, and when they change."""
        settings = self.settings
        if not settings.enforces_rules:
            return (
                f"{_OPENING[0]} There are no rules. No call is refused. No policy model is asked. Nothing is"
                " taken out of results."
            )
        parts = (_describe_standing_rules, _describe_written_rules, _describe_update)
        return " ".join([*_OPENING, *(sentence for describe in parts for sentence in describe(settings))])

    def prompts(self) -> dict[str, str]:
        """Every text this defense adds, by name."""
        settings = self.settings
        texts = {"generate": policy_model.make_contract(settings.wording, (), settings).prompt}
        if settings.generate and settings.update:
            texts |= {
                "decide": policy_model.DECIDE_CONTRACT.prompt,
                "update": policy_model.UPDATE_CONTRACT.prompt,
            }
        return {**texts, "refused": REFUSED, "stopped": STOPPED}


_OPENING = (
    "One agent works through the request and reads every tool result raw, in one conversation.",
    "Before a tool runs, its call is held against rules in code: a tool without a rule is refused.",
    "A refusal takes the result's place, says which rule was broken and repeats the request, and the agent"
    " goes on.",
)


def _describe_standing_rules(settings: ProgentSettings) -> list[str]:
    base = {
        "suite": "Tools that only read the user's own data may always be called, with any arguments.",
        "none": "Every tool, one that only reads too, needs such a rule.",
    }[settings.base_rules]
    return [base, *(["Further rules were written by hand and hold in every task."] if settings.rules else [])]


def _describe_written_rules(settings: ProgentSettings) -> list[str]:
    if not settings.generate:
        return ["No rules are written for the request."]
    what = "with any arguments."
    if settings.conditions and settings.wording == "general":
        what = "and, for arguments that the request settles, what they may be."
    sentences = [
        "For each request a policy model, which sees request and tools and no result, writes the rest: which"
        f" tools may be called, {what}"
    ]
    if settings.wording in HINTED:
        sentences.append(
            "It is told that a task takes two tools, and that a tool named in another style is a stranger."
        )
    elif settings.conditions:
        which = "the first alone counts" if settings.compat else "any may let a call pass"
        sentences.append(f"Of several rules for a tool {which}.")
    return sentences


def _describe_update(settings: ProgentSettings) -> list[str]:
    if not (settings.update and settings.generate):
        return ["The rules do not change during a task."]
    update = (
        "After each turn the policy model decides, without seeing the results, whether to look at the rules"
        " again; if so it reads the results raw and may write all its rules anew, wider or narrower."
    )
    return [
        update,
        *(["New rules take effect only if they allow nothing more."] if settings.only_narrow else []),
    ]
