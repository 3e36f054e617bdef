"""`injection: exact` puts the literal text where the placeholder stood, and nothing else changes."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.task_suite.task_suite import TaskSuite
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.environment_loader import EnvironmentLoader, InjectionBreaksEnvironment
from agentsys.errors import ConfigError

EXACT, FOLDED = AgentDojo("v1.2.2", injection="exact"), AgentDojo("v1.2.2")
HARD = [
    'say "it\'s"',
    "line\nblank\n\nline\r\nend\r",
    "{goal} {{x}} {0} }{",
    "tab\there\\t and \\ back\\slash\\",
    "😀 \U0010ffff 漢 é \u2028 \ufeff",
    "x" * 10_000,
    "\n\n  leading and trailing  \n\n",
    "---\n...\n- a: [b, {c: d}]\n# comment",
    "nul \x00 bell \x07",
    "\ue0f0injection_bill_text\ue0f1",
    "",
]


def without_sizes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_sizes(item) for key, item in value.items() if key != "size"}
    return [without_sizes(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("text", HARD)
@pytest.mark.parametrize("name", FOLDED.suite_names())
def test_the_literal_text_stands_in_every_place(name: str, text: str) -> None:
    suite = EXACT.suite(name)
    vectors = sorted(suite.get_injection_vector_defaults())
    folded = FOLDED.suite(name).load_and_inject_default_environment({v: f"CANARY-{v}-" for v in vectors})
    loaded = suite.load_and_inject_default_environment(dict.fromkeys(vectors, text))

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            for vector in vectors:
                value = value.replace(f"CANARY-{vector}-", text)
            return value
        if isinstance(value, dict):  # a drive file's size is the length of its text
            return {replaced(key): replaced(item) for key, item in value.items() if key != "size"}
        return [replaced(item) for item in value] if isinstance(value, list) else value

    assert without_sizes(loaded.model_dump()) == replaced(folded.model_dump())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=80))
def test_any_text_is_read_back_exactly(text: str) -> None:
    environment = EXACT.suite("banking").load_and_inject_default_environment(
        {"injection_incoming_transaction": text}
    )
    assert environment.bank_account.transactions[4].subject == text


def test_half_a_surrogate_pair_is_refused_by_name() -> None:
    with pytest.raises(InjectionBreaksEnvironment, match="surrogate") as raised:
        EXACT.suite("banking").load_and_inject_default_environment({"injection_bill_text": "ab\ud83d"})
    assert raised.value.position == 2


def test_a_suite_with_a_loader_of_its_own_refuses_exact() -> None:
    class OwnWay(TaskSuite[Any]):
        def load_and_inject_default_environment(self, injections: dict[str, str]) -> Any:
            raise AssertionError

        def get_injection_vector_defaults(self) -> dict[str, str]:
            return {}

    original = FOLDED.suite("banking")
    with pytest.raises(ConfigError, match=r"benchmark\.injection=folded"):
        EnvironmentLoader(OwnWay("own", original.environment_type, []), "exact")
