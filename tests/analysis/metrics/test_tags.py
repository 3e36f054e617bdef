"""Cases split by a tag of their tasks."""

from __future__ import annotations

import pytest
from stored_cases import row

from agentsys.analysis.metrics.tags import bears, split, tag_of
from agentsys.analysis.tables.score_variants import variant_report, variants_of
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases


def test_a_user_tasks_tag_splits_benign_and_attacked_cases_alike() -> None:
    cases = [
        row(user_task_id=task, attack=attack)
        for task in ("user_task_0", "user_task_1")
        for attack in ("none", "direct")
    ]
    found = split(cases, tag_of("action_open"))
    assert [case.user_task_id for case in found.tagged] == ["user_task_0"] * 2
    assert [case.user_task_id for case in found.others] == ["user_task_1"] * 2


def test_an_injection_tasks_tag_leaves_benign_cases_in_both_groups() -> None:
    attacked = [
        row(suite="travel", injection_task_id=task) for task in ("injection_task_6", "injection_task_0")
    ]
    benign = row(suite="travel", attack="none")
    found = split([*attacked, benign], tag_of("text_only"))
    assert list(found.tagged) == [attacked[0], benign]
    assert list(found.others) == [attacked[1], benign]
    assert "both groups" in found.note


def test_cases_of_a_benchmark_that_was_not_looked_at_are_in_neither_group_and_counted() -> None:
    found = split([row(benchmark="asb"), row()], tag_of("action_open"))
    assert (len(found.tagged), len(found.others), found.unknown) == (1, 0, 1)
    assert "1 cases of benchmarks without tags" in found.note


def test_nothing_is_destroyed_where_injections_are_appended() -> None:
    tag = tag_of("destroyed_under_attack")
    assert bears(row(), tag)
    assert not bears(row(benchmark="agentdojo+append_injection"), tag)
    assert bears(row(benchmark="agentdojo+exact"), tag)


def test_an_unknown_tag_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="Did you mean action_open"):
        tag_of("action-open")


def test_the_two_lines_of_a_defense_add_up_to_its_cases() -> None:
    cases = [row(user_task_id=f"user_task_{n}", utility=n % 2 == 0) for n in range(4)]
    found = variant_report(LoadedCases(tuple(cases)), variants_of(cases, tag="action_open"), replicates=50)
    counts = {
        one.defense: one.n
        for one in found.rows
        if (one.suite, one.metric) == ("pooled", "utility_under_attack")
    }
    assert counts == {"agentsys (action_open)": 2, "agentsys (not action_open)": 2}


def test_fixed_scores_and_a_tag_give_four_lines() -> None:
    facts = {"utility_fixed": True, "security_fixed": False, "fixes": []}
    cases = [row(user_task_id=f"user_task_{n}", measured=facts) for n in range(2)]
    names = [one.name("x") for one in variants_of(cases, fixed=True, tag="action_open").listed]
    assert names == [
        "x (action_open)",
        "x (action_open, fixed)",
        "x (not action_open)",
        "x (not action_open, fixed)",
    ]
