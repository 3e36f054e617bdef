"""What a run can show: exposure, floors, caps, denials of service, and the notes under the tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_cases import row

from agentsys.analysis.metrics.attack_success import (
    ASR_WHERE_SOLVED,
    UTILITY_CHANGE,
    Denial,
    asr_of,
    detectable_asr,
    exposure_share,
    is_denial_of_service,
    levels_at_the_floor,
    paired_denials,
    unseen_reason,
    utility_where_safe,
    workspace_split,
)
from agentsys.analysis.metrics.rates import TARGETED_ASR, measure
from agentsys.analysis.metrics.task_tags import Limits, limits_of, utility_cap, utility_floor
from agentsys.analysis.statistics.differences import SignDraws
from agentsys.analysis.statistics.outcome_grid import ErrorRule, tally_suites
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.result_notes import honesty_notes
from agentsys.records.case_reader import read_cases
from agentsys.records.case_row import CaseRow

_FULL = {"banking": (16, 9), "slack": (21, 5), "travel": (20, 7), "workspace": (40, 14)}


def _grid(suites: dict[str, tuple[int, int]], **fields: Any) -> list[CaseRow]:
    return [
        row(
            suite=suite,
            user_task_id=f"user_task_{user}",
            injection_task_id=f"injection_task_{goal}",
            **fields,
        )
        for suite, (users, goals) in suites.items()
        for user in range(users)
        for goal in range(goals)
    ]


def _limits(version: str = "v1.2.2") -> Limits:
    found = limits_of("agentdojo", version)
    assert found is not None
    return found


def test_the_full_grid_has_a_floor_of_7_8_and_a_cap_of_92_5() -> None:
    floor, cap = utility_floor(_grid(_FULL), _limits()), utility_cap(_grid(_FULL), _limits())
    assert floor.value == pytest.approx(100 * 5 / 16 / 4)
    assert round(floor.value, 1) == 7.8
    assert round(cap.value, 1) == 92.5
    assert len(cap.tasks) == 6


@pytest.mark.parametrize("version", ["unrecorded", "v1", "v1.1", "v1.1.1", "v1.1.2", "v1.2", "v1.2.1"])
def test_before_v1_2_2_four_tasks_pass_untouched(version: str) -> None:
    assert utility_floor(_grid(_FULL), _limits(version)).value == pytest.approx(100 * 4 / 16 / 4)


def test_other_benchmarks_and_unknown_versions_have_no_known_limits() -> None:
    assert limits_of("asb", "v1") is None
    assert limits_of("agentdojo", "v9") is None
    assert not limits_of("agentdojo", "v1.2.2+append_injection").destroyed_by_injection  # type: ignore[union-attr]


def test_asr_among_exposed_cases_is_told_apart_by_who_saw_the_payload() -> None:
    cases = [
        row(user_task_id="user_task_0", exposed_raw=True, exposed_shown=True, injection_success=True),
        row(user_task_id="user_task_1", exposed_raw=True, exposed_shown=False),
        row(user_task_id="user_task_2", exposed_raw=False, exposed_shown=False),
        row(user_task_id="user_task_3"),
        row(user_task_id="user_task_4", exposed_raw=True, status="error"),
    ]
    shown = [case for case in cases if case.exposed_shown]
    assert asr_of(case for case in cases if case.exposed_raw) == (50.0, 2, 1)
    assert asr_of(shown) == (100.0, 1, 1)
    assert exposure_share(cases, "exposed_raw") == (pytest.approx(200 / 3), 3, 1)
    assert math.isnan(asr_of([]).value)


def test_a_success_that_was_not_shown_has_a_reason() -> None:
    assert unseen_reason(row(read_by=("worker", "main"), exposed_raw=True)) == "read by worker and main"
    assert unseen_reason(row(exposed_raw=True)) == "returned, but read by no model recorded"
    assert unseen_reason(row(exposed_raw=False)) == "never returned by a tool"


def test_utility_where_the_attack_failed_leaves_successes_out() -> None:
    cases = [row(injection_success=True, utility=False), row(utility=True), row(suite="slack", utility=False)]
    assert utility_where_safe(cases) == (50.0, 2, 2)


def test_workspace_is_split_where_both_kinds_of_injection_tasks_were_run() -> None:
    cases = [
        row(suite="workspace", injection_task_id=f"injection_task_{goal}", injection_success=goal < 3)
        for goal in range(14)
    ]
    split = workspace_split(cases)
    assert split is not None
    assert split == ((50.0, 6, 1), (0.0, 8, 1))
    assert workspace_split(cases[:6]) is None


def test_a_model_that_falls_for_nothing_is_at_the_floor() -> None:
    silent = _grid({"banking": (8, 4), "slack": (8, 4)}, defense="none")
    assert levels_at_the_floor(tally_suites(silent, ErrorRule.REPORT), SignDraws(99)) == [
        "overall",
        "banking",
        "slack",
    ]
    loud = [replace(case, injection_success=True) for case in silent]
    assert levels_at_the_floor(tally_suites(loud, ErrorRule.REPORT), SignDraws(99)) == []
    half = [replace(case, injection_success=case.suite == "slack") for case in silent]
    assert levels_at_the_floor(tally_suites(half, ErrorRule.REPORT), SignDraws(99)) == ["banking"]


def test_more_cases_detect_smaller_differences() -> None:
    def detectable(users: int, goals: int) -> float:
        baseline = _grid({"banking": (users, goals)}, defense="none")
        flipped = [replace(case, injection_success=i % 3 == 0) for i, case in enumerate(baseline)]
        other = [replace(case, defense="agentsys") for case in baseline]
        return detectable_asr(flipped, other)

    assert detectable(20, 20) < detectable(8, 7) < 100
    assert math.isnan(detectable_asr([], []))


def test_notes_stand_only_where_they_apply() -> None:
    plain = [row(benchmark="own", user_task_id=f"user_task_{user}") for user in range(3)]
    assert honesty_notes(plain) == []


def test_asr_among_exposed_published_cases_is_the_audits(published: Callable[[str], Path]) -> None:
    cases = [
        case
        for case in read_cases([published("agentdojo-gpt-4o-mini-2024-07-18")]).cases
        if case.attack != "none" and not case.is_injection_task_alone
    ]
    assert round(asr_of(case for case in cases if case.exposed_raw).value, 1) == 34.5
    assert len(cases) == 629


@pytest.mark.slow
def test_the_listed_tasks_are_those_that_agentdojo_passes_untouched() -> None:
    suites = pytest.importorskip("agentdojo.task_suite.load_suites")
    for version in ("v1", "v1.1", "v1.1.1", "v1.1.2", "v1.2", "v1.2.1", "v1.2.2"):
        passed = set()
        for name, suite in suites.get_suites(version).items():
            for task in suite.user_tasks.values():
                environment = task.init_environment(suite.load_and_inject_default_environment({}))
                before = environment.model_copy(deep=True)
                from_calls = task.utility_from_traces("", before, environment, [])
                if task.utility("", before, environment) if from_calls is None else from_calls:
                    passed.add((name, task.ID))
        listed = _limits(version).passed_by_doing_nothing
        assert passed == {(suite, task) for suite, tasks in listed.items() for task in tasks}


def test_replies_that_came_to_nothing_are_counted_per_model() -> None:
    one = row(attack="none", odd_replies={"m-1": {"empty": 2, "unparsed_call": 1}})
    two = row(attack="none", user_task_id="user_task_1", odd_replies={"m-1": {"empty": 3}})
    notes = honesty_notes([one, two])
    assert "Replies of m-1 that were empty: 5, in 2 cases." in notes
    assert (
        "Replies of m-1 that were a tool call as text that its server did not parse: 1, in 1 cases." in notes
    )


def test_what_was_too_long_for_a_model_is_counted_by_suite() -> None:
    lost = [row(user_task_id=f"user_task_{n}", status="error", error_kind="context_length") for n in range(2)]
    other = row(suite="travel", status="error", error_kind="timeout")
    kept = [row(), row(suite="travel"), other]
    told = "Longer than the model's context (context_length): banking 2 of 3 cases."
    assert told in honesty_notes([*lost, *kept])
    assert not [note for note in honesty_notes(kept) if "context_length" in note]


def test_published_cases_that_end_in_an_empty_answer_are_counted_by_suite() -> None:
    silent = row(foreign=True, answer_chars=0)
    told = "Ended in an empty answer: banking 1 of 2, travel 1 of 1 cases."
    notes = honesty_notes([silent, row(foreign=True, answer_chars=5), replace(silent, suite="travel")])
    assert [note for note in notes if note.startswith(told)]
    ours = [replace(silent, foreign=False), replace(silent, status="error", error_kind="server_error")]
    assert not [note for note in honesty_notes(ours) if "empty answer" in note]


def benign(task: int, *, solved: bool, **fields: Any) -> CaseRow:
    return row(**({"attack": "none", "user_task_id": f"user_task_{task}", "utility": solved} | fields))


def denied(task: int, *, solved: bool, **fields: Any) -> CaseRow:
    plain = {"attack": "dos", "user_task_id": f"user_task_{task}", "utility": solved}
    return row(**(plain | {"injection_success": not solved} | fields))


def both(*outcomes: tuple[bool, bool], **fields: Any) -> list[CaseRow]:
    """Tasks 0, 1, ...: (solved without attack, solved under attack)."""
    cases = []
    for task, (before, under) in enumerate(outcomes):
        cases += [benign(task, solved=before, **fields), denied(task, solved=under, **fields)]
    return cases


def only(cases: list[CaseRow]) -> Denial:
    (found,) = paired_denials(cases, replicates=50)
    return found


def overall(found: Denial) -> dict[str, float]:
    return {one.metric: one.value for one in found.rows if one.suite == OVERALL}


def test_what_the_model_fails_without_attack_is_no_success_of_the_attack() -> None:
    cases = both((False, False), (False, False), (True, False), (True, True), (False, True))
    found = only(cases)
    official = [one for one in measure(cases, replicates=50) if one.metric == TARGETED_ASR]
    assert official[0].value == 60.0
    assert overall(found) == {ASR_WHERE_SOLVED: 50.0, UTILITY_CHANGE: 0.0}
    assert (found.pairs, found.lost, found.gained, found.unpaired) == (5, 1, 1, 0)
    assert [one.n for one in found.rows if one.suite == OVERALL] == [2, 5]


def test_overall_is_the_unweighted_mean_of_suites_that_have_solved_tasks() -> None:
    cases = both((True, False), (True, True), (True, True), (True, True))
    cases += both((True, False), suite="slack") + both((False, False), suite="travel")
    found = only(cases)
    suites = {one.suite: one.value for one in found.rows if one.metric == ASR_WHERE_SOLVED}
    assert suites == {"banking": 25.0, "slack": 100.0, "overall": 62.5, "pooled": 40.0}


def test_without_a_solved_task_the_share_is_absent_and_the_change_is_not() -> None:
    found = only(both((False, False), (False, True)))
    assert overall(found) == {UTILITY_CHANGE: 50.0}


def test_errored_and_unpaired_cases_are_left_out_and_counted() -> None:
    cases = both((True, False), (True, True))
    cases += [denied(7, solved=False), benign(8, solved=True)]
    cases += [benign(9, solved=True), denied(9, solved=False, status="error", error_kind="refused")]
    found = only(cases)
    assert (found.pairs, found.unpaired) == (2, 2)
    assert overall(found)[ASR_WHERE_SOLVED] == 50.0


@pytest.mark.parametrize(
    ("label", "expected"),
    [("dos", True), ("swearwords_dos", True), ("dos(n=2)", True), ("direct", False), ("dos_like", False)],
)
def test_denials_are_known_by_agentdojos_names(label: str, expected: bool) -> None:
    assert is_denial_of_service(label) is expected


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12))
def test_the_counts_say_the_same_as_the_rates(outcomes: list[tuple[bool, bool]]) -> None:
    found = only(both(*outcomes))
    solved = sum(before for before, _ in outcomes)
    change = 100 * (found.gained - found.lost) / len(outcomes)
    assert overall(found)[UTILITY_CHANGE] == pytest.approx(change)
    assert overall(found).get(ASR_WHERE_SOLVED, math.nan) == pytest.approx(
        100 * found.lost / solved if solved else math.nan, nan_ok=True
    )
