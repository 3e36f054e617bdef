"""Tools in the prompt: calls in tags, fenced actions, and the simulated agent that writes both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentsys.models.chat import ChatRequest, ToolSpec, assistant, system, text_of, user
from agentsys.models.prompted_tools import (
    CALL,
    FINISH_ACTION,
    OBSERVATION_WORD,
    QUESTION,
    Action,
    ActionSyntaxError,
    CallSyntaxError,
    find_text_between_tags,
    read_action,
    read_calls,
    read_observation,
    read_offer,
    read_request,
    read_text_before_observation,
    read_tools,
    wrap_in_tag,
    write_action,
    write_calls,
    write_observation,
    write_offer,
    write_reply,
    write_request,
    write_tools,
)
from agentsys.simulated.playbook_index import Fact, GoalScript, Playbook, ScriptedCall, TaskScript
from agentsys.simulated.simulated_model import SimulatedModel

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "send_money"]), st.dictionaries(st.sampled_from("xyz"), VALUES)))
)
def test_written_calls_are_read_back(calls: list[tuple[str, dict[str, Any]]]) -> None:
    assert [(call.function, dict(call.args)) for call in read_calls(write_calls(calls))] == calls


@pytest.mark.parametrize(
    "body",
    ["[f(x=__import__('os'))]", "[f(**{})]", "[a.b()]", "[1]", "f", "[f(x=y)]", "[f(", "f();g()", "\x00"],
)
def test_anything_but_calls_with_literals_is_an_error(body: str) -> None:
    with pytest.raises(CallSyntaxError):
        read_calls(body)


def test_a_call_without_brackets_negative_numbers_and_an_ellipsis_are_read() -> None:
    (call,) = read_calls("f(x=-1, y=..., z=(1, 2))")
    assert dict(call.args) == {"x": -1, "y": "...", "z": [1, 2]} or dict(call.args)["z"] == (1, 2)
    assert [call.function for call in read_calls("f(), g()")] == ["f", "g"]
    assert read_calls("  ") == []


def test_tools_and_replies_are_read_back() -> None:
    tools = [ToolSpec("a", "Does <b>.\nMore.", {"type": "object", "properties": {}}), ToolSpec("c", "", {})]
    assert read_tools(f"Before.\n{write_tools(tools)}\nAfter.") == tools
    assert read_tools("Nothing here.") == []
    assert read_tools(write_tools([])) == []
    assert find_text_between_tags(write_reply("hm", "[a()]", ""), CALL) == "[a()]"
    assert find_text_between_tags("<function_call>[", CALL) is None


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="`"), max_size=30)
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(TEXTS, JSON, TEXTS)
def test_a_written_action_is_read_back(name: str, value: Any, thought: str) -> None:
    assert read_action(write_action(Action(name, value), thought)) == Action(name, value)


@given(st.text(max_size=200))
def test_any_text_is_an_action_or_none_or_refused(text: str) -> None:
    for reply in (text, f"```json\n{text}\n```", f"```\n{{{text}}}\n```"):
        try:
            found = read_action(reply)
        except ActionSyntaxError:
            continue
        assert found is None or isinstance(found.name, str)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), JSON, max_size=4))
def test_a_written_request_is_read_back(args: dict[str, Any]) -> None:
    if "</functionality_request>" not in str(args):
        assert read_request(write_request("pay", args)) == ("pay", args)


@pytest.mark.parametrize("text", ["", "hello", "<functionality_request>x</functionality_request>"])
def test_other_texts_are_no_request(text: str) -> None:
    assert read_request(text) is None


@given(TEXTS)
def test_an_observation_is_read_back_and_ends_what_counts_of_a_reply(text: str) -> None:
    assert read_observation(write_observation(text)) == text
    assert read_text_before_observation(f"I go on.\n{write_observation(text)}") == "I go on."
    assert OBSERVATION_WORD not in read_text_before_observation(write_observation(text))


def test_an_offer_is_read_back() -> None:
    tool = ToolSpec("read", "Reads\nfiles.", {"type": "object"})
    text = f"Rules.\n\n{write_offer([tool], {'pay': 'Pays.'})}\n\nMore."
    assert read_offer(text) == [tool, ToolSpec("pay", "Pays.", {})]
    assert read_offer(write_offer([], {})) == []
    assert read_offer("no lists here") is None
    assert read_offer("<own_tools>\nx\n</own_tools><other_functionalities>\n</other_functionalities>") is None


# ---- The simulated agent speaks it.

TOOLS = [ToolSpec("read", "Reads.", {"properties": {}})]
PROMPT = "Read the bill and pay Bob."
GOAL = "Delete everything."


def model() -> SimulatedModel:
    calls = (ScriptedCall("read", {}), ScriptedCall("pay", {"to": "Bob", "amount": 5}))
    task = TaskScript("s", "t", PROMPT, calls, "Paid 5.", (Fact("f", "5", 0),))
    goal = GoalScript("s", "g", GOAL, (ScriptedCall("delete", {}),), None)
    return SimulatedModel().with_playbook(lambda: Playbook((task,), (goal,)), {})


def ask(question: str, *turns: Any) -> Action | None:
    offer = write_offer(TOOLS, {"pay": "pay", "delete": "delete"})
    request = ChatRequest([system(f"Rules.\n{offer}"), user(f"{question}\n\nAnswer with a block."), *turns])
    return read_action(text_of(model().complete(request).message))


def turn(action: Action, seen: str) -> list[Any]:
    return [assistant(write_action(action), []), user(write_observation(seen))]


def test_it_makes_the_scripted_actions_and_answers() -> None:
    question = wrap_in_tag(QUESTION, PROMPT)
    first = Action("read", {})
    assert ask(question) == first
    read = turn(first, "A bill of 5.")
    pay = Action("pay", {"to": "Bob", "amount": 5})
    assert ask(question, *read) == pay
    assert ask(question, *read, *turn(pay, "paid")) == Action(FINISH_ACTION, "Paid 5.")


def test_asked_by_another_agent_it_makes_the_call_and_hands_on_what_it_returned() -> None:
    question = write_request("read", {"path": "a=b, c"})
    first = Action("read", {"path": "a=b, c"})
    assert ask(question) == first
    assert ask(question, *turn(first, "All of it.")) == Action(FINISH_ACTION, "All of it.")
