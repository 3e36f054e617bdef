"""DRIFT's independent questions side by side: cases are those of a run one question after the other."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from drawn_world import BANKING, TOOLS, Diary, Draw, DrawnModel, draw_calls, play_case
from scripted_model import as_message
from unit_latency import NOW, with_unit_latency

from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.contracts import Defense
from agentsys.models.budget import Budget, Meter, UsageLog
from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError
from agentsys.models.prompted_tools import write_calls, write_reply
from agentsys.models.trace import Tracer, use_tracer
from baselines.drift.defense import Drift

DOWN = ModelError(ErrorKind.SERVER_ERROR, "no reply")


def _or_down(draw: random.Random, *replies: Any) -> Any:
    return DOWN if draw.random() < 0.03 else draw.choice(replies)


def _play_actor(draw: random.Random, request: ChatRequest) -> Any:
    calls = [(call.function, call.args) for call in draw_calls(draw, 3)]
    acting = write_reply("", write_calls(calls), "")
    return _or_down(draw, acting, acting, acting, write_reply("", "[]", "Done."), "<function_call>[broken")


def _play_planner(draw: random.Random, request: ChatRequest) -> Any:
    names = [call.function for call in draw_calls(draw, 5)]
    return f"<function_trajectory>[{', '.join(names)}]</function_trajectory>"


DRIFT: dict[str, Draw] = {
    "agent": _play_actor,
    "drift_planner": _play_planner,
    "drift_permissions": lambda draw, request: _or_down(draw, *["A"] * 9, "C", "unclear"),
    "drift_isolator": lambda draw, request: _or_down(
        draw,
        *["<detected_instructions>[]</detected_instructions>"] * 2,
        '<detected_instructions>["first"]</detected_instructions>',
        '<detected_instructions>["absent"]</detected_instructions>',
        "words",
    ),
    "drift_judge": lambda draw, request: "<judge_result>Yes</judge_result>",
    "drift_formatter": lambda draw, request: "[]",
}
CASES: dict[str, tuple[Callable[[int], Defense], dict[str, Draw]]] = {
    "drift": (lambda seed: Drift(detector_calls=1 + seed % 2), DRIFT),
}


def _check_schedules(name: str, seeds: range) -> int:
    """Compare each seed's two runs; returns the number of questions asked ahead."""
    ahead = 0
    build, roles = CASES[name]
    for seed in seeds:
        played = {}
        for beside in (False, True):
            model = DrawnModel("drawn", roles, seed, schedule=seed if beside else None)
            books = UsageLog(Meter(Budget(case_tokens=400))) if seed % 3 == 0 else None
            played[beside] = play_case(build(seed), model, side_by_side=beside, books=books)
            ahead += model.asked_ahead
        for part, value in played[False].items():
            assert json.dumps(played[True][part], default=str) == json.dumps(value, default=str), (seed, part)
    return ahead


@pytest.mark.parametrize("name", CASES)
def test_twenty_schedules_leave_a_case_as_it_is(name: str) -> None:
    assert _check_schedules(name, range(20)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_hundred_schedules_leave_a_case_as_it_is(name: str) -> None:
    assert _check_schedules(name, range(100, 300)) > 200


READINGS = [
    FunctionCall(function="read_line", args={"number": number}, id=f"{number}") for number in range(3)
]


class OneTurn:
    """Reads three lines in one turn, and answers."""

    name = "one turn"

    def complete(self, request: ChatRequest) -> ChatReply:
        fresh = not any(message["role"] == "assistant" for message in request.messages)
        calls = write_calls([(call.function, call.args) for call in READINGS])
        replies: dict[str, Any] = {
            "drift_planner": "<function_trajectory>[read_line, read_line, read_line]</function_trajectory>",
            "drift_permissions": "A",
            "drift_isolator": "<detected_instructions>[]</detected_instructions>",
        }
        agent = write_reply("", calls, "") if fresh else write_reply("", "[]", "Done.")
        native = READINGS if request.tools else agent
        done = "Done." if request.tools and not fresh else native
        return ChatReply(as_message(replies.get(request.role, done)))


def test_what_needs_no_answer_is_asked_at_once() -> None:
    rows = []
    for side_by_side in (False, True):
        NOW.set(0)
        model = with_unit_latency(OneTurn(), side_by_side=side_by_side)
        with use_tracer(Tracer()):
            Drift().pipeline(model, BANKING).query("Read my diary.", TracedRuntime(TOOLS), Diary())
        rows.append(NOW.get())
    assert rows[0] - rows[1] == len(TOOLS) - 1 + 2
