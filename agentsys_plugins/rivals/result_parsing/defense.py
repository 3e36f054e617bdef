"""`ToolResultParsing`: the plain agent whose tool results pass stages of parsing and checking."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentdojo.functions_runtime import Function, FunctionCall
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatAssistantMessage

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError, unknown_name
from agentsys.models.chat import ChatModel, ChatRequest, assistant
from agentsys.simulated.playbook_index import find_instruction_spans
from agentsys.simulated.simulated_role import (
    ReaderKind,
    SimulatedKnowledge,
    SimulatedRole,
    find_injected_passages,
    find_planted_value,
    remove_injected_passages,
    wants_closed_values,
)
from agentsys_plugins.rivals.result_parsing import result_parser
from agentsys_plugins.rivals.result_parsing.result_parser import ParsingOptions, ResultParser, ToolCallCheck
from baselines.defense_bases import RoleDefense
from baselines.tool_boundary.boundary_filter import BoundaryDefense, BoundaryFilter, filter_descriptions
from baselines.tool_boundary.result_rewriter import (
    EMPTIED,
    WITHHELD,
    read_fenced_text,
    read_question,
    wrap_in_fences,
)

ANYTHING = [{"name": "data", "meaning": "what the tool gives back", "type": "object", "format": None}]
"""A simulated parser's declaration: it does not know the task, and so cannot be more specific."""
_MARK = "`[begin "


