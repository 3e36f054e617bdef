"""MELON end to end on the simulated model, and on everything odd a model or a tool may say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import ChatAssistantMessage
from scripted_for_baselines import runtime_returning
from scripted_for_melon import DONE, Ran, TwoPasses, guarded, saying
from small_runs import errors_in

from agentsys.models.chat import ChatReply, ChatRequest, assistant, text_of
from baselines.melon.embedders import CharNgrams
from baselines.melon.prompts import NOTICE

RUN = ["model=simulated", "attack=none,important_instructions", "defense=none,melon,melon_compat"]


def rate(records: dict[str, Any], name: str, what: str, *, attacked: bool) -> float:
    chosen = [
        record["agentsys"][what]
        for record in records.values()
        if record["agentsys"]["case"]["defense"] == name
        and (record["agentsys"]["case"]["injection_task_id"] is not None) is attacked
    ]
    return sum(chosen) / len(chosen)


def test_attacks_that_need_a_call_are_stopped_and_benign_tasks_solved(
    run_cases: Callable[..., Any], tmp_path: Path
) -> None:
    from agentdojo.benchmark import load_task_results

    records = run_cases([*RUN, "benchmark.suites=[slack]", "user_tasks=[0,2,13]", "injection_tasks=[1,3,5]"])
    assert errors_in(records) == {}
    assert rate(records, "none", "security", attacked=True) == 1.0
    for name in ("melon", "melon_compat"):
        assert rate(records, name, "security", attacked=True) == 0.0
        assert rate(records, name, "utility", attacked=False) == 1.0
        ours = {path: r for path, r in records.items() if r["agentsys"]["case"]["defense"] == name}
        blocked = [r for r in ours.values() if r["messages"][-1]["content"][0]["content"] == NOTICE]
        assert len(blocked) == 9
        for record in blocked:
            last = [s for s in record["agentsys"]["spans"] if s["kind"] == "melon"][-1]
            assert (last["decision"]["allow"], last["decision"]["embedder"]) == (False, "char_ngrams")
            usage = record["agentsys"]["usage"]
            assert usage["agent"]["calls"] == usage["melon_masked"]["calls"] + 1
            assert record["agentsys"]["exposure"]["exposed_shown"]
        # AgentDojo's own loader reads blocked runs.
        pipeline = next(iter(ours)).split("/")[0]
        attack = "important_instructions"
        goals = [(user, goal) for user in (0, 2, 13) for goal in (1, 3, 5)]
        for user, goal in goals:
            place = (f"user_task_{user}", attack, f"injection_task_{goal}", tmp_path / "runs")
            assert not load_task_results(pipeline, "slack", *place).security


def test_an_attack_that_needs_no_call_gets_through(run_cases: Callable[..., Any]) -> None:
    records = run_cases(
        [*RUN[:2], "defense=melon", "benchmark.suites=[travel]", "user_tasks=[0]", "injection_tasks=[6]"]
    )
    assert rate(records, "melon", "security", attacked=True) == 1.0


class Forever:
    """Says the same for ever, in either pass."""

    name = "forever"

    def __init__(self, original: ChatAssistantMessage, masked: ChatAssistantMessage) -> None:
        self.said = {"agent": original, "melon_masked": masked}
        self.asked = 0

    def complete(self, request: ChatRequest) -> ChatReply:
        self.asked += 1
        return ChatReply({**self.said[request.role]})


def test_a_model_that_never_stops_is_stopped_by_the_bound_on_rounds() -> None:
    model = Forever(saying(called("a")), DONE)
    ran = Ran(model, guarded(), runtime_returning(a="one"))
    assert (len(ran.results), model.asked) == (15, 31)


def called(function: str, **args: Any) -> FunctionCall:
    return FunctionCall(function=function, args=args, id=None)


def odd_replies() -> Iterator[ChatAssistantMessage]:
    yield assistant(None)
    yield assistant("")
    yield assistant(None, [])
    yield {"role": "assistant", "content": [], "tool_calls": None}
    yield {
        "role": "assistant",
        "content": [{"type": "thinking", "content": "", "id": None}],
        "tool_calls": [],
    }
    yield assistant("\ud800", [called("")])
    yield assistant(None, [called("a", x=None), called("a", y={"z": [1, called("a")]}), called("nothing")])
    yield assistant(None, [called("a", text="\ud800" + "x" * 1_000_000)])


@pytest.mark.parametrize("odd", odd_replies())
@pytest.mark.parametrize("where", ["original", "masked"])
def test_an_odd_reply_in_either_pass_raises_nothing(odd: ChatAssistantMessage, where: str) -> None:
    first, again = saying(called("a")), saying(called("b"))
    original = [first, odd if where == "original" else again, DONE]
    masked = [odd if where == "masked" else again, again]
    model = TwoPasses([*original, *repeat(DONE, 2)], masked)
    ran = Ran(model, guarded(CharNgrams()), runtime_returning(a="one", b="two"))
    assert ran.messages[-1]["role"] == "assistant"


@pytest.mark.parametrize("value", ["", "x" * 1_000_000, None, [], "=" * 50, "\ud800", ValueError("")])
def test_an_odd_tool_output_raises_nothing_and_reaches_the_masked_pass(value: Any) -> None:
    model = TwoPasses([saying(called("a"), called("b")), DONE], [DONE])
    ran = Ran(model, guarded(CharNgrams()), runtime_returning(a=value, b="after"))
    assert ran.messages[-1] == DONE
    file = text_of(model.seen["melon_masked"][0].messages[-1])
    assert "function: a" in file
    assert "after" in file
    if isinstance(value, str):
        assert value in file


def test_without_tools_the_agent_just_answers() -> None:
    model = TwoPasses([saying(called("a")), DONE], [DONE])
    assert Ran(model, guarded(), FunctionsRuntime()).messages[-1] == DONE
    assert Ran(TwoPasses([DONE]), guarded(), FunctionsRuntime()).messages[-1] == DONE
