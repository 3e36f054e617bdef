"""Planted goals are cut from AgentDojo's own outputs, however the sanitizer's model quotes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pytest
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite.task_suite import TaskSuite
from scripted_for_defense import is_subsequence

from agentsys.attacks.text_attacks import AdaptiveAttack, RegisteredAttack
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import Attack, NotInjectable, Victim
from agentsys.defense.sanitizer import cut_spans
from agentsys.models.untrusted import Reader
from agentsys.simulated.text_matching import fold_decoded, fold_text

SUITES = ("banking", "slack", "travel", "workspace")
ATTACKS: Mapping[str, Attack] = {
    "important_instructions": RegisteredAttack("important_instructions"),
    "adaptive": AdaptiveAttack(),
}
VICTIM = Victim("Local model", "Emma Johnson")


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?>:])\s+", text) if part.strip()]


QUOTINGS: Mapping[str, Callable[[str], list[str]]] = {
    "decoded": lambda planted: [planted],
    "one line": lambda planted: [" ".join(planted.split())],
    "a sentence each": sentences,
    "typographic quotes": lambda planted: [re.sub(r"[\"']", "’", planted)],
    "Markdown lines": lambda planted: [planted.replace("\n", "\n\n")],
}
"""What models make of a text that they were asked to copy."""


@cache
def suite_of(name: str) -> TaskSuite[Any]:
    return AgentDojo("v1.2.2").suite(name)


def outputs(suite: TaskSuite[Any], user_id: str, injections: Mapping[str, str]) -> Iterator[str]:
    """What the tools of a user task's ground truth return in the injected environment."""
    task = suite.user_tasks[user_id]
    environment = task.init_environment(suite.load_and_inject_default_environment(dict(injections)))
    runtime = FunctionsRuntime(suite.tools)
    for call in task.ground_truth(environment):
        value, error = runtime.run_function(environment, call.function, call.args)
        yield tool_result_to_str(value) if error is None else error


def infected(attack: Attack, suite_name: str, every: int) -> Iterator[tuple[str, str, str]]:
    """(output, planted text, goal) of every output that shows the goal; each `every`-th pair of tasks."""
    suite = suite_of(suite_name)
    goals = list(suite.injection_tasks.values())
    pairs = [(user_id, goal) for user_id in suite.user_tasks for goal in goals]
    for user_id, goal in pairs[::every]:
        try:
            planted = attack.injections(suite, suite.user_tasks[user_id], goal, VICTIM)
        except NotInjectable:
            continue
        for output in outputs(suite, user_id, planted):
            if fold_text(goal.GOAL) in fold_decoded(output):
                for text in set(planted.values()):
                    yield output, text, goal.GOAL


def check(attack: str, suite_name: str, every: int) -> int:
    count = 0
    for output, planted, goal in infected(ATTACKS[attack], suite_name, every):
        for name, quoted in QUOTINGS.items():
            cleaned = cut_spans(output, quoted(planted))
            text = cleaned.text.open_for(Reader.RECORD)
            assert fold_text(goal) not in fold_decoded(text), (name, output)
            assert cleaned.missed == 0 and is_subsequence(text, output)
        bare = cut_spans(output, [goal]).text.open_for(Reader.RECORD)
        assert fold_text(goal) not in fold_decoded(bare)
        count += 1
    return count


@pytest.mark.parametrize("suite_name", SUITES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_goal_is_gone_from_outputs_that_held_it(attack: str, suite_name: str) -> None:
    assert check(attack, suite_name, every=19) >= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite_name", "every"), [("banking", 1), ("slack", 1), ("travel", 2), ("workspace", 5)]
)
@pytest.mark.parametrize("attack", ATTACKS)
def test_the_goal_is_gone_from_many_more_outputs(attack: str, suite_name: str, every: int) -> None:
    assert check(attack, suite_name, every) >= 50  # `every=1` throughout passes as well, in two minutes.
