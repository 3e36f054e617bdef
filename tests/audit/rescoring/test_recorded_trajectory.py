"""Versions, labels and tasks of AgentDojo, as records name them."""

from __future__ import annotations

import pytest

from agentsys.audit.rescoring.recorded_trajectory import label_denies_service, load_agentdojo
from agentsys.errors import ConfigError


@pytest.mark.parametrize("label", ["agentdojo", "agentdojo+exact", "agentdojo+exact+append_injection"])
def test_a_label_says_how_the_benchmark_is_made_again(label: str) -> None:
    assert load_agentdojo("v1.2", label).name == label


@pytest.mark.parametrize("label", ["agentdojo+append_injection+exact", "agentdojo+no_such_fix", "asb"])
def test_a_label_that_no_options_make_is_an_error(label: str) -> None:
    with pytest.raises(ConfigError):
        load_agentdojo("v1.2", label)


@pytest.mark.parametrize(
    ("attack", "denies"),
    [("dos", True), ("swearwords_dos", True), ("dos[extra=1]", True), ("direct", False), ("no such", False)],
)
def test_denials_of_service_are_told_by_the_attacks_name_options_aside(attack: str, denies: bool) -> None:
    assert label_denies_service(attack) is denies
