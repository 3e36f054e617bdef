"""A planner's reply is a plan only as a whole, and patching is reproducible."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage
from hypothesis import given
from hypothesis import strategies as st

from agentsys.benchmarks.asb import asb_plan
from agentsys.models.chat import ToolSpec, assistant, text_of, user
from agentsys.models.trace import Tracer

TWO = (asb_plan.AsbStep("Look.", ("look_up",)), asb_plan.AsbStep("Write.", ()))
texts = st.text(st.characters(exclude_categories=["Cs"]))
plans = st.lists(st.builds(asb_plan.AsbStep, texts, st.lists(texts).map(tuple)), min_size=1).map(tuple)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ('```json\n[{"message": "Look.", "tool_use": []}]\n```', "not JSON"),
        ('Here it is: [{"message": "Look.", "tool_use": []}]', "not JSON"),
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "empty"),
        ('"a text"', "not a list"),
        ("7", "not a list"),
        ('["look_up"]', "step 1 is not an object"),
        ('[{"message": "Look.", "tool_use": []}, {"message": "Write."}]', 'step 2 has no "tool_use"'),
        ('[{"tool_use": []}]', 'step 1 has no "message"'),
        ('[{"message": 3, "tool_use": []}]', "not a text"),
        ('[{"message": "Look.", "tool_use": "look_up"}]', "not a list of names"),
        ('[{"message": "Look.", "tool_use": [null]}]', "not a list of names"),
    ],
)
def test_anything_else_is_no_plan_and_the_reason_is_given(reply: str, why: str) -> None:
    with pytest.raises(asb_plan.AsbPlanError, match=why):
        asb_plan.parse_asb_plan(reply)


@given(plans)
def test_a_plan_written_as_json_is_read_back(plan: tuple[asb_plan.AsbStep, ...]) -> None:
    assert asb_plan.parse_asb_plan(asb_plan.plan_to_json(plan)) == plan


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_a_patch_does_not_depend_on_the_process(seed: str) -> None:
    code = (
        "from agentsys.benchmarks.asb.asb_plan import AsbStep, patch_plan;"
        "print(patch_plan((AsbStep('m', tuple('qwertyuiop')),), 'Evil')[0].tool_use)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == str((*"qwertyuiop", "Evil"))


def test_what_came_of_the_plan_turn_is_read_back_from_the_spans() -> None:
    planning = asb_plan.PlanningOutcome(TWO, asb_plan.patch_plan(TWO, "Evil"), tries=3)
    tracer = Tracer()
    with tracer.span(asb_plan.PLANNER_SPAN, asb_plan.PLANNER_SPAN_NAME) as opened:
        opened.decision = json.loads(json.dumps(planning.to_decision()))
    with tracer.span(asb_plan.PLANNER_SPAN, "of_a_defense") as other:
        other.decision = {"plan": "something else"}
    assert asb_plan.find_planning(tracer.spans) == planning
    assert asb_plan.find_planning(tracer.spans, attempt=1) is None
    assert asb_plan.find_planning([]) is None


@given(st.lists(st.tuples(texts, texts), max_size=4))
def test_the_tools_of_a_planning_instruction_are_read_back_from_it(rows: list[tuple[str, str]]) -> None:
    told = asb_plan.format_plan_instruction([ToolSpec(name, text, {}) for name, text in rows])
    assert (
        asb_plan.find_instruction_tools(told)
        == asb_plan.find_instruction_tools(f"You are a gardener.\n\n{told}")
        == [name for name, _ in rows]
    )


TEXT = asb_plan.RoundForm.ASSISTANT_TEXT
names = st.text("abcdefgh_", min_size=1, max_size=8)
outputs = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def result(call: FunctionCall, text: str, error: str | None = None) -> ChatMessage:
    content = user(text)["content"]
    return {"role": "tool", "content": content, "tool_call_id": call.id, "tool_call": call, "error": error}


def called(name: str) -> FunctionCall:
    return FunctionCall(function=name, args={"topic": "x"}, id=f"id_{name}")


def test_a_round_becomes_one_assistant_message_with_actions_then_observations() -> None:
    one, two = called("look_up"), called("note")
    (told,) = asb_plan.render_round(
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
    told, reminder = asb_plan.render_round(round_, TEXT)
    assert "red" in text_of(told) and reminder == user("Remember your task.")


@given(st.lists(st.tuples(names, outputs), min_size=1, max_size=3, unique_by=lambda pair: pair[0]))
def test_a_told_round_is_read_back_as_calls_and_results(pairs: list[tuple[str, str]]) -> None:
    calls = [FunctionCall(function=name, args={}, id=name) for name, _ in pairs]
    round_ = [assistant(None, calls), *(result(c, text) for c, (_, text) in zip(calls, pairs, strict=True))]
    said, *results = asb_plan.restore_rounds(asb_plan.render_round(round_, TEXT))
    assert said["role"] == "assistant"
    assert [call.function for call in said["tool_calls"] or ()] == [name for name, _ in pairs]
    assert [text_of(message) for message in results] == [text for _, text in pairs]