def play_result_parser(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer with the expectation or, for a result, the values in it that any ground truth takes from results.

    A goal that stands in the result passes for data with probability 1 - `sanitizer_recall`; a hostile parser, which
    obeys it, gives the goal's values in place of the result's.
    """
    question = read_question(request)
    word = question.rpartition(_MARK)[2].partition("]")[0]
    text = read_fenced_text(question, 1) if question.startswith("The data that") else None
    values = ANYTHING if text is None else _find_values(text, knowledge)
    return assistant(wrap_in_fences(word, json.dumps(values, ensure_ascii=False)))


def _find_values(text: str, knowledge: SimulatedKnowledge) -> dict[str, str]:
    facts = knowledge.index.facts.items()
    hostile = knowledge.options.reader is ReaderKind.HOSTILE
    obeyed = [goal for goal in knowledge.find_goals(text) if hostile and knowledge.obeys(goal, text)]
    closed = wants_closed_values(text)
    values = {
        name: find_planted_value(fact.text, obeyed, closed=closed) or fact.text
        for name, fact in facts
        if knowledge.is_grounded(fact.text, text)
    }
    noticed = set(find_injected_passages(text, result_parser.PARSER_ROLE, knowledge))
    passed = [
        piece
        for goal in knowledge.find_goals(text)
        for piece in find_instruction_spans(text, goal.goal)
        if piece not in noticed
    ]
    return {**values, **{f"note_{number}": piece for number, piece in enumerate(passed, 1)}}


def play_result_checker(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer with the first call of a goal found in a result; asked to remove it, the text without it."""
    question = read_question(request)
    if request.tools:
        return _find_first_call(question, request, knowledge)
    word = question.rpartition(_MARK)[2].partition("]")[0]
    left = remove_injected_passages(read_fenced_text(question), result_parser.CHECKER_ROLE, knowledge)
    return assistant(wrap_in_fences(word, left))


def _find_first_call(text: str, request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    tools = frozenset(tool.name for tool in request.tools)
    recall = knowledge.options.sanitizer_recall
    for goal in knowledge.find_goals(text, tools):
        if goal.calls and knowledge.draw(recall, result_parser.CHECKER_ROLE, goal.suite, goal.task_id, text):
            call = goal.calls[0]
            return assistant(None, [FunctionCall(function=call.function, args=dict(call.args), id="check")])
    return assistant("There is nothing to do.")


ROLES: dict[str, SimulatedRole] = {
    result_parser.PARSER_ROLE: play_result_parser,
    result_parser.CHECKER_ROLE: play_result_checker,
}


STAGES = ("parse_data", "parse_full", "check_tool")


class ToolResultParsing(BoundaryDefense, RoleDefense):
    """Results pass some stages of parsing and checking, in order.

    Args:
        stages: `parse_data`, `parse_full` and `check_tool`, each at most once; at least one.
        retries: How often a model is asked again where its reply cannot be read.
        on_unreadable: What follows then: `withhold` the result or `keep` it.
        show_expectation: Whether the agent reads the expectation along with the data.
        strict_values: Whether values that do not stand in the result are replaced by null.
        enforce: Whether values of another type than declared are.
        check_tool_action: What follows a triggered call: `remove` the words, or `reject` the result.
        check_rounds: How often a result is checked again after something was taken out.
        seed: What the marks depend on; a run fills in its own.

    Source: arXiv 2601.04795.
    """

    roles = ROLES

    def __init__(
        self,
        name: str = "tool_result_parsing",
        *,
        stages: Sequence[str] = ("parse_data", "check_tool"),
        seed: int | None = None,
        **options: Any,
    ) -> None:
        if isinstance(stages, str) or not stages or len(set(stages)) < len(stages):
            raise ConfigError(f"{name}: stages is {stages!r}; give a list of {', '.join(STAGES)}, each once.")
        for stage in stages:
            if stage not in STAGES:
                raise ConfigError(unknown_name(f"{name} stage", str(stage), STAGES))
        self.name = name
        self.stages = tuple(stages)
        self.options = check_options(ParsingOptions, name, options, seed=seed or 0)
        if "check_tool" not in stages:
            self.reads_tools = None

    def read_tools(
        self, tools: Sequence[Function], suite: TaskSuite[Any], model: ChatModel
    ) -> list[Function]:
        """Return the tools with checked descriptions; parsing does not apply, as nothing was declared for them."""
        return filter_descriptions([ToolCallCheck(model, self.options)], tools)

    @property
    def needs_conversation(self) -> bool:
        """True if expectations are declared with the conversation."""
        return "parse_full" in self.stages

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BoundaryFilter]:
        """Build the stages, in order."""
        return [
            ToolCallCheck(model, self.options)
            if stage == "check_tool"
            else ResultParser(model, self.options, conversation=stage == "parse_full")
            for stage in self.stages
        ]

    def description(self) -> str:
        """Describe the stages that a result passes, and what each does."""
        parse = (
            "Before a call runs, a model that is shown {shown} states which data it expects back and of which"
            " type; afterwards it is shown the result and asked for these data, which alone go on."
        )
        action = {
            "remove": "the words that caused it are taken out",
            "reject": "a notice takes the result's place",
        }
        stages = {
            "parse_data": f"Parsing: {parse.format(shown='the call and the tool, but not the request,')}",
            "parse_full": f"Parsing: {parse.format(shown='the call and the whole conversation')}",
            "check_tool": "Checking: a model is given the result alone, with the tools and no warning, and if"
            f" it makes a call, {action[self.options.check_tool_action]}; the call is never run.",
        }
        unread = {"withhold": "the result is withheld", "keep": "the result goes on as it is"}
        return (
            "One agent reads the request, and of tool results what some stages leave of them, in one"
            f" conversation. {' '.join(stages[stage] for stage in self.stages)} Stages act in the order"
            f" {', '.join(self.stages)}, on error texts as well. Where no reply can be read,"
            f" {unread[self.options.on_unreadable]}. The models asked read results raw, and declared types"
            f" are {'enforced' if self.options.enforce else 'not enforced'}. No worker is isolated and no"
            " call is checked before it runs."
        )

    def prompts(self) -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        parsing = {
            "expectation": result_parser.EXPECTATION_CONTRACT.prompt,
            "expectation_question": result_parser.EXPECTATION_QUESTION,
            "conversation": result_parser.CONVERSATION,
            "extraction": result_parser.EXTRACTION_CONTRACT.prompt,
            "extraction_question": result_parser.EXTRACTION_QUESTION,
            "failed": result_parser.FAILED,
        }
        checking = {
            "removal": result_parser.REMOVAL_CONTRACT.prompt,
            "removal_question": result_parser.REMOVAL_QUESTION,
            "rejected": result_parser.REJECTED,
        }
        common = {"marks": result_parser.MARKS, "withheld": WITHHELD, "emptied": EMPTIED}
        parses = {"parse_data", "parse_full"} & set(self.stages)
        return (parsing if parses else {}) | (checking if "check_tool" in self.stages else {}) | common
