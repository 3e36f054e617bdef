"""The simulated model's play of both firewalls."""

from __future__ import annotations

import json
from typing import Any

from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.simulated.script_grounding import leaf_forms, scalar_leaves
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole, remove_injected_passages
from baselines.border.asking import read_fenced_text
from baselines.firewall import minimizer, sanitizer
from baselines.firewall.prompts import MINIMIZER_QUESTION

_TASK, _TOOL, _PARAMETERS = "Task: ", "Tool: ", "Its parameters: "
assert all(f"\n{title}" in MINIMIZER_QUESTION for title in (_TASK, _TOOL, _PARAMETERS))


def play_minimizer(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The arguments whose values the task or its ground truth holds, and those the tool cannot do without.

    The ground truth stands for the results that values were taken from, which a Minimizer does not see.
    """
    question = text_of(request.messages[-1])
    args = json.loads(read_fenced_text(question))
    task = question.partition(_TASK)[2].partition(f"\n\n{_TOOL}")[0]
    required = json.loads(_read_line(question, _PARAMETERS)).get("required", [])
    script = knowledge.find_task(task)
    known = {
        form
        for call in (script.calls if script is not None else ())
        for leaf in scalar_leaves(call.args)
        for form in leaf_forms(leaf)
    }
    kept = {
        name: value
        for name, value in args.items()
        if name in required or _is_known(value, task, known, knowledge)
    }
    return assistant(json.dumps({"reasoning": "What the task needs.", minimizer.ARGUMENTS_KEY: kept}))


def _read_line(question: str, title: str) -> str:
    return question.partition(f"\n{title}")[2].partition("\n")[0]


def _is_known(value: Any, task: str, known: set[str], knowledge: SimulatedKnowledge) -> bool:
    """Whether every leaf of a value stands in the task or the ground truth; flags and nulls tell nothing."""
    forms = [leaf_forms(leaf) for leaf in scalar_leaves(value)]
    return all(
        not of_leaf or any(form in known or knowledge.is_grounded(form, task) for form in of_leaf)
        for of_leaf in forms
    )


def play_output_sanitizer(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The output without the goals that were found in it."""
    output = read_fenced_text(text_of(request.messages[-1]), 1)
    clean = remove_injected_passages(output, sanitizer.SANITIZER_ROLE, knowledge)
    said = {
        "reasoning": "I looked for instructions.",
        "was_safe": clean == output,
        "sanitized_output": clean,
    }
    return assistant(json.dumps(said, ensure_ascii=False))


ROLES: dict[str, SimulatedRole] = {minimizer.MINIMIZER_ROLE: play_minimizer, sanitizer.SANITIZER_ROLE: play_output_sanitizer}
