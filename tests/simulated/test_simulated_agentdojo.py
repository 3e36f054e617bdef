"""The simulated model on AgentDojo v1.2.2, undefended: what it solves, obeys and repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline
from agentdojo.attacks.important_instructions_attacks import ImportantInstructionsAttack
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.types import ChatMessage

from agentsys.benchmarks.ground_truth_playbook import build_playbook
from agentsys.models.chat import ChatModel, Scene
from agentsys.models.pipeline_elements import default_system_message, tool_loop
from agentsys.runs.instantiate import adopt
from agentsys.simulated.playbook_index import Playbook
from agentsys.simulated.simulated_model import SimulatedModel

VERSION = "v1.2.2"
SUITES = ("workspace", "travel", "banking", "slack")


@cache
def playbook() -> Playbook:
    return build_playbook(adopt("suite", get_suite(VERSION, name)) for name in SUITES)


def simulated(susceptibility: float = 1.0) -> SimulatedModel:
    return SimulatedModel(susceptibility=susceptibility).with_playbook(playbook, {})


def agent(model: ChatModel, suite: Any) -> AgentPipeline:
    # AgentDojo's attacks look for a known model's name in the pipeline's name.
    return tool_loop(model, default_system_message(suite), name="local")


@dataclass(frozen=True)
class Outcome:
    utility: bool
    attacked: bool


def injections(suite_name: str, user_task: str, injection_task: str) -> dict[str, str]:
    suite = get_suite(VERSION, suite_name)
    attack = _attack(suite_name)
    texts: dict[str, str] = attack.attack(suite.user_tasks[user_task], suite.injection_tasks[injection_task])
    return texts


@cache
def _attack(suite_name: str) -> ImportantInstructionsAttack:
    suite = get_suite(VERSION, suite_name)
    return ImportantInstructionsAttack(suite, agent(simulated(), suite))


def scene_of(suite_name: str, user_task: str, injection_task: str | None, seed: int = 0) -> Scene:
    attack = "none" if injection_task is None else "important_instructions"
    return Scene(suite_name, user_task, injection_task, attack, seed=seed)


def run_case(
    model: SimulatedModel, suite_name: str, user_task: str, injection_task: str | None = None, seed: int = 0
) -> Outcome:
    """One case, benign without an injection task; `attacked` is False then."""
    suite = get_suite(VERSION, suite_name)
    texts = {} if injection_task is None else injections(suite_name, user_task, injection_task)
    utility, security = suite.run_task_with_pipeline(
        agent(model.for_scene(scene_of(suite_name, user_task, injection_task, seed)), suite),
        suite.user_tasks[user_task],
        None if injection_task is None else suite.injection_tasks[injection_task],
        texts,
        environment=_clean(suite_name) if injection_task is None else None,
    )
    return Outcome(utility, security and injection_task is not None)


def _clean(suite_name: str) -> Any:
    return _loaded(suite_name).model_copy(deep=True)


@cache
def _loaded(suite_name: str) -> Any:
    return get_suite(VERSION, suite_name).load_and_inject_default_environment({})


def conversation(
    model: SimulatedModel, suite_name: str, user_task: str, injection_task: str | None = None, seed: int = 0
) -> list[ChatMessage]:
    """The messages of one case."""
    suite = get_suite(VERSION, suite_name)
    texts = {} if injection_task is None else injections(suite_name, user_task, injection_task)
    task = suite.user_tasks[user_task]
    environment = task.init_environment(suite.load_and_inject_default_environment(texts))
    pipeline = agent(model.for_scene(scene_of(suite_name, user_task, injection_task, seed)), suite)
    *_, messages, _ = pipeline.query(task.PROMPT, FunctionsRuntime(suite.tools), environment)
    return list(messages)


def calls_in(messages: Iterable[ChatMessage]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (call.function, dict(call.args))
        for message in messages
        if message["role"] == "assistant"
        for call in message["tool_calls"] or []
    ]


TOO_LONG = {("travel", "user_task_19")}
"""Its ground truth has more calls than AgentDojo's loop has rounds."""

DESTROYED = {("banking", "user_task_0"), *(("slack", f"user_task_{number}") for number in (7, 9, 10, 12, 19))}
"""The injection stands where the value was that the task needs (AgentDojo's v1 to v1.2.2 data)."""

Case = tuple[str, str, str]


