"""MELON's masked pass beside the agent's: the same case in fewer calls in a row."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import pytest
from drawn_world import Diary, DrawnModel, draw_calls, play_case
from scripted_for_melon import DONE, Chosen, Counters, TwoPasses, call, guarded, saying
from unit_latency import NOW, with_unit_latency

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.ground_truth_playbook import build_playbook
from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.models.budget import Budget, Meter, UsageLog
from agentsys.models.chat import ChatRequest, ErrorKind, ModelError, Scene
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel
from agentsys.simulated.simulated_model import SimulatedModel
from baselines.melon import Melon

TASKS = 8
"""Benign cases of each suite."""


def _count_in_a_row(
    model: Any, defense: Melon, suite: Any, task: Any, *, side_by_side: bool
) -> tuple[float, int]:
    NOW.set(0)
    with use_tracer(Tracer()) as tracer:
        pipeline = defense.pipeline(with_unit_latency(model, side_by_side=side_by_side), suite)
        suite.run_task_with_pipeline(pipeline, task, None, {}, runtime_class=TracedRuntime)
    return NOW.get(), len(tracer.all_calls)


def test_over_benign_simulated_cases_calls_in_a_row_are_below_0_6_and_calls_are_the_same() -> None:
    defense, benchmark = Melon(embedder="char_ngrams"), AgentDojo("v1.2.2")
    rows, calls = {True: 0.0, False: 0.0}, {True: 0, False: 0}
    for name in benchmark.suite_names():
        suite = benchmark.suite(name)
        playbook = partial(build_playbook, [suite])
        playing = SimulatedModel().with_playbook(playbook, defense.simulated_roles())
        for task_id, task in list(suite.user_tasks.items())[:TASKS]:
            model = playing.for_scene(Scene(name, task_id, None, "none"))
            for side_by_side in rows:
                row, made = _count_in_a_row(model, defense, suite, task, side_by_side=side_by_side)
                rows[side_by_side] += row
                calls[side_by_side] += made
    assert calls[True] == calls[False] == rows[False]
    assert rows[True] <= 0.6 * rows[False]


def _play_agent(draw: random.Random, request: ChatRequest) -> Any:
    dice = draw.random()
    if dice < 0.06:
        return ModelError(ErrorKind.SERVER_ERROR, "no reply")
    return "Done." if dice < 0.2 else draw_calls(draw, 3)


def _play_masked(draw: random.Random, request: ChatRequest) -> Any:
    return _play_agent(draw, request) if draw.random() < 0.4 else "A summary."


ROLES = {"agent": _play_agent, "melon_masked": _play_masked}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"on_failure": "block"},
    {"redact": "newest", "repeat_request": True},
    {"skip_last_masked": True},
]


def _check_schedules(seeds: range) -> int:
    ahead = 0
    for seed in seeds:
        defense = Melon(embedder="char_ngrams", threshold=0.9, **VARIANTS[seed % 4])
        tokens = [None, None, 300][seed % 3]
        played = {}
        for beside in (False, True):
            model = DrawnModel("drawn", ROLES, seed, schedule=seed if beside else None)
            books = None if tokens is None else UsageLog(Meter(Budget(case_tokens=tokens)))
            played[beside] = play_case(defense, model, side_by_side=beside, books=books)
            ahead += model.asked_ahead
        for part, value in played[False].items():
            assert json.dumps(played[True][part], default=str) == json.dumps(value, default=str), (seed, part)
    return ahead


def test_twenty_five_schedules_leave_a_case_as_it_is() -> None:
    assert _check_schedules(range(25)) > 25


@pytest.mark.slow
def test_two_hundred_schedules_leave_a_case_as_it_is() -> None:
    assert _check_schedules(range(100, 300)) > 200


def test_a_spared_masked_pass_is_not_asked_ahead() -> None:
    model = TwoPasses([saying(call("look")), saying(call("look")), DONE], [DONE])
    pipeline = guarded(Chosen(), skip_last_masked=True).pipeline(
        RecordingModel(model, side_by_side=True), AgentDojo("v1.2.2").suite("banking")
    )
    pipeline.query("Look.", Counters().runtime, Diary())
    assert model.calls == (3, 1)
