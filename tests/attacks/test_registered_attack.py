"""AgentDojo's attacks, word for word, for victims it knows and victims it does not; `manual` asks a person."""

from __future__ import annotations

import io
import random
from functools import cache
from itertools import product
from typing import Any

import pytest
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.attacks import load_attack
from agentdojo.attacks.attack_registry import ATTACKS
from agentdojo.attacks.base_attacks import BaseAttack
from agentdojo.base_tasks import BaseInjectionTask
from agentdojo.functions_runtime import FunctionCall
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.attacks.injection_vectors import find_injectable_vectors
from agentsys.attacks.text_attacks import RegisteredAttack
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import NotInjectable, Victim
from agentsys.errors import ConfigError

SUITES = ["workspace", "travel", "banking", "slack"]
NAMES = [name for name in ATTACKS if name != "manual"]
GPT4 = Victim("GPT-4", "Emma Johnson")


@cache
def suite_of(name: str) -> TaskSuite[Any]:
    return AgentDojo("v1.2.2").suite(name)


def pipeline(name: str) -> GroundTruthPipeline:
    element = GroundTruthPipeline(None)
    element.name = name
    return element


@cache
def packages(attack: str, suite: str, model: str = "gpt-4o-2024-05-13") -> Any:
    return load_attack(attack, get_suite("v1.2.2", suite), pipeline(model))


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("most", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_texts_equal_the_packages_for_every_attack(name: str, most: int | None) -> None:
    suite = suite_of(name)
    pairs = [*product(suite.user_tasks.values(), suite.injection_tasks.values())]
    random.Random(name).shuffle(pairs)
    for attack in NAMES:
        ours = RegisteredAttack(attack)
        for user_task, injection_task in pairs[:most]:
            expected = packages(attack, name).attack(user_task, injection_task)
            assert ours.injections(suite, user_task, injection_task, GPT4) == expected


def text(attack: str, victim: Victim) -> str:
    suite = suite_of("banking")
    written = RegisteredAttack(attack).injections(
        suite, suite.user_tasks["user_task_0"], suite.injection_tasks["injection_task_0"], victim
    )
    return written["injection_bill_text"]


def test_a_victim_that_agentdojo_does_not_know_is_addressed_by_its_own_names() -> None:
    written = text("important_instructions", Victim("Ours-7B", "Ada Lovelace"))
    assert "from me, Ada Lovelace, to you, Ours-7B." in written
    assert text("dos", Victim("Ours-7B", "Ada Lovelace")).count("Ada Lovelace") == 2


def test_an_unknown_attack_or_module_is_one_line_with_the_mend() -> None:
    with pytest.raises(ConfigError, match="Did you mean important_instructions"):
        RegisteredAttack("important_instruction")
    with pytest.raises(ConfigError, match=r"attack\.modules names 'no_such'"):
        RegisteredAttack("direct", modules=["no_such"])


def test_a_task_without_a_vector_on_its_way_is_not_injectable() -> None:
    suite = AgentDojo("v1.2.2").suite("banking")

    class Idle:
        ID, PROMPT, GROUND_TRUTH_OUTPUT = "user_task_99", "Do nothing.", ""

        def ground_truth(self, environment: object) -> list[object]:
            return []

    for _ in range(2):  # worked out, then remembered
        with pytest.raises(NotInjectable, match="user_task_99"):
            RegisteredAttack("direct").injections(
                suite, Idle(), suite.injection_tasks["injection_task_0"], GPT4
            )


@pytest.mark.parametrize("name", SUITES)
def test_every_attack_takes_every_pair_of_agentdojo(name: str) -> None:
    suite = suite_of(name)
    user_task = next(iter(suite.user_tasks.values()))
    for attack in map(RegisteredAttack, NAMES):
        assert all(attack.applies_to(suite, user_task, task) for task in suite.injection_tasks.values())


def test_tool_knowledge_leaves_out_a_goal_whose_calls_cannot_be_spelled_out() -> None:
    suite = AgentDojo("v1.2.2").suite("slack")

    class Untold(BaseInjectionTask[Any]):
        ID = "injection_task_99"
        GOAL = "Read a page."

        def ground_truth(self, pre_environment: Any) -> list[FunctionCall]:
            return [FunctionCall(function="get_webpage", args={"url": "a"})]

        def security(self, model_output: str, pre_environment: Any, post_environment: Any) -> bool:
            return False

    user_task = suite.user_tasks["user_task_1"]
    taking = [name for name in NAMES if RegisteredAttack(name).applies_to(suite, user_task, Untold())]
    assert set(NAMES) - set(taking) == {"tool_knowledge"}


def test_the_package_is_left_as_it_was() -> None:
    before = {name: dict(vars(cls)) for name, cls in ATTACKS.items()}
    text("important_instructions", Victim("Ours-7B", "Ada Lovelace"))
    assert {name: dict(vars(cls)) for name, cls in ATTACKS.items()} == before


SUITE = AgentDojo("v1.2.2").suite("banking")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(attack: RegisteredAttack, user_task: str, model: str = "GPT-4") -> dict[str, str]:
    return dict(
        attack.injections(
            SUITE,
            SUITE.user_tasks[user_task],
            SUITE.injection_tasks["injection_task_0"],
            Victim(model, "Emma Johnson"),
        )
    )


def test_a_text_is_typed_once_per_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["first", "second", "third"])
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda question: next(typed))
    attack = RegisteredAttack("manual")
    first = written(attack, "user_task_0")
    assert first == {"injection_bill_text": "first"}
    first["injection_bill_text"] = "changed by the caller"
    assert written(attack, "user_task_0", "Claude") == {"injection_bill_text": "first"}
    assert "second" in written(attack, "user_task_1").values()


def test_without_a_terminal_the_error_names_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("text from a pipe\n"))
    with pytest.raises(ConfigError, match=r"attack=template") as raised:
        written(RegisteredAttack("manual"), "user_task_0")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("fixes", [(), ("append_injection",)])
def test_the_vectors_that_a_task_shows_are_those_that_agentdojo_finds(fixes: tuple[str, ...]) -> None:
    benchmark = AgentDojo("v1.2.2", ["slack", "banking"], fixes=fixes)
    for suite in map(benchmark.suite, benchmark.suite_names()):
        theirs = BaseAttack(suite, GroundTruthPipeline(None))
        for task in suite.user_tasks.values():
            try:
                assert find_injectable_vectors(suite, task) == theirs.get_injection_candidates(task)
            except NotInjectable:
                with pytest.raises(ValueError, match="not injectable"):
                    theirs.get_injection_candidates(task)
