"""`ResultParser`: data are declared before the tool runs, and taken out of the result afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, ChatToolResultMessage

from agentsys.base.option_checks import AtLeast0
from agentsys.models.chat import ChatModel, ChatRequest, user
from agentsys.models.pipeline_elements import describe_tool
from agentsys.models.providers.wire_parts import result_text, visible_text
from agentsys.models.trace import span
from baselines.border.asking import GuardAnswer, ask_guard
from baselines.border.filter import CallRuling, FilterTurn
from baselines.border.rewriter import OnDoubt, ResultRewriter, RewrittenResult, unreadable_result
from baselines.result_parsing.declared import (
    Expectation,
    read_declaration,
    find_made_up,
    keep_declared_types,
    build_presence_test,
    keep_leaves,
)
from baselines.result_parsing.prompts import expectation_question, extraction_question, read_marked

PARSER_ROLE = "result_parser"


@dataclass(frozen=True)
class ParsingOptions:
    """How results are parsed and checked; see `ToolResultParsing`."""

    retries: AtLeast0 = 1
    on_unreadable: OnDoubt = "withhold"
    show_expectation: bool = False
    strict_values: bool = False
    enforce: bool = False
    check_tool_action: Literal["remove", "reject"] = "remove"
    check_rounds: AtLeast0 = 0
    seed: int = 0


class ResultParser(ResultRewriter):
    """Declares and extracts. Never knows the user's task, unless it is shown the conversation.

    Args:
        model: The model asked, under the role `result_parser`.
        options: How.
        conversation: Whether expectations are declared with the conversation so far (ParseFull).
    """

    gives_verdicts = False

    def __init__(self, model: ChatModel, options: ParsingOptions, *, conversation: bool) -> None:
        self.model = model
        self.options = options
        self.conversation = conversation
        self.name = "parse_full" if conversation else "parse_data"  # type: ignore[misc]
        self._expected: defaultdict[tuple[str | None, str], list[Expectation | None]] = defaultdict(list)

    def rule_on_calls(self, turn: FilterTurn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        """Declare what each call is to give back. No call is changed or refused."""
        self._expected.clear()
        for call in calls:
            self._expected[call.id, call.function].append(self._declare(turn, call))
        return [CallRuling(call) for call in calls]

    def _declare(self, turn: FilterTurn, call: FunctionCall) -> Expectation | None:
        told = write_transcript(turn.messages) if self.conversation else ""
        tool = describe_tool(turn.runtime.functions[call.function])
        with span("expectation", call.function) as node:
            answer = self._ask_marked(*expectation_question(self.options.seed, tool, call, told))
            expected = None if answer.value is None else read_declaration(answer.value)
            node.decision = {"filter": self.name, "asked": answer.asked, "unreadable": answer.unreadable}
            if expected is not None:
                node.decision |= {"expected": expected.text, "free_text": list(expected.free)}
        return expected

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Take the declared data out of one result."""
        call = result["tool_call"]
        waiting = self._expected[call.id, call.function]
        expected = waiting.pop(0) if waiting else None
        if expected is None:
            return unreadable_result(text, self.options.on_unreadable, 0, 0, {"reason": "no expectation"})
        failed = bool(result["error"])
        answer = self._ask_marked(*extraction_question(self.options.seed, expected.text, text, failed=failed))
        counted = answer.asked, answer.unreadable
        if answer.value is None:
            return unreadable_result(text, self.options.on_unreadable, *counted, {"reason": "no extraction"})
        return self._check_extraction(text, expected, answer.value, counted)

    def _check_extraction(
        self, text: str, expected: Expectation, extracted: str, counted: tuple[int, int]
    ) -> RewrittenResult:
        facts: dict[str, Any] = {
            "free_text": list(expected.free),
            "not_in_result": find_made_up(extracted, text),
        }
        if self.options.enforce:
            enforced = keep_declared_types(extracted, expected)
            if enforced is None:
                facts["reason"] = "no object of the declared types"
                return unreadable_result(text, self.options.on_unreadable, *counted, facts)
            extracted, facts["wrong_type"] = enforced
        if self.options.strict_values:
            extracted = keep_leaves(extracted, build_presence_test(text))
        shown = f"{expected.text}\n\n{extracted}" if self.options.show_expectation else extracted
        return RewrittenResult(shown, "extracted", *counted, facts)

    def _ask_marked(self, question: str, word: str) -> GuardAnswer[str]:
        request = ChatRequest([user(question)], role=PARSER_ROLE)
        return ask_guard(self.model, request, lambda reply: read_marked(reply, word), self.options.retries)


def write_transcript(messages: Sequence[ChatMessage]) -> str:
    """A conversation as text: who said what, calls by name and arguments."""
    lines = []
    for message in messages:
        said = result_text(message) if message["role"] == "tool" else visible_text(message)
        made = message["tool_calls"] or () if message["role"] == "assistant" else ()
        called = [f"calls {call.function}({dict(call.args)})" for call in made]
        lines.append(f"{message['role']}: {' '.join([said, *called]).strip()}")
    return "\n".join(lines)
