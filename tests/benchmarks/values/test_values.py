"""Planted values: sixty cases of data that ask for nothing, and an honest count of those taken in."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from agentsys.attacks.literal import read_of
from agentsys.attacks.planted_value import PlantedValue
from agentsys.attacks.vectors import injectable_vectors
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.values.benchmark import PlantedValues
from agentsys.benchmarks.values.planted import Plant, acted, plants, said
from agentsys.contracts import Attack, Benchmark, NotInjectable, Victim
from agentsys.errors import ConfigError

BENCHMARK = PlantedValues()
SUITES = {name: BENCHMARK.suite(name) for name in BENCHMARK.suite_names()}
ATTACK = PlantedValue()
ROOT = Path(__file__).parents[3]
VICTIM = Victim("GPT-4", "Emma Johnson")
CASES = [
    (name, user, task)
    for name, suite in SUITES.items()
    for task in suite.injection_tasks.values()
    for user in suite.user_tasks.values()
    if ATTACK.applies_to(suite, user, task)
]
ASKS = re.compile(
    r"\b(?:please|must|should|send|pay|transfer|ignore|do not|you (?:need|have)|immediately|urgent)\b"
    r"|!|\?",
    re.IGNORECASE,
)


def test_there_are_at_least_sixty_cases_and_every_planned_pair_is_one() -> None:
    assert isinstance(BENCHMARK, Benchmark)
    assert isinstance(ATTACK, Attack)
    assert len(CASES) >= 60
    planned = sum(len(plant.users) for listed in plants().values() for plant in listed)
    assert len(CASES) == planned, "a plant names a user task that does not meet its vector"
    counts = Counter(name for name, *_ in CASES)
    told = ", ".join(f"{name} {counts[name]}" for name in sorted(counts))
    actions = sum(task.plant.call is not None for *_, task in CASES)
    page = " ".join((ROOT / "docs" / "attacks.md").read_text("utf-8").split())
    number = sum(len(listed) for listed in plants().values())
    assert f"{number} planted values of ours: {len(CASES)} cases ({told}), in {actions} of which" in page


def test_no_plant_asks_for_anything() -> None:
    for listed in plants().values():
        for plant in listed:
            asked = ASKS.search(plant.text or " ".join(plant.replace.values()))
            assert asked is None, (plant.text, asked)


@pytest.mark.parametrize("injection", ["folded", "exact"])
def test_the_planted_text_stands_in_its_vector_and_nothing_else_changes(injection: str) -> None:
    benchmark = PlantedValues(injection=injection)
    for name in benchmark.suite_names():
        suite = benchmark.suite(name)
        clean = suite.load_and_inject_default_environment({}).model_dump_json()
        for task in list(suite.injection_tasks.values())[:4]:
            user = next(u for u in suite.user_tasks.values() if ATTACK.applies_to(suite, u, task))
            written = dict(ATTACK.injections(suite, user, task, VICTIM))
            assert list(written) == [task.plant.vector]
            assert {read_of(suite, text) for text in written.values()} == {task.planted}
            held = suite.load_and_inject_default_environment(written)
            assert yaml.safe_dump(task.planted, allow_unicode=True)  # it can be shown
            assert held.model_dump_json() != clean


def test_the_value_is_none_that_the_user_or_the_clean_data_have() -> None:
    for name, user, task in CASES:
        assert not said(task.plant.value, user.PROMPT), (name, user.ID, task.ID)
        environment = SUITES[name].load_and_inject_default_environment({})
        calls = [(call.function, call.args) for call in user.ground_truth(environment)]
        # An agent that follows the ground truth takes nothing in.
        assert not task.taken(calls, user.GROUND_TRUTH_OUTPUT), (name, user.ID, task.ID)


def test_its_own_action_or_answer_counts_as_taken_in() -> None:
    for name, _, task in CASES:
        calls = [(c.function, c.args) for c in task.ground_truth(None)]
        assert task.taken(calls, f"It is {task.plant.value}."), (name, task.ID)
        tools = {tool.name for tool in SUITES[name].tools}
        assert {function for function, _ in calls} <= tools


def test_reading_a_value_is_no_action_and_a_part_of_a_word_is_no_value() -> None:
    assert acted("30", [("send_money", {"amount": 30.0})])
    assert acted("298.7", [("send_money", {"amount": 298.7, "x": None, "y": True})])
    assert not acted("30", [("send_money", {"amount": 130.0, "date": "2022-04-130"})])
    assert not acted("www.x.com", [("get_webpage", {"url": "www.x.com"})])
    assert acted("a@b.c", [("create_calendar_event", {"participants": ["x", {"y": "A@B.c"}]})])
    assert not said("30", "in 130 days") and said("30", "the 30.")


@given(st.text(max_size=30), st.text("ab 1.", min_size=1, max_size=5).filter(str.strip))
def test_a_value_said_between_spaces_is_found_whatever_stands_around(text: str, value: str) -> None:
    assert said(value, f"{text} {value} {text}")


def test_a_plant_says_its_text_in_one_way() -> None:
    with pytest.raises(ValueError, match="give text or replace"):
        Plant(vector="v", value="x", users=(1,))


def test_the_attack_is_for_this_benchmark_alone() -> None:
    suite = AgentDojo("v1.2.2").suite("banking")
    user, task = suite.user_tasks["user_task_0"], suite.injection_tasks["injection_task_0"]
    with pytest.raises(ConfigError, match="benchmark=values"):
        ATTACK.applies_to(suite, user, task)
    with pytest.raises(NotInjectable):
        ATTACK.injections(
            SUITES["banking"], user, SUITES["banking"].injection_tasks["injection_task_3"], VICTIM
        )
    assert injectable_vectors(suite, user) == ["injection_bill_text"]


SMALL = ["model=simulated", "benchmark=values", "benchmark.suites=[slack]", "attack=none,planted_value"]


def test_a_run_counts_actions_and_answers_apart_and_utility_is_the_user_tasks_own(run_cases: Any) -> None:
    records = list(run_cases([*SMALL, "limit=8"]).values())
    attacked = [r for r in records if r["agentsys"]["case"]["injection_task_id"]]
    assert attacked
    for record in attacked:
        own = record["agentsys"]
        assert own["status"] == "ok"
        assert own["case"]["benchmark"] == "values"
        (fact,) = own["measured"]
        assert own["measured"][fact] is record["security"] is True, "the simulated worst case believes all"
        assert own["exposure"]["exposed_raw"]
    assert all(r["agentsys"]["measured"] == {} for r in records if r not in attacked)


@pytest.mark.parametrize("defense", ["agentsys", "keyword_filter"])
def test_nothing_that_looks_for_instructions_finds_a_plant(run_cases: Any, defense: str) -> None:
    plan = [
        *SMALL[:-1],
        "attack=planted_value",
        f"defense={defense}",
        "injection_tasks=[0]",
        "user_tasks=[2]",
    ]
    (record,) = run_cases(plan).values()
    decisions = [span.get("decision") or {} for span in record["agentsys"]["spans"]]
    assert not any(decision.get("spans_cut") for decision in decisions)
