"""Tags of tasks, and scores under repaired checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_output import command_output
from stored_cases import case_of, row, store_own

from agentsys.analysis.metrics.rates import MetricRow
from agentsys.analysis.metrics.task_tags import (
    has_tag,
    load_limits_of,
    load_tag,
    measure_bound,
    select_fixed_scores,
    split_by_tag,
)
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.case_notes import write_benchmark_change_notes
from agentsys.analysis.tables.result_frame import ResultFrame, make_variants
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases, read_cases


def test_a_user_tasks_tag_splits_benign_and_attacked_cases_alike() -> None:
    cases = [
        row(user_task_id=task, attack=attack)
        for task in ("user_task_0", "user_task_1")
        for attack in ("none", "direct")
    ]
    found = split_by_tag(cases, load_tag("action_open"))
    assert [case.user_task_id for case in found.cases_with] == ["user_task_0"] * 2
    assert [case.user_task_id for case in found.cases_without] == ["user_task_1"] * 2


def test_an_injection_tasks_tag_leaves_benign_cases_in_both_groups() -> None:
    attacked = [
        row(suite="travel", injection_task_id=task) for task in ("injection_task_6", "injection_task_0")
    ]
    benign = row(suite="travel", attack="none")
    found = split_by_tag([*attacked, benign], load_tag("text_only"))
    assert list(found.cases_with) == [attacked[0], benign]
    assert list(found.cases_without) == [attacked[1], benign]
    assert "both groups" in found.note


def test_a_pairs_tag_has_a_third_group_of_those_that_nothing_can_be_said_of() -> None:
    pairs = [("user_task_0", "injection_task_0"), ("user_task_1", "injection_task_0")]
    decided = [row(user_task_id=user, injection_task_id=goal) for user, goal in pairs]
    unknown = row(suite="workspace", injection_task_id="injection_task_13")
    benign = row(attack="none", injection_task_id=None)
    found = split_by_tag([*decided, unknown, benign], load_tag("authorised"))
    assert found.cases_with == (decided[0], benign) and found.cases_without == (decided[1], benign)
    assert found.cases_undecided == (unknown,) and found.unknown == 0
    shown = make_variants([*decided, unknown, benign], tag="authorised")
    assert [one.marks for one in shown.listed] == [
        ("authorised",),
        ("not authorised",),
        ("authorised unknown",),
    ]


def test_cases_of_a_benchmark_that_was_not_looked_at_are_in_neither_group_and_counted() -> None:
    found = split_by_tag([row(benchmark="asb"), row()], load_tag("action_open"))
    assert (len(found.cases_with), len(found.cases_without), found.unknown) == (1, 0, 1)
    assert "1 cases of benchmarks without tags" in found.note


def test_nothing_is_destroyed_where_injections_are_appended() -> None:
    tag = load_tag("destroyed_under_attack")
    assert has_tag(row(), tag)
    assert not has_tag(row(benchmark="agentdojo+append_injection"), tag)
    assert has_tag(row(benchmark="agentdojo+exact"), tag)


@pytest.mark.parametrize(
    ("attack", "solved", "bound"),
    [
        ("important_instructions", False, 50.0),
        ("important_instructions", True, 100.0),
        ("mcp_name", False, 100.0),
    ],
)
def test_a_user_task_is_destroyed_only_where_the_attack_wrote_over_it(
    attack: str, solved: bool, bound: float
) -> None:
    cases = [row(user_task_id=task, attack=attack, utility=solved) for task in ("user_task_0", "user_task_1")]
    limits = load_limits_of("agentdojo", "v1.2.2")
    assert limits is not None
    found = measure_bound(iter(cases), limits, attacked=True)
    assert (found.value, bool(found.tasks)) == (bound, bound < 100)


def test_an_unknown_tag_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="Did you mean action_open"):
        load_tag("action-open")


def test_the_two_lines_of_a_defense_add_up_to_its_cases() -> None:
    cases = [row(user_task_id=f"user_task_{n}", utility=n % 2 == 0) for n in range(4)]
    found = ResultFrame(LoadedCases(tuple(cases)), variants=make_variants(cases, tag="action_open"))
    counts = {
        one.defense: one.n
        for one in found.rows
        if (one.suite, one.metric) == ("pooled", "utility_under_attack")
    }
    assert counts == {"agentsys (action_open)": 2, "agentsys (not action_open)": 2}


def test_fixed_scores_and_a_tag_give_four_lines() -> None:
    facts = {"utility_fixed": True, "security_fixed": False, "fixes": []}
    cases = [row(user_task_id=f"user_task_{n}", measured=facts) for n in range(2)]
    names = [one.name("x") for one in make_variants(cases, fixed=True, tag="action_open").listed]
    assert names == [
        "x (action_open)",
        "x (action_open, fixed)",
        "x (not action_open)",
        "x (not action_open, fixed)",
    ]


FIXES = ["utility_arguments", "any_match"]


def measured(utility: bool, security: bool = False, **more: Any) -> dict[str, Any]:
    return {"utility_fixed": utility, "security_fixed": security, "fixes": FIXES, **more}


def cases() -> list[Any]:
    """Two benign and two attacked cases; the fixes turn one of each."""
    benign = [
        row(attack="none", user_task_id=task, utility=True, measured=measured(fixed))
        for task, fixed in (("user_task_5", False), ("user_task_0", True))
    ]
    attacked = [
        row(user_task_id=task, utility=True, injection_success=False, measured=measured(True, fixed))
        for task, fixed in (("user_task_5", True), ("user_task_0", False))
    ]
    return [*benign, *attacked]


def overall(rows: list[MetricRow]) -> dict[tuple[str, str], float]:
    return {(one.defense, one.metric): one.value for one in rows if one.suite == OVERALL}


def test_lines_of_fixed_scores_stand_below_the_official_ones() -> None:
    found = ResultFrame(
        LoadedCases(tuple(cases())), ErrorRule.REPORT, variants=make_variants(cases(), fixed=True)
    )
    values = overall(found.rows)
    assert values["agentsys", "benign_utility"] == 100.0
    assert values["agentsys (fixed)", "benign_utility"] == 50.0
    assert values["agentsys", "targeted_asr"] == 0.0
    assert values["agentsys (fixed)", "targeted_asr"] == 50.0
    order = list(dict.fromkeys(one.defense for one in found.rows))
    assert order == ["agentsys", "agentsys (fixed)"]


def test_benign_cases_have_no_fixed_attack_success() -> None:
    benign = row(attack="none", measured=measured(True, True))
    assert select_fixed_scores([benign]).cases[0].injection_success is None


def test_cases_without_fixed_scores_are_left_out_and_counted() -> None:
    scored, failed = cases()[0], row(measured={**measured(True), "utility_fixed": None})
    found = select_fixed_scores([scored, row(), failed, row(status="error", error_kind="defense")])
    assert (len(found.cases), found.lacking) == (2, 2)
    assert any("2 cases without fixed scores" in note for note in found.notes)


@pytest.mark.parametrize("hostile", ["yes", 1, ["x"], {"a": 1}])
def test_what_is_no_truth_value_is_no_score(hostile: Any) -> None:
    assert (
        select_fixed_scores([row(measured={"utility_fixed": hostile, "security_fixed": hostile})]).lacking
        == 1
    )


def test_different_lists_of_fixes_in_one_table_are_said() -> None:
    other = replace(cases()[0], measured={**measured(True), "fixes": ["any_match"]})
    assert any("2 different lists" in note for note in select_fixed_scores([cases()[0], other]).notes)


def test_asking_for_fixed_scores_where_there_are_none_is_a_one_line_error() -> None:
    with pytest.raises(ConfigError, match="holds fixed scores"):
        make_variants([row()], fixed=True)


def test_a_table_of_runs_with_appended_injections_says_so(tmp_path: Path) -> None:
    store_own(tmp_path, case_of(benchmark="agentdojo+append_injection"))
    assert "injections are appended" in command_output("results", tmp_path, "--format", "markdown")
    notes = write_benchmark_change_notes(["agentdojo", "agentdojo+exact", "agentdojo+append_injection"])
    assert len(notes) == 1 and notes[0].startswith("agentdojo+append_injection: append_injection (")


def stored(tmp_path: Path) -> Path:
    for task in ("user_task_5", "user_task_0"):
        for attack in ("none", "important_instructions"):
            case = case_of(user_task_id=task, attack=attack, model="gpt-4o-mini")
            store_own(tmp_path, case, measured=measured(task == "user_task_0"))
    return tmp_path


def test_official_numbers_do_not_depend_on_fixed_ones(tmp_path: Path) -> None:
    reading = read_cases([stored(tmp_path)])
    with_fixed = ResultFrame(reading, variants=make_variants(reading.cases, fixed=True)).rows
    bare = LoadedCases(tuple(replace(case, measured={}) for case in reading.cases))
    alone = ResultFrame(bare, variants=make_variants(bare.cases)).rows
    assert [one for one in with_fixed if one.defense == "agentsys"] == alone
