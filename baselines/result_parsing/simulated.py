"""The simulated model's play of parser and checker."""

from __future__ import annotations

import json

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.simulated.simulated_role import (
    SimulatedKnowledge,
    SimulatedRole,
    find_injected_passages,
    remove_injected_passages,
)
from agentsys.simulated.text_matching import find_instruction_spans
from baselines.border.asking import wrap_in_fences, read_fenced_text
from baselines.result_parsing import checker, parser

ANYTHING = [{"name": "data", "meaning": "what the tool gives back", "type": "object", "format": None}]
"""What a simulated parser expects: it does not know the task, and so cannot say more."""
_MARK = "`[begin "


def play_result_parser(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The expectation; or, of a result, the values in it that a ground truth somewhere takes from results.

    A goal that stands in the result passes for data with probability 1 - `sanitizer_recall`.
    """
    question = text_of(request.messages[-1])
    word = question.rpartition(_MARK)[2].partition("]")[0]
    text = read_fenced_text(question, 1) if question.startswith("The data that") else None
    said = ANYTHING if text is None else _find_values(text, knowledge)
    return assistant(wrap_in_fences(word, json.dumps(said, ensure_ascii=False)))


def _find_values(text: str, knowledge: SimulatedKnowledge) -> dict[str, str]:
    facts = knowledge.index.facts
    found = {name: fact.text for name, fact in facts.items() if knowledge.is_grounded(fact.text, text)}
    noticed = set(find_injected_passages(text, parser.PARSER_ROLE, knowledge))
    passed = [
        piece
        for goal in knowledge.find_goals(text)
        for piece in find_instruction_spans(text, goal.goal)
        if piece not in noticed
    ]
    return {**found, **{f"note_{place}": piece for place, piece in enumerate(passed, 1)}}


def play_result_checker(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The first call of a goal that was found in a result; asked to remove it, the text without it."""
    question = text_of(request.messages[-1])
    if request.tools:
        return _find_first_call(question, request, knowledge)
    word = question.rpartition(_MARK)[2].partition("]")[0]
    left = remove_injected_passages(read_fenced_text(question), checker.CHECKER_ROLE, knowledge)
    return assistant(wrap_in_fences(word, left))


def _find_first_call(text: str, request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    tools = frozenset(tool.name for tool in request.tools)
    recall = knowledge.options.sanitizer_recall
    for goal in knowledge.find_goals(text, tools):
        if goal.calls and knowledge.draw(recall, checker.CHECKER_ROLE, goal.suite, goal.task_id, text):
            call = goal.calls[0]
            return assistant(None, [FunctionCall(function=call.function, args=dict(call.args), id="check")])
    return assistant("There is nothing to do.")


ROLES: dict[str, SimulatedRole] = {parser.PARSER_ROLE: play_result_parser, checker.CHECKER_ROLE: play_result_checker}
