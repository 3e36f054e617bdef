"""Rounds told as assistant text say what was called and what came of it, and can be read back."""

from __future__ import annotations

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage
from hypothesis import given
from hypothesis import strategies as st

from agentsys.benchmarks.asb.asb_conversation import RoundForm, render_round, restore_rounds
from agentsys.models.chat import assistant, text_of, user

TEXT = RoundForm.ASSISTANT_TEXT
names = st.text("abcdefgh_", min_size=1, max_size=8)
outputs = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def result(call: FunctionCall, text: str, error: str | None = None) -> ChatMessage:
    content = user(text)["content"]
    return {"role": "tool", "content": content, "tool_call_id": call.id, "tool_call": call, "error": error}


def called(name: str) -> FunctionCall:
    return FunctionCall(function=name, args={"topic": "x"}, id=f"id_{name}")


def test_a_round_becomes_one_assistant_message_with_actions_then_observations() -> None:
    one, two = called("look_up"), called("note")
    (told,) = render_round(
        [assistant("words", [one, two]), result(one, "red; blue"), result(two, "filed")], TEXT
    )
    assert told["role"] == "assistant" and not told["tool_calls"]
    action, observation = text_of(told).split(";[Observation]:")
    assert action.startswith("[Action]:") and action.count(";") == 1
    assert action.index("look_up") < action.index("note")
    assert observation.index("red; blue") < observation.index("filed")


def test_what_a_defense_put_behind_the_results_stays_behind_the_round() -> None:
    call = called("look_up")
    round_ = [assistant(None, [call]), result(call, "red"), user("Remember your task.")]
    told, reminder = render_round(round_, TEXT)
    assert "red" in text_of(told) and reminder == user("Remember your task.")


@given(st.lists(st.tuples(names, outputs), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
def test_a_told_round_is_read_back_as_calls_and_results(pairs: list[tuple[str, str]]) -> None:
    calls = [FunctionCall(function=name, args={}, id=name) for name, _ in pairs]
    round_ = [assistant(None, calls), *(result(c, text) for c, (_, text) in zip(calls, pairs, strict=True))]
    said, *results = restore_rounds(render_round(round_, TEXT))
    assert said["role"] == "assistant"
    assert [call.function for call in said["tool_calls"] or ()] == [name for name, _ in pairs]
    assert [text_of(message) for message in results] == [text for _, text in pairs]
