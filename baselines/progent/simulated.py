"""How the simulated model plays the policy model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.simulated.playbook_index import ScriptedCall
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole
from baselines.progent.policy_model import CALLS, CURRENT, QUERY, RESULTS, ROLE, TOOLS

_QUESTION = re.compile(
    rf"{TOOLS}: (?P<tools>[^\n]*)\n{QUERY}: (?P<query>.*?)"
    rf"(?:\n{CALLS}: (?P<calls>[^\n]*))?"
    rf"(?:\n{RESULTS}: (?P<results>[^\n]*)\n{CURRENT}: (?P<current>[^\n]*))?",
    re.DOTALL,
)


def play_policy_model(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Writes, decides on or rewrites a policy; which of them shows in the parts of the question."""
    asked = _QUESTION.fullmatch(text_of(request.messages[-1]))
    if asked is None:
        return assistant("No")
    tools = [tool["name"] for tool in json.loads(asked["tools"])]
    needed = _find_needed_calls(asked["query"], tools, knowledge)
    if asked["calls"] is None:
        return assistant(json.dumps(_write_rules(needed, asked["query"], knowledge), default=str))
    if asked["results"] is None:
        return assistant("Yes" if _calls_for_update(asked["calls"], needed, asked["query"], knowledge) else "No")
    read = "\n".join([asked["query"], asked["results"], asked["current"]])
    rules = _write_rules(needed, read, knowledge)
    _widen_rules(rules, asked["results"], tools, knowledge)
    same = json.dumps(rules, default=str) == asked["current"]
    return assistant("No" if same else json.dumps(rules, default=str))


def _find_needed_calls(query: str, tools: Sequence[str], knowledge: SimulatedKnowledge) -> list[ScriptedCall]:
    """The ground-truth calls, less the tools that this policy model takes for needless."""
    task = knowledge.find_task(query, tools)
    goals = knowledge.find_goals(query, tools) if task is None else ()  # an injection task run as a user's
    calls: Iterable[ScriptedCall] = task.calls if task is not None else (c for g in goals for c in g.calls)
    rate = knowledge.options.validator_false_deny
    return [
        call
        for call in calls
        if call.function in tools and not knowledge.draw(rate, ROLE, "needless", call.function, query)
    ]


def _write_rules(calls: Sequence[ScriptedCall], read: str, knowledge: SimulatedKnowledge) -> list[dict[str, Any]]:
    """One rule per tool; an argument is restricted to its values if all of them have been read."""
    by_tool: dict[str, list[ScriptedCall]] = {}
    for call in calls:
        by_tool.setdefault(call.function, []).append(call)
    return [{"name": tool, "args": _write_restrictions(own, read, knowledge)} for tool, own in by_tool.items()]


def _write_restrictions(calls: Sequence[ScriptedCall], read: str, knowledge: SimulatedKnowledge) -> dict[str, Any]:
    found = {}
    for name in dict.fromkeys(name for call in calls for name in call.args):
        values = [call.args[name] for call in calls if call.args.get(name) is not None]
        items = [item for value in values for item in (value if isinstance(value, list) else [value])]
        if not values or not all(_is_known(item, read, knowledge) for item in items):
            continue
        enum = {"enum": list(dict.fromkeys(items))}
        found[name] = {"type": "array", "items": enum} if isinstance(values[0], list) else enum
    return found


def _is_known(item: Any, read: str, knowledge: SimulatedKnowledge) -> bool:
    if isinstance(item, bool) or not isinstance(item, str | int | float):
        return False
    return knowledge.is_grounded(str(item), read)


def _calls_for_update(
    called: str, calls: Sequence[ScriptedCall], query: str, knowledge: SimulatedKnowledge
) -> bool:
    """Whether a tool that the task needs was called, and some argument of the task is still unknown."""
    names = {call["name"] for call in json.loads(called)}
    if not names & {call.function for call in calls}:
        return False
    policy = {rule["name"]: rule["args"] for rule in _write_rules(calls, query, knowledge)}
    return any(name not in policy[call.function] for call in calls for name in call.args)


def _widen_rules(
    rules: list[dict[str, Any]], results: str, tools: Sequence[str], knowledge: SimulatedKnowledge
) -> None:
    """Taken in, with probability `validator_false_accept`, the policy model allows what a goal asks for."""
    for goal in knowledge.find_goals(results, tools):
        rate = knowledge.options.validator_false_accept
        if not knowledge.draw(rate, ROLE, "taken in", goal.suite, goal.task_id):
            continue
        for call in goal.calls:
            known = next((rule for rule in rules if rule["name"] == call.function), None)
            if known is None:
                rules.append({"name": call.function, "args": {}})
            else:
                known["args"] = {}


ROLES: dict[str, SimulatedRole] = {ROLE: play_policy_model}
