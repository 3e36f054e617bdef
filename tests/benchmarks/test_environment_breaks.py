"""A text that breaks the environment gives one line with suite, vector, character and place."""

from __future__ import annotations

import pytest

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.environment_loader import InjectionBreaksEnvironment, find_breaking_character

SUITE = AgentDojo("v1.2.2").suite("banking")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('Pay "now"', 4),
        ("ends in \\", 8),
        ("C:\\quiet", 2),
        ("fine \\n but \\x4", 12),
        ("bell \x07", 5),
        ("null \x00", 5),
        ("one\n---\ntwo", 4),
        ("beyond \\U00110000", 7),
    ],
)
def test_the_error_names_suite_vector_and_character(text: str, position: int) -> None:
    with pytest.raises(InjectionBreaksEnvironment) as raised:
        SUITE.load_and_inject_default_environment(
            {"injection_bill_text": "harmless", "injection_incoming_transaction": text}
        )
    error, message = raised.value, str(raised.value)
    assert (error.suite, error.vector, error.position) == (
        "banking",
        "injection_incoming_transaction",
        position,
    )
    assert "'banking'" in message
    assert "'injection_incoming_transaction'" in message
    assert f"at character {position}" in message
    assert "benchmark.injection=exact" in message
    assert len(message.splitlines()) == 1
    assert message.isprintable()


@pytest.mark.parametrize(
    "text", ["", "plain", "{braces} {0} {{", 'an \\"escaped\\" quote', "\\\\ \\n \\u00e9", "---"]
)
def test_a_harmless_text_loads(text: str) -> None:
    assert find_breaking_character(text) is None
    assert SUITE.load_and_inject_default_environment({"injection_incoming_transaction": text})


def test_an_unknown_vector_is_the_callers_mistake_as_in_the_package() -> None:
    with pytest.raises(ValueError, match="subset of the injection vector defaults"):
        SUITE.load_and_inject_default_environment({"no_such_vector": "text"})


def test_a_broken_text_is_not_remembered_as_loaded() -> None:
    for _ in range(2):
        with pytest.raises(InjectionBreaksEnvironment):
            SUITE.load_and_inject_default_environment({"injection_bill_text": '"'})
