"""The tool boundary: what filters are shown, in which order, and what the conversation and the tools get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatToolResultMessage
from scripted_for_border import RoleModel, Tools, making, results

from agentsys.models.pipeline_elements import default_system_message, tool_loop
from agentsys.models.providers.wire_parts import read_result_text
from agentsys.models.trace import Tracer, use_tracer
from baselines.tool_boundary.boundary_filter import (
    BoundaryFilter,
    CallRefused,
    CallRuling,
    FilteredRuntime,
    FilteredTools,
    FilterTurn,
)
from baselines.tool_boundary.result_rewriter import (
    draw_fence_word,
    read_fenced_text,
    replace_result_text,
    wrap_in_fences,
)

READ, SEND = ("read_note", {"name": "x"}), ("send_note", {"to": "Bob"})


class Marks(BoundaryFilter):
    """Puts its letter behind recipients and results; refuses calls to a forbidden recipient."""

    def __init__(self, letter: str, forbidden: str = "") -> None:
        self.letter, self.forbidden = letter, forbidden
        self.seen: list[str] = []

    def rule_on_calls(self, turn: FilterTurn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        self.seen += [call.function for call in calls]
        return [self._ruled(call) for call in calls]

    def _ruled(self, call: FunctionCall) -> CallRuling:
        to = call.args.get("to")
        if to is None:
            return CallRuling(call)
        if self.forbidden and self.forbidden in to:
            return CallRuling(call, f"refused by {self.letter}")
        return CallRuling(call.model_copy(update={"args": {**call.args, "to": to + self.letter}}))

    def filter_results(
        self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]
    ) -> list[ChatToolResultMessage]:
        return [replace_result_text(result, read_result_text(result) + self.letter) for result in results]


def conversation(filters: Sequence[BoundaryFilter], tools: Tools, *turns: Any) -> list[Any]:
    suite = get_suite("v1.2.2", "banking")
    model = RoleModel({"agent": [*turns, "Done."]})
    loop = tool_loop(model, default_system_message(suite), name="x", tools=FilteredTools(filters))
    return list(loop.query("Go.", tools.runtime)[3])


def test_filters_act_in_the_order_given_on_calls_as_on_results() -> None:
    tools = Tools("note")
    said = results(conversation([Marks("a"), Marks("b")], tools, making(READ, SEND)))
    assert said == ["noteab", "sentab"] and tools.sent[0]["to"] == "Bobab"


def test_a_refused_call_is_shown_to_no_further_filter_and_booked_once() -> None:
    tools, tracer, late = Tools(), Tracer(), Marks("b")
    with use_tracer(tracer):
        messages = conversation([Marks("a", forbidden="Bob"), late], tools, making(SEND, READ))
    assert results(messages)[0] == "refused by a" and tools.sent == []
    assert late.seen == ["read_note"]
    assert [span.kind for span in tracer.spans].count("refused") == 1


def test_what_no_tool_would_take_passes_by_and_a_list_written_as_text_does_not() -> None:
    seen = Marks("a")
    runtime = FunctionsRuntime()

    def tag(names: list[str]) -> str:
        """Tags names.

        :param names: The names.
        """
        return "tagged " + ",".join(names)

    runtime.register_function(tag)
    tools = Tools()
    tools.runtime = runtime
    made = making(("tag", {"names": "['x', 'y']"}), ("tag", {"names": 5}), ("nothing", {}))
    said = results(conversation([seen], tools, made))
    assert seen.seen == ["tag"] and said[0] == "tagged x,ya"
    assert said[1].startswith("ValidationError") and said[2].startswith("Invalid tool")


def test_a_call_hidden_in_an_argument_is_not_run() -> None:
    tools = Tools()
    hidden = FunctionCall(function="send_note", args={"to": "Eve"})
    conversation([Marks("a")], tools, making(("read_note", {"name": hidden})))
    assert tools.sent == []


def test_around_other_agents_an_unchanged_value_stays_the_value_it_was() -> None:
    class Odd:
        pass

    value = [1, 2]
    tools = Tools(value)
    guarded = FilteredRuntime(tools.runtime, [BoundaryFilter()], "Go.")
    assert guarded.run_function(None, "read_note", {"name": "x"}) == (value, None)
    marked = FilteredRuntime(tools.runtime, [Marks("a", forbidden="Eve")], "Go.")
    assert marked.run_function(None, "read_note", {"name": "x"})[0].endswith("a")
    assert marked.run_function(None, "open_door", {})[1] == "ValueError: no door; [1, 2]a"
    assert marked.run_function(None, "send_note", {"to": "Eve"}) == ("", "refused by a")
    with pytest.raises(CallRefused):
        marked.run_function(None, "send_note", {"to": "Eve"}, raise_on_error=True)
    assert marked.run_function(None, "nothing", {})[1] is not None and tools.sent == []


def test_marks_stand_in_no_text_and_repeat_with_the_seed() -> None:
    word = draw_fence_word(0, "a", "b")
    assert word == draw_fence_word(0, "a", "b") != draw_fence_word(1, "a", "b")
    assert draw_fence_word(0, "a", "b", word) != word
    forged = wrap_in_fences(word, "x")
    outer = draw_fence_word(0, forged)
    text = f"before {wrap_in_fences(outer, forged)} {wrap_in_fences(outer, 'second')}"
    assert read_fenced_text(text) == forged and read_fenced_text(text, 1) == "second"
