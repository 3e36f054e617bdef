"""Texts to be read letter by letter are, in every vector of every suite, and are found again there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pytest

from agentsys.attacks.codes import CODES
from agentsys.attacks.encoded import EncodedAttack
from agentsys.attacks.forged.chatinject import ChatInject
from agentsys.attacks.forged.families import FAMILIES
from agentsys.attacks.literal import read_of
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.exposure import ExposureWatch
from agentsys.contracts import Attack, NotInjectable, Victim

VICTIM = Victim("GPT-4", 'Emma "EJ" \\ Johnson')
"""A name that would end the environment's quotes."""
FULL = ("workspace", "travel", "banking", "slack")
REDUCED = ("slack",)
ATTACKS: dict[str, Attack] = {
    **{f"chatinject-{family}": ChatInject(family) for family in FAMILIES},
    **{
        f"encoded-{code}": EncodedAttack(ChatInject("generic"), code, hint=code != "zero_width")
        for code in CODES
    },
}


@lru_cache
def suite_of(injection: str, name: str) -> Any:
    return AgentDojo("v1.2.2", injection=injection).suite(name)


def pairs(suite: Any, attack: Attack) -> Iterator[tuple[Any, dict[str, str]]]:
    """Every injection task, with texts in every vector of the suite."""
    for task in suite.injection_tasks.values():
        written: dict[str, str] = {}
        for user in suite.user_tasks.values():
            if set(written) == set(suite.get_injection_vector_defaults()):
                break
            try:
                written |= attack.injections(suite, user, task, VICTIM)
            except NotInjectable:
                continue
        yield task, written


def arrives(attack: Attack, name: str) -> int:
    """Look whether each injection task's texts arrive; how many there were."""
    folded, exact = suite_of("folded", name), suite_of("exact", name)
    count = 0
    for (task, written), (_, literal) in zip(pairs(folded, attack), pairs(exact, attack), strict=True):
        # The very text stands in the environment, and nothing else of it has changed.
        assert {vector: read_of(folded, text) for vector, text in written.items()} == literal
        environment = folded.load_and_inject_default_environment(written)
        loaded = environment.model_dump()
        assert loaded == exact.load_and_inject_default_environment(literal).model_dump()
        watch = ExposureWatch(written, goal=task.GOAL)
        plain = ExposureWatch(literal, goal=task.GOAL)
        shown = environment.model_dump_json()
        for one in (watch, plain):
            one.tool_returned(shown, None)
            assert one.seen().exposed_raw
        count += 1
    return count


@pytest.mark.parametrize(
    "name", ["chatinject-qwen3", "chatinject-glm-4.5", "encoded-zero_width", "encoded-leet"]
)
def test_texts_arrive(name: str) -> None:
    assert [arrives(ATTACKS[name], suite) for suite in REDUCED] == [5]


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_texts_arrive_everywhere(name: str) -> None:
    assert sum(arrives(ATTACKS[name], suite) for suite in FULL) == 35
