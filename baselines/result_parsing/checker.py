"""`ToolCheck`: a model is given the result alone, with the tools; what makes it call one is taken out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatToolResultMessage

from agentsys.models.chat import ChatModel, ChatRequest, user
from agentsys.models.pipeline_elements import tool_specs
from baselines.border.asking import GuardAnswer, ask_guard
from baselines.border.filter import FilterTurn
from baselines.border.rewriter import ResultRewriter, RewrittenResult, unreadable_result
from baselines.result_parsing.parser import ParsingOptions
from baselines.result_parsing.prompts import REJECTED, read_marked, removal_question

CHECKER_ROLE = "result_checker"


class ToolCallCheck(ResultRewriter):
    """Lets an instruction in a result trigger its call where nothing comes of it, and then removes it.

    The call is never run and never shown to the agent.
    """

    name = "check_tool"

    def __init__(self, model: ChatModel, options: ParsingOptions) -> None:
        self.model = model
        self.options = options

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Check one result, and once more for each further round after something was taken out."""
        asked, unreadable = 0, 0
        triggered: list[dict[str, Any]] = []
        left = text
        for _ in range(self.options.check_rounds + 1):
            call = self._find_triggered_call(turn, left)
            asked += 1
            if call is None:
                break
            triggered.append({"tool": call.function, "args": str(dict(call.args))})
            if self.options.check_tool_action == "reject":
                return RewrittenResult(REJECTED, "withheld", asked, unreadable, {"triggered": triggered}, True)
            answer = self._remove_cause(left, call)
            asked, unreadable = asked + answer.asked, unreadable + answer.unreadable
            if answer.value is None:
                doubt, facts = self.options.on_unreadable, {"triggered": triggered}
                return replace(unreadable_result(left, doubt, asked, unreadable, facts), flagged=True)
            if answer.value.strip() == left.strip():
                break
            left = answer.value
        outcome = "clean" if left == text else "removed"
        facts = {"triggered": triggered} if triggered else {}
        return RewrittenResult(left, outcome, asked, unreadable, facts, bool(triggered))

    def _find_triggered_call(self, turn: FilterTurn, text: str) -> FunctionCall | None:
        """The first call that a result causes when it is read alone, as if a user had said it."""
        tools = tool_specs(turn.runtime.functions.values())
        reply = self.model.complete(ChatRequest([user(text)], tools, CHECKER_ROLE)).message
        calls = reply["tool_calls"] or ()
        return calls[0] if calls else None

    def _remove_cause(self, text: str, call: FunctionCall) -> GuardAnswer[str]:
        question, word = removal_question(self.options.seed, text, call)
        request = ChatRequest([user(question)], role=CHECKER_ROLE)
        return ask_guard(self.model, request, lambda reply: read_marked(reply, word), self.options.retries)
