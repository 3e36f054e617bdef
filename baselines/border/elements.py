"""`FilteredTools`: filters as the element of a plain tool loop that runs its tools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import (
    ChatAssistantMessage,
    ChatToolResultMessage,
)

from agentsys.models.chat import assistant, tool_message
from agentsys.models.pipeline_elements import LoopState, LoopStep, ToolsElement, parse_list_text
from baselines.border.filter import BoundaryFilter, CallRuling, EndCase, FilterTurn, apply_to_results, tool_accepts, apply_to_calls

CallHistory = Literal["proposed", "executed"]
"""Which arguments stand in the conversation where a filter changed them."""


class FilteredTools(LoopStep):
    """Runs the latest message's calls between filters; stands where AgentDojo's executor would.

    All calls of a turn are ruled on before the first one runs, and all results are read before the agent
    sees the first. Answers that no tool gave (unknown tool, arguments it does not take, refusals) hold the
    agent's own words and pass by.

    Args:
        filters: The filters, each acting on what the one before it left.
        history: Whether the agent's message keeps the calls it `proposed`, or shows those `executed`.
    """

    runs_tools = True

    def __init__(self, filters: Sequence[BoundaryFilter], history: CallHistory = "proposed") -> None:
        self.filters = tuple(filters)
        self.history: CallHistory = history
        self._executor = ToolsElement()

    def step(self, at: LoopState) -> LoopState:
        """Run the calls of the last message, if it makes any.

        Raises:
            AbortAgentError: If a filter ends the case.
            ModelError: If a filter's model gave no reply.
        """
        last = at.messages[-1] if at.messages else None
        if last is None or last["role"] != "assistant" or not last["tool_calls"]:
            return at
        turn = FilterTurn(at.query, at.runtime, at.messages)
        rulings = apply_to_calls(self.filters, turn, [_repair_call(call) for call in last["tool_calls"]])
        answers = [self._answer_call(ruling, at) for ruling in rulings]
        open_ = [
            place
            for place, ruling in enumerate(rulings)
            if ruling.refusal is None and tool_accepts(at.runtime, ruling.call)
        ]
        before = [*at.messages[:-1], self._message_to_show(last, rulings)]
        try:
            read = apply_to_results(self.filters, turn, [answers[place] for place in open_])
        except EndCase as end:
            kept = _replace_at(answers, open_, end.results)
            raise AbortAgentError(str(end), [*before, *self._pair_with_calls(kept, last)], at.env) from None
        return replace(at, messages=[*before, *self._pair_with_calls(_replace_at(answers, open_, read), last)])

    def _answer_call(self, ruling: CallRuling, at: LoopState) -> ChatToolResultMessage:
        if ruling.refusal is not None:
            return tool_message(ruling.call, "", ruling.refusal)
        run = self._executor.query(at.query, at.runtime, at.env, [assistant(None, [ruling.call])])[3]
        result: ChatToolResultMessage = run[-1]
        return result

    def _message_to_show(self, message: ChatAssistantMessage, rulings: Sequence[CallRuling]) -> ChatAssistantMessage:
        if self.history == "proposed":
            return message
        return {**message, "tool_calls": [ruling.call for ruling in rulings]}

    def _pair_with_calls(
        self, results: Sequence[ChatToolResultMessage], message: ChatAssistantMessage
    ) -> list[ChatToolResultMessage]:
        """The results under the calls that the conversation shows."""
        if self.history == "executed":
            return list(results)
        proposed = message["tool_calls"] or []
        return [
            result if result["tool_call"] is call else {**result, "tool_call": call}
            for result, call in zip(results, proposed, strict=True)
        ]


def _repair_call(call: FunctionCall) -> FunctionCall:
    """The call as the executor will run it, so that filters see no other one.

    A list that a model wrote as a text becomes the list, in place, as AgentDojo's executor does it. A call
    nested in the arguments, which would run unseen, becomes plain data; models cannot send one.
    """
    for name, value in call.args.items():
        if isinstance(value, FunctionCall):
            call.args[name] = value.model_dump()
        elif isinstance(value, str):
            call.args[name] = parse_list_text(value)
    return call


def _replace_at(messages: Sequence[Any], places: Sequence[int], new: Sequence[Any]) -> list[Any]:
    changed = list(messages)
    for place, message in zip(places, new, strict=True):
        changed[place] = message
    return changed
