"""Several attack types as one line: the mean over them."""

from __future__ import annotations

import pytest
from asb_cases import AGENTS, TOOLS, attacked, benign, control, grid

from agentsys.analysis.metrics.benchmark_facts import measured_rows
from agentsys.analysis.metrics.best_attack import together
from agentsys.analysis.metrics.rates import measure
from agentsys.errors import ConfigError
from agentsys.records.case_row import CaseRow

ALL = dict.fromkeys(AGENTS, TOOLS)


def controls() -> list[CaseRow]:
    return [control(agent, tool) for agent in AGENTS for tool in range(TOOLS)]


def two_types() -> list[CaseRow]:
    """One attack that always succeeds and one that does for half of the agents."""
    half = dict.fromkeys("abcde", TOOLS)
    return [*grid(ALL, attack="opi_naive"), *grid(half, attack="opi_combined_attack")]


def asr(cases: tuple[CaseRow, ...]) -> dict[str, tuple[float, int]]:
    return {
        row.attack: (row.value, row.n)
        for row in measure(cases, replicates=50)
        if (row.metric, row.suite) == ("targeted_asr", "overall")
    }


def test_the_rate_is_the_mean_of_the_attacks_rates_over_all_their_cases() -> None:
    found = together([*two_types(), *controls(), benign("a")], "opi_*")
    assert asr(found) == {"opi_* (2 attacks)": (75.0, 160), "opi_empty": (0.0, 80)}
    assert sum(case.attack == "none" for case in found) == 1


def test_causes_are_averaged_too_and_a_control_is_not_paired_with_some_of_the_cases() -> None:
    rows = measured_rows(together([*two_types(), *controls()], "opi_*"), replicates=50)
    joined = {row.metric: row for row in rows if row.attack.endswith("attacks)") and row.suite == "overall"}
    assert (joined["asr_injection_caused"].value, joined["asr_injection_caused"].n) == (75.0, 160)
    assert "asr_less_control" not in joined


def test_only_cases_that_all_the_attacks_have_are_averaged() -> None:
    half = [case for case in grid({}, attack="opi_combined_attack") if case.suite in "abcde"]
    assert asr(together([*grid(ALL, attack="opi_naive"), *half], "opi_*")) == {
        "opi_* (2 attacks)": (50.0, 80)
    }


def test_a_defense_with_a_single_matching_attack_keeps_it() -> None:
    found = together([*two_types(), attacked("a", 0, defense="drift", attack="opi_naive")], "opi_*")
    assert {case.attack for case in found if case.defense == "drift"} == {"opi_naive"}


@pytest.mark.parametrize("pattern", ["pair*", "opi_naive", "opi_empty"])
def test_where_no_two_attacks_match_it_says_which_there_are(pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"two attacks or more.* opi_combined_attack, opi_naive"):
        together([*two_types(), *controls()], pattern)
