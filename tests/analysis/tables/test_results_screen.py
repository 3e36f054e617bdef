"""The screen that `agentsys results` and the end of a run show: what was found, in a few lines."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from stored_cases import row

from agentsys.analysis.metrics.comparison import compare_all_with_none, compare_sides
from agentsys.analysis.metrics.rates import MeasuredCell, group_scored_cells
from agentsys.analysis.tables.results_report import build_report
from agentsys.analysis.tables.results_screen import (
    compute_relative_tokens,
    make_results_screen,
    make_screen_of_reading,
    write_findings,
    write_spent_line,
)
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow


def grid(defense: str, hit: bool, solved: bool = True, **fields: object) -> list[CaseRow]:
    """Nine user tasks of two suites, alone and with seven injection tasks each."""
    some = []
    for suite in ("banking", "slack"):
        for user in range(9):
            same = {"suite": suite, "user_task_id": f"user_task_{user}", "defense": defense, **fields}
            some.append(row(attack="none", utility=solved, **same))
            some += [
                row(injection_task_id=f"injection_task_{goal}", injection_success=hit, utility=solved, **same)
                for goal in range(7)
            ]
    return some


NONE, STOPS = grid("none", hit=True), grid("stops", hit=False)


def test_the_finding_says_what_changed_by_the_paired_test_and_what_did_not() -> None:
    lines = write_findings([*NONE, *STOPS, *grid("idle", hit=True)])
    assert re.fullmatch(r"stops: ASR 100.0 -> 0.0 \(p Holm <?0.0\d+\), benign utility unchanged", lines[0])
    assert lines[1] == "idle: ASR unchanged, benign utility unchanged"


def test_defenses_that_share_a_line_are_counted_where_it_has_no_room_for_their_names() -> None:
    cases = [*NONE, *STOPS, *grid("also_with_a_long_name", hit=False), *grid("and_another", hit=False)]
    (whole,) = write_findings(cases)
    (line,) = write_findings(cases, width=len(whole) - 1)
    assert whole.startswith("also_with_a_long_name, and_another, stops: ASR 100.0 -> 0.0")
    assert line.startswith("also_with_a_long_name and 2 more: ASR 100.0 -> 0.0")
    assert write_findings(cases, width=10) == (line,)


def test_a_difference_that_chance_explains_is_not_told_apart() -> None:
    once = [
        replace(case, injection_success=False) if i == 1 else case
        for i, case in enumerate(grid("luck", True))
    ]
    (line,) = write_findings([*NONE, *once])
    found = compare_sides([*NONE, *once])
    p = next(
        r.p_holm for r in found.rows if (r.metric, r.suite, r.cases) == ("targeted_asr", "overall", "all")
    )
    assert p > 0.05
    assert line == f"luck: ASR not told apart (p Holm {p:.3f}), benign utility unchanged"


@pytest.mark.parametrize("cases", [NONE, STOPS])
def test_nothing_is_found_where_there_is_nothing_to_compare(cases: list[CaseRow]) -> None:
    assert write_findings(cases) == ()


def screen_of(cases: list[CaseRow]) -> tuple[tuple[str, ...], list[list[str]], tuple[str, ...]]:
    document = make_results_screen(build_report(LoadedCases(tuple(cases))), cases, (), 200)
    ((_, (found,)),) = document.sections
    return found.header, [[cell.text for cell in line] for line in found.rows], tuple(document.notes)


def test_the_best_value_is_marked_and_errors_are_counted() -> None:
    lost = [
        replace(case, status="error", error_kind="server") if i == 1 else case for i, case in enumerate(STOPS)
    ]
    header, rows, _ = screen_of([*NONE, *STOPS])
    asr, errors = header.index("ASR"), header.index("Errors")
    assert [line[asr].strip() for line in rows] == ["100.0", "0.0*"]
    header, rows, notes = screen_of([*NONE, *lost])
    assert [line[asr].strip() for line in rows] == ["100.0", "0.0?"]  # not over the same cases
    assert "stops / important_instructions: suspect: fewer cases (1 fewer than in rows beside it)." in notes
    assert [line[errors] for line in rows] == ["0", "1"]
    assert [line[1].strip() for line in rows] == ["100.0", "100.0"]  # alike: none is the best
    assert "Errored cases are left out of the rates: 1 (server 1)." in notes


def test_attacks_stand_below_each_other_with_a_best_each() -> None:
    direct = [replace(case, attack="direct") for case in (*NONE, *STOPS) if case.attack != "none"]
    header, rows, _ = screen_of([*NONE, *STOPS, *direct])
    assert header[:2] == ("Attack", "Defense")
    assert [line[:2] for line in rows] == [
        ["direct", "none"],
        ["direct", "stops"],
        ["important_instructions", "none"],
        ["important_instructions", "stops"],
    ]
    assert [line[header.index("ASR")].strip() for line in rows] == ["100.0", "0.0*"] * 2


def test_a_note_that_is_too_long_is_folded_to_its_first_clauses_and_says_where_the_rest_is() -> None:
    long = "Utility cannot exceed 90.6 (on slack): the injection overwrites what some user tasks need " * 2
    found = replace(build_report(LoadedCases(tuple(NONE))), notes=(long, "word " * 40, "c", "d"))
    head = "none / important_instructions: of which nothing is said before the colon " + "word " * 20
    assert make_results_screen(replace(found, notes=(head,)), NONE, (), 80).notes[1:] == [head]
    notes = make_results_screen(found, NONE, (), 80).notes[1:]
    assert notes == ["Utility cannot exceed 90.6 (on slack) (more: --full)", "word " * 40]
    assert make_results_screen(found, NONE, (), 400).notes[1] == long


def test_tokens_are_those_of_the_same_cases_without_a_defense() -> None:
    none = [replace(case, tokens_by_role={"agent": 100}) for case in NONE]
    three = [replace(case, tokens_by_role={"agent": 100, "worker": 200}) for case in STOPS]
    dear = replace(
        three[0], user_task_id="user_task_99", tokens_by_role={"agent": 10**9}
    )  # none never ran it
    found = compute_relative_tokens([*none, *three, dear])
    assert found[MeasuredCell.of(STOPS[1])] == 3.0
    assert found[MeasuredCell.of(NONE[1])] == 1.0
    assert compute_relative_tokens(three) == {}


def test_what_cases_took_is_said_only_as_far_as_it_is_known() -> None:
    known = [replace(NONE[0], tokens_by_role={"agent": 1500}, cost_usd=0.5, duration_s=90.0)]
    assert write_spent_line(known) == "1 case, 1.5k tokens, $0.50, 0:01:30 of work"
    assert write_spent_line(known, seconds=30) == "1 case, 1.5k tokens, $0.50, 0:00:30"
    unknown = [*known, replace(known[0], cost_usd=None, tokens_by_role={})]
    assert write_spent_line(unknown).startswith("2 cases, tokens unknown, cost unknown")


def _messy() -> list[CaseRow]:
    """Two defenses beside none: with errors, missing cases, a second epoch, and outcomes of all kinds."""
    kept = []
    for place, case in enumerate([*NONE, *STOPS, *grid("odd", hit=True, epoch=1), *grid("odd", hit=False)]):
        case = replace(
            case, utility=place % 3 > 0, injection_success=case.injection_success and place % 5 > 0
        )
        if place % 31 == 0 and case.defense != "stops":
            case = replace(case, status="error", error_kind="server")
        if place % 37:
            kept.append(case)
    return kept


def test_the_screen_of_a_reading_is_that_of_the_whole_report() -> None:
    for cases in ([*NONE, *STOPS], _messy()):
        reading = LoadedCases(tuple(cases))
        whole = make_results_screen(build_report(reading), cases, write_findings(cases, width=78), 80)
        assert make_screen_of_reading(reading, 80) == whole


def test_the_differences_behind_findings_are_those_that_compare_has() -> None:
    for cases in ([*NONE, *STOPS], _messy()):
        rows = compare_sides(cases, "none").rows
        overall = [one for one in rows if (one.suite, one.cases) == ("overall", "all")]
        unasked: dict[str, Any] = dict.fromkeys(("ci_low", "ci_high", "smallest_detectable"), 0.0)
        unasked |= dict.fromkeys(("differing_user_tasks", "differing_injection_tasks"), 0)
        found = compare_all_with_none(group_scored_cells(cases))
        assert found
        assert [replace(one, **unasked) for one in found] == [replace(one, **unasked) for one in overall]
