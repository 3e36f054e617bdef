"""Fixed scores stand beside the official ones, named, and only where there are some."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stored_cases import case_of, row, store_own
from typer.testing import CliRunner

from agentsys.analysis.metrics.limits import limits_of
from agentsys.analysis.metrics.rates import MetricRow
from agentsys.analysis.metrics.repaired_scores import (
    changed_benchmark_notes,
    fixed_cases,
)
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.score_variants import variant_report, variants_of
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases, read_cases

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
    found = variant_report(
        LoadedCases(tuple(cases())), variants_of(cases(), fixed=True), ErrorRule.REPORT, replicates=50
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
    assert fixed_cases([benign]).cases[0].injection_success is None


def test_cases_without_fixed_scores_are_left_out_and_counted() -> None:
    scored, failed = cases()[0], row(measured={**measured(True), "utility_fixed": None})
    found = fixed_cases([scored, row(), failed, row(status="error", error_kind="defense")])
    assert (len(found.cases), found.lacking) == (2, 2)
    assert any("2 cases without fixed scores" in note for note in found.notes)


@pytest.mark.parametrize("hostile", ["yes", 1, ["x"], {"a": 1}])
def test_what_is_no_truth_value_is_no_score(hostile: Any) -> None:
    assert fixed_cases([row(measured={"utility_fixed": hostile, "security_fixed": hostile})]).lacking == 1


def test_different_lists_of_fixes_in_one_table_are_said() -> None:
    other = replace(cases()[0], measured={**measured(True), "fixes": ["any_match"]})
    assert any("2 different lists" in note for note in fixed_cases([cases()[0], other]).notes)


def test_asking_for_fixed_scores_where_there_are_none_is_a_one_line_error() -> None:
    with pytest.raises(ConfigError, match="holds fixed scores"):
        variants_of([row()], fixed=True)


def test_a_table_of_runs_with_appended_injections_says_so(tmp_path: Path) -> None:
    store_own(tmp_path, case_of(benchmark="agentdojo+append_injection"))
    said = CliRunner().invoke(app, ["results", str(tmp_path), "--format", "markdown"]).output
    assert "injections are appended" in said
    notes = changed_benchmark_notes(["agentdojo", "agentdojo+exact", "agentdojo+append_injection"])
    assert len(notes) == 1 and notes[0].startswith("agentdojo+append_injection: append_injection (")


def test_nothing_is_destroyed_where_injections_are_appended() -> None:
    plain, changed = limits_of("agentdojo", "v1.2.2"), limits_of("agentdojo+append_injection", "v1.2.2")
    assert plain is not None and changed is not None
    assert plain.destroyed_by_injection and not changed.destroyed_by_injection
    assert changed.passed_by_doing_nothing == plain.passed_by_doing_nothing


def stored(tmp_path: Path) -> Path:
    for task in ("user_task_5", "user_task_0"):
        for attack in ("none", "important_instructions"):
            case = case_of(user_task_id=task, attack=attack, model="gpt-4o-mini")
            store_own(tmp_path, case, measured=measured(task == "user_task_0"))
    return tmp_path


def test_a_table_of_the_paper_has_a_second_one_of_fixed_scores(tmp_path: Path) -> None:
    args = ["table", "2", "--runs", str(stored(tmp_path)), "--fixed", "--format", "markdown"]
    shown = CliRunner().invoke(app, args)
    assert shown.exit_code == 0, shown.output
    first, second = shown.output.split(r"fixed under utility\_arguments, any\_match")
    line = "| gpt-4o-mini | agentsys | {}"
    assert line.format("100.00") in first and line.format("50.00") in second


def test_official_numbers_do_not_depend_on_fixed_ones(tmp_path: Path) -> None:
    reading = read_cases([stored(tmp_path)])
    with_fixed = variant_report(reading, variants_of(reading.cases, fixed=True), replicates=50).rows
    bare = LoadedCases(tuple(replace(case, measured={}) for case in reading.cases))
    alone = variant_report(bare, variants_of(bare.cases), replicates=50).rows
    assert [one for one in with_fixed if one.defense == "agentsys"] == alone