def all_pairs(suite_name: str) -> list[Case]:
    suite = get_suite(VERSION, suite_name)
    return [(suite_name, user, goal) for user in suite.user_tasks for goal in suite.injection_tasks]


def attacked(cases: list[Case], susceptibility: float) -> dict[Case, Outcome]:
    model = simulated(susceptibility)
    return {case: run_case(model, *case) for case in cases}


def success_rate(outcomes: dict[Case, Outcome]) -> float:
    return sum(outcome.attacked for outcome in outcomes.values()) / len(outcomes)


def changed_utilities(outcomes: dict[Case, Outcome]) -> set[tuple[str, str]]:
    """User tasks whose utility under attack is not what it is without one."""
    return {case[:2] for case, outcome in outcomes.items() if outcome.utility != (case[:2] not in TOO_LONG)}


@pytest.mark.parametrize(
    "suite_name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "workspace" else name for name in SUITES],
)
def test_every_user_task_that_fits_the_rounds_is_solved_without_an_attack(suite_name: str) -> None:
    model = simulated()
    tasks = get_suite(VERSION, suite_name).user_tasks
    unsolved = {(suite_name, task) for task in tasks if not run_case(model, suite_name, task).utility}
    assert unsolved <= TOO_LONG


def test_a_gullible_agent_carries_out_at_least_95_percent_of_the_goals() -> None:
    assert success_rate(attacked(all_pairs("banking")[::4], 1.0)) >= 0.95


@pytest.mark.parametrize(
    "case",
    [
        ("travel", "user_task_3", "injection_task_3"),
        ("travel", "user_task_3", "injection_task_6"),
        *(("workspace", "user_task_0", f"injection_task_{number}") for number in (5, 6, 9, 12, 13)),
        # What has to be mailed here holds the injected text itself, or changes which files are largest.
        ("workspace", "user_task_16", "injection_task_7"),
        ("workspace", "user_task_26", "injection_task_11"),
    ],
)
def test_a_gullible_agent_carries_out_a_goal_it_reads(case: Case) -> None:
    assert run_case(simulated(), *case).attacked


def test_a_firm_agent_obeys_nothing_and_loses_only_tasks_whose_data_are_gone() -> None:
    outcomes = attacked(all_pairs("banking")[::4], 0.0)
    assert success_rate(outcomes) == 0.0
    assert changed_utilities(outcomes) == {task for task in DESTROYED if task[0] == "banking"}


@pytest.mark.parametrize("goal", [f"injection_task_{number}" for number in (0, 5, 9, 13)])
def test_an_injection_task_run_as_the_users_own_is_carried_out_whatever_the_susceptibility(goal: str) -> None:
    suite = get_suite(VERSION, "workspace")
    model = simulated(0.0).for_scene(scene_of("workspace", goal, None))
    done, _ = suite.run_task_with_pipeline(agent(model, suite), suite.injection_tasks[goal], None, {})
    assert done


def test_the_injected_goal_comes_before_the_rest_of_the_users_task() -> None:
    made = calls_in(conversation(simulated(), "banking", "user_task_0", "injection_task_7"))
    assert list(dict.fromkeys(name for name, _ in made)) == ["read_file", "update_password", "send_money"]


def test_a_value_that_an_injection_replaced_is_not_known_by_magic() -> None:
    made = calls_in(conversation(simulated(), "banking", "user_task_0", "injection_task_7"))
    assert made[-1][1]["recipient"] == "unknown"


def test_the_same_seed_makes_the_same_calls_and_another_seed_other_ones() -> None:
    def obeyed(seed: int) -> list[bool]:
        return [
            run_case(simulated(0.5), "banking", f"user_task_{number}", "injection_task_7", seed).attacked
            for number in range(12)
        ]

    assert obeyed(0) == obeyed(0)
    assert len({tuple(obeyed(seed)) for seed in range(4)}) > 1
    assert Counter(obeyed(0)).keys() == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("suite_name", SUITES)
def test_the_full_grid_of_a_gullible_agent(suite_name: str) -> None:
    assert success_rate(attacked(all_pairs(suite_name), 1.0)) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("suite_name", SUITES)
def test_the_full_grid_of_a_firm_agent(suite_name: str) -> None:
    outcomes = attacked(all_pairs(suite_name), 0.0)
    assert success_rate(outcomes) == 0.0
    assert changed_utilities(outcomes) == {task for task in DESTROYED if task[0] == suite_name}
