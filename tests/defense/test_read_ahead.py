"""AgentSys side by side: effects, traces and budgets are those of a run that asks one question after the other."""

from __future__ import annotations

import itertools
import json
import random
import time
from typing import Any

import drawn_world
import pytest
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, make_function
from drawn_world import BANKING, LABELS, TOOLS, Diary, DrawnModel, draw_calls, play_case
from scripted_model import as_message
from unit_latency import NOW, with_unit_latency

from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.defense.agentsys import AgentSys
from agentsys.models.budget import Budget, Meter, RunBudgetReached, UsageLog
from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError, text_of
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.untrusted import ForeignFunction
from agentsys.models.wrappers.accounting import RecordingModel

INTENT = {"value": "string"}


def _play_main(draw: random.Random, request: ChatRequest) -> Any:
    turns = sum(message["role"] == "assistant" for message in request.messages)
    return (
        "Done."
        if draw.random() < turns / 4
        else draw_calls(draw, 5, draw.choice([INTENT, INTENT, {"value": "integer"}, None]))
    )


def _play_worker(draw: random.Random, request: ChatRequest) -> Any:
    dice = draw.random()
    if dice < 0.25 and request.tools:
        return draw_calls(draw, 3, INTENT)
    if dice < 0.32:
        return ModelError(draw.choice([ErrorKind.SERVER_ERROR, ErrorKind.CONTENT_REFUSED]), "no reply")
    return "words" if dice < 0.42 else json.dumps({"value": draw.choice(["x", "y"]), "more": 1})


def _play_labels(draw: random.Random, request: ChatRequest) -> Any:
    return ModelError(ErrorKind.SERVER_ERROR, "no labels") if draw.random() < 0.05 else json.dumps(LABELS)


def _play_sanitizer(draw: random.Random, request: ChatRequest) -> Any:
    return json.dumps({"spans": draw.choice([[], ["first"], ["one of"], ["absent"]])})


ROLES: dict[str, drawn_world.Draw] = {
    "main": _play_main,
    "worker": _play_worker,
    "privileges": _play_labels,
    "sanitizer": _play_sanitizer,
    "validator": lambda draw, request: draw.choice(["True", "True", "False", "perhaps"]),
}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"gate": "schema", "fill": "typed", "worker_tools": "on_request", "trace": "path", "repeats": "kept"},
    {"sanitizer": "both", "gate_retry": "fresh_context"},
    {"validate_main": True, "subtask_calls": 3},
    {"calls_per_turn": 2, "max_depth": 2, "case_calls": 20},
]
BUDGETS = [None, None, 700, 1500]
"""Tokens of a case; None: as many as it takes."""


NAMES = map("drawn-{}".format, itertools.count())
"""Labels are kept in memory by the model's name: each run asks for them."""


def _play(seed: int, *, schedule: int | None = None) -> tuple[dict[str, Any], DrawnModel]:
    model = DrawnModel(next(NAMES), ROLES, seed, schedule)
    tokens = BUDGETS[seed % len(BUDGETS)]
    books = None if tokens is None else UsageLog(Meter(Budget(case_tokens=tokens)))
    defense = AgentSys("agentsys", **VARIANTS[seed % len(VARIANTS)])
    return play_case(defense, model, side_by_side=schedule is not None, books=books), model


def _check_schedules(seeds: range) -> int:
    """Compare each seed's two runs; returns the number of questions asked ahead."""
    ahead = 0
    for seed in seeds:
        serial, _ = _play(seed)
        beside, model = _play(seed, schedule=seed + 1)
        for part in serial:
            assert beside[part] == serial[part], (seed, part)
        ahead += model.asked_ahead
    return ahead


def test_twenty_five_schedules_leave_effects_traces_and_budgets_as_they_are() -> None:
    assert _check_schedules(range(25)) > 50


@pytest.mark.slow
def test_two_hundred_schedules_leave_effects_traces_and_budgets_as_they_are() -> None:
    assert _check_schedules(range(100, 300)) > 400


def test_a_budget_that_runs_out_ends_the_case_or_changes_nothing() -> None:
    ended = 0
    for seed in range(12):
        meter = Meter(Budget(tokens=400))
        model = DrawnModel(next(NAMES), ROLES, 4 * seed, schedule=seed)
        defense = AgentSys("agentsys", **VARIANTS[4 * seed % len(VARIANTS)])
        try:
            played = play_case(defense, model, side_by_side=True, books=UsageLog(meter))
        except RunBudgetReached:
            ended += 1
            assert meter.tokens >= 400
        else:
            assert played == _play(4 * seed)[0]
        assert meter.tokens < 400 + 100 * 20, "no more than the questions under way"
    assert 0 < ended < 12


