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
from baselines.border.asking import GuardAnswer, ask
from baselines.border.filter import CallRuling, Turn
from baselines.border.rewriter import OnDoubt, ResultRewriter, Rewriting, unread
from baselines.result_parsing.declared import (
    Expectation,
    expectation_of,
    made_up,
    of_declared_types,
    stands_in,
    with_leaves,
)
from baselines.result_parsing.prompts import expectation_question, extraction_question, read_marked

ROLE = "result_parser"


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

    def rule(self, turn: Turn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        """Declare what each call is to give back. No call is changed or refused."""
        self._expected.clear()
        for call in calls:
            self._expected[call.id, call.function].append(self._declare(turn, call))
        return [CallRuling(call) for call in calls]

    def _declare(self, turn: Turn, call: FunctionCall) -> Expectation | None:
        told = transcript(turn.messages) if self.conversation else ""
        tool = describe_tool(turn.runtime.functions[call.function])
        with span("expectation", call.function) as node:
            answer = self._ask(*expectation_question(self.options.seed, tool, call, told))
            expected = None if answer.value is None else expectation_of(answer.value)
            node.decision = {"filter": self.name, "asked": answer.asked, "unreadable": answer.unreadable}
            if expected is not None:
                node.decision |= {"expected": expected.text, "free_text": list(expected.free)}
        return expected

    def rewritten(self, turn: Turn, result: ChatToolResultMessage, text: str) -> Rewriting:
        """Take the declared data out of one result."""
        call = result["tool_call"]
        waiting = self._expected[call.id, call.function]
        expected = waiting.pop(0) if waiting else None
        if expected is None:
            return unread(text, self.options.on_unreadable, 0, 0, {"reason": "no expectation"})
        failed = bool(result["error"])
        answer = self._ask(*extraction_question(self.options.seed, expected.text, text, failed=failed))
        counted = answer.asked, answer.unreadable
        if answer.value is None:
            return unread(text, self.options.on_unreadable, *counted, {"reason": "no extraction"})
        return self._extracted(text, expected, answer.value, counted)

    def _extracted(
        self, text: str, expected: Expectation, extracted: str, counted: tuple[int, int]
    ) -> Rewriting:
        facts: dict[str, Any] = {
            "free_text": list(expected.free),
            "not_in_result": made_up(extracted, text),
        }
        if self.options.enforce:
            enforced = of_declared_types(extracted, expected)
            if enforced is None:
                facts["reason"] = "no object of the declared types"
                return unread(text, self.options.on_unreadable, *counted, facts)
            extracted, facts["wrong_type"] = enforced
        if self.options.strict_values:
            extracted = with_leaves(extracted, stands_in(text))
        shown = f"{expected.text}\n\n{extracted}" if self.options.show_expectation else extracted
        return Rewriting(shown, "extracted", *counted, facts)

    def _ask(self, question: str, word: str) -> GuardAnswer[str]:
        request = ChatRequest([user(question)], role=ROLE)
        return ask(self.model, request, lambda reply: read_marked(reply, word), self.options.retries)


def transcript(messages: Sequence[ChatMessage]) -> str:
    """A conversation as text: who said what, calls by name and arguments."""
    lines = []
    for message in messages:
        said = result_text(message) if message["role"] == "tool" else visible_text(message)
        made = message["tool_calls"] or () if message["role"] == "assistant" else ()
        called = [f"calls {call.function}({dict(call.args)})" for call in made]
        lines.append(f"{message['role']}: {' '.join([said, *called]).strip()}")
    return "\n".join(lines)