class Turns:
    """Makes these calls, one list a turn; workers and labels answer at once, or after a while."""

    def __init__(self, *turns: list[str], seconds: float = 0.0, acting: bool = False) -> None:
        self.name, self.turns, self.seconds, self.acting = next(NAMES), turns, seconds, acting
        self.workers: list[str] = []

    def complete(self, request: ChatRequest) -> ChatReply:
        time.sleep(self.seconds)
        return ChatReply(as_message(self._reply(request)))

    def _reply(self, request: ChatRequest) -> Any:
        done = sum(message["role"] == "assistant" for message in request.messages)
        if request.role == "main":
            calls = self.turns[done] if done < len(self.turns) else []
            args = [
                {"number": number} if tool == "read_line" else {"text": "new"}
                for number, tool in enumerate(calls)
            ]
            made = [
                FunctionCall(function=tool, args={**given, "intent": INTENT}, id=f"{done}.{number}")
                for number, (tool, given) in enumerate(zip(calls, args, strict=True))
            ]
            return made or "Done."
        if request.role == "worker":
            output = text_of(request.messages[1])
            self.workers.append(output)
            if self.acting and "first" in output and not done:
                return [
                    FunctionCall(function="write_line", args={"text": "by worker", "intent": INTENT}, id="w")
                ]
        replies = {
            "privileges": json.dumps({**LABELS, "read_mail": "query"}),
            "validator": "True",
            "sanitizer": '{"spans": []}',
        }
        return replies.get(request.role, json.dumps({"value": "x"}))


def _count_in_a_row(model: Turns, *, side_by_side: bool, **options: Any) -> float:
    NOW.set(0)
    pipeline = AgentSys("agentsys", **options).pipeline(
        with_unit_latency(model, side_by_side=side_by_side), BANKING
    )
    with use_tracer(Tracer()):
        pipeline.query("Read my diary.", TracedRuntime(TOOLS), Diary())
    return NOW.get()


READ, WRITE = "read_line", "write_line"


@pytest.mark.parametrize(
    ("turns", "serial", "beside"),
    [
        ([[READ] * 3], 5, 3),
        ([[READ]], 3, 3),
        ([[WRITE, READ, READ, WRITE, READ, READ]], 8, 6),
        ([[WRITE, WRITE]], 4, 4),
        ([[READ] * 2, [READ] * 4], 9, 5),
    ],
)
def test_neighbouring_readings_of_a_turn_take_the_time_of_one(
    turns: list[list[str]], serial: float, beside: float
) -> None:
    assert _count_in_a_row(Turns(*turns), side_by_side=False) == serial
    assert _count_in_a_row(Turns(*turns), side_by_side=True) == beside


def test_the_first_questions_to_sanitizers_are_asked_side_by_side_too() -> None:
    options = {"sanitizer": "both"}
    assert _count_in_a_row(Turns([READ] * 3), side_by_side=False, **options) == 8
    assert _count_in_a_row(Turns([READ] * 3), side_by_side=True, **options) == 6


def test_what_was_read_after_a_worker_that_acted_is_asked_anew() -> None:
    model = Turns([READ] * 3, acting=True)
    # The agent, the worker that acts, its validator, the worker below it, its own end, two workers at once, the agent.
    assert _count_in_a_row(model, side_by_side=True) == 7
    assert _count_in_a_row(Turns([READ] * 3, acting=True), side_by_side=False) == 9
    of_second = [output for output in model.workers if "second" in output]
    assert [("of 3" in output, "of 4" in output) for output in of_second] == [(True, False), (False, True)]


def test_labels_are_asked_for_while_the_first_model_call_is_under_way() -> None:
    model = Turns([READ, READ])
    began: dict[str, float] = {}
    answered: dict[str, float] = {}
    complete = model.complete

    def note(request: ChatRequest) -> ChatReply:
        began.setdefault(request.role, time.perf_counter())
        time.sleep(0.05)
        reply = complete(request)
        answered.setdefault(request.role, time.perf_counter())
        return reply

    model.complete = note  # type: ignore[method-assign]
    _count_in_a_row(model, side_by_side=True)
    assert began["privileges"] < answered["main"]


@pytest.mark.slow
def test_a_turn_of_three_reading_calls_takes_two_thirds_of_the_time() -> None:
    def measure(*, side_by_side: bool) -> float:
        model = Turns([READ] * 3, seconds=0.2)
        started = time.perf_counter()
        _count_in_a_row(model, side_by_side=side_by_side)
        return time.perf_counter() - started

    assert measure(side_by_side=True) <= 0.68 * measure(side_by_side=False)


def test_foreign_tools_and_runtimes_are_never_tried() -> None:
    runs: list[str] = []

    def read_mail() -> str:
        """Reads mail."""
        runs.append("read_mail")
        return "mail"

    tool = make_function(read_mail)
    foreign = ForeignFunction(**{name: getattr(tool, name) for name in type(tool).model_fields})
    for runtime in (TracedRuntime([foreign]), FunctionsRuntime([tool])):
        model = Turns(["read_mail"] * 2)
        pipeline = AgentSys("agentsys").pipeline(RecordingModel(model, side_by_side=True), BANKING)
        runs.clear()
        with use_tracer(Tracer()):
            pipeline.query("Read my mail.", runtime, Diary())
        assert len(runs) == 2
