"""The screen that `agentsys results` and the end of a run show: what was found, in a few lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_output import command_output
from stored_cases import case_of, row, row_grid, store_own

from agentsys.analysis.metrics import rates
from agentsys.analysis.metrics.comparison import compare_all_with_none, compare_sides
from agentsys.analysis.metrics.rates import MeasuredCell, ScoredCells
from agentsys.analysis.tables import result_frame
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.result_notes import write_report_notes
from agentsys.analysis.tables.results_screen import (
    compute_relative_tokens,
    make_results_screen,
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


def frame_of(*cases: CaseRow) -> ResultFrame:
    return ResultFrame(LoadedCases(cases))


def test_the_finding_says_what_changed_by_the_paired_test_and_what_did_not() -> None:
    lines = write_findings(frame_of(*NONE, *STOPS, *grid("idle", hit=True)))
    assert re.fullmatch(r"stops: ASR 100.0 -> 0.0 \(p Holm <?0.0\d+\), benign utility unchanged", lines[0])
    assert lines[1] == "idle: ASR unchanged, benign utility unchanged"


def test_defenses_that_share_a_line_are_counted_where_it_has_no_room_for_their_names() -> None:
    cases = [*NONE, *STOPS, *grid("also_with_a_long_name", hit=False), *grid("and_another", hit=False)]
    (whole,) = write_findings(frame_of(*cases))
    (line,) = write_findings(frame_of(*cases), width=len(whole) - 1)
    assert whole.startswith("also_with_a_long_name, and_another, stops: ASR 100.0 -> 0.0")
    assert line.startswith("also_with_a_long_name and 2 more: ASR 100.0 -> 0.0")
    assert write_findings(frame_of(*cases), width=10) == (line,)


def test_a_difference_that_chance_explains_is_not_told_apart() -> None:
    once = [
        replace(case, injection_success=False) if i == 1 else case
        for i, case in enumerate(grid("luck", True))
    ]
    (line,) = write_findings(frame_of(*NONE, *once))
    found = compare_sides([*NONE, *once])
    p = next(
        r.p_holm for r in found.rows if (r.metric, r.suite, r.cases) == ("targeted_asr", "overall", "all")
    )
    assert p > 0.05
    assert line == f"luck: ASR not told apart (p Holm {p:.3f}), benign utility unchanged"


@pytest.mark.parametrize("cases", [NONE, STOPS])
def test_nothing_is_found_where_there_is_nothing_to_compare(cases: list[CaseRow]) -> None:
    assert write_findings(frame_of(*cases)) == ()


def screen_of(cases: list[CaseRow]) -> tuple[tuple[str, ...], list[list[str]], tuple[str, ...]]:
    document = make_results_screen(frame_of(*cases), 200)
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


@pytest.mark.parametrize(
    ("doubted", "asr"), [(True, ["100.0", "0.0?", "57.1"]), (False, ["100.0", "0.0*", "57.1"])]
)
def test_nothing_is_starred_beside_a_better_row_in_doubt(doubted: bool, asr: list[str]) -> None:
    # Of `stops` a case is missing, so that it is suspect; of the rest `half` is the best.
    half = [replace(case, defense="half", injection_success=at % 2 > 0) for at, case in enumerate(NONE)]
    half = [replace(case, injection_success=None) if case.attack == "none" else case for case in half]
    header, rows, _ = screen_of([*NONE, *(STOPS[:1] + STOPS[2:] if doubted else STOPS), *half])
    shown = {line[0]: line[header.index("ASR")].strip() for line in rows}
    assert [shown[name] for name in ("none", "stops", "half")] == asr


def test_of_several_models_every_note_names_its_own() -> None:
    idle: dict[str, Any] = {"proposed": 0, "calls": {}, "replies_by_role": {"agent": 1}}
    mute = [replace(case, model="mute", **idle) for case in NONE]
    lost = [replace(case, model="lost", foreign=True, receipts=None) for case in NONE]
    document = make_results_screen(frame_of(*NONE, *mute, *lost), 200)
    told = " ".join(document.notes)
    assert "mute with none / important_instructions: broken: no tool call" in told
    assert "Suspect: no receipts (lost)" in told
    fails = [replace(mute[at], status="error", error_kind="server") for at in (0, 1)]
    errored = tuple(write_report_notes(frame_of(*NONE, *fails, *mute[2:])))
    assert "Errored cases are left out of the rates: 2 (server 2; of mute)." in errored
    halves = [case for case in NONE if case.suite == "banking" or case.attack == "none"]
    covers = tuple(write_report_notes(frame_of(*STOPS, *halves, *mute)))
    assert "gpt-4o on agentdojo v1.2.2: none / important_instructions: overall covers banking only." in covers
    alone = [note for note in screen_of(mute)[2] if "broken" in note]
    assert alone and all(note.startswith("none") for note in alone)


def test_a_part_of_a_suite_is_named_wherever_an_overall_is_printed() -> None:
    travel = [replace(case, suite="travel") for case in row_grid(11, 7, suite="travel", defense="none")]
    pairs = row_grid(16, 4, suite="banking", defense="none")
    for cases, part in ((travel, "Travel, 11 of 20 user tasks"), (pairs, "Banking, 64 of 144 cases")):
        (note,) = [note for note in screen_of(cases)[2] if note.startswith("Overall is of a part")]
        assert note == f"Overall is of a part of AgentDojo: {part}: gpt-4o / none / important_instructions."
        assert note in tuple(write_report_notes(frame_of(*cases)))
    sizes = {"banking": (16, 9), "slack": (21, 5), "travel": (20, 7), "workspace": (40, 14)}
    whole = [case for suite, size in sizes.items() for case in row_grid(*size, suite=suite, defense="none")]
    assert not [note for note in screen_of(whole)[2] if note.startswith("Overall is of a part")]


def test_what_is_left_out_as_a_second_copy_is_told_on_the_screen(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        store_own(tmp_path / folder, case_of())
    said = " ".join(command_output("results", tmp_path / "a", tmp_path / "b").split())
    assert "Left out: 1 file of cases that are stored more than once" in said


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


def test_a_note_that_is_too_long_is_folded_to_its_first_clauses_and_says_where_the_rest_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "Utility cannot exceed 90.6 (on slack): the injection overwrites what some user tasks need " * 2

    def fold(*notes: str, width: int) -> Sequence[str]:
        monkeypatch.setattr(
            "agentsys.analysis.tables.results_screen.write_report_notes", lambda _: iter(notes)
        )
        return make_results_screen(frame_of(*NONE), width).notes[1:]

    head = "none / important_instructions: of which nothing is said before the colon " + "word " * 20
    assert fold(head, width=80) == [head]
    notes = long, "word " * 40, "c", "d"
    assert fold(*notes, width=80) == ["Utility cannot exceed 90.6 (on slack) (more: --full)", "word " * 40]
    assert fold(*notes, width=400)[0] == long


def test_tokens_are_those_of_the_same_cases_without_a_defense() -> None:
    none = [replace(case, tokens_by_role={"agent": 100}) for case in NONE]
    three = [replace(case, tokens_by_role={"agent": 100, "worker": 200}) for case in STOPS]
    dear = replace(
        three[0], user_task_id="user_task_99", tokens_by_role={"agent": 10**9}
    )  # none never ran it
    found = compute_relative_tokens(ScoredCells([*none, *three, dear]))
    assert found[MeasuredCell.of(STOPS[1])] == 3.0
    assert found[MeasuredCell.of(NONE[1])] == 1.0
    assert compute_relative_tokens(ScoredCells(three)) == {}


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
        whole = make_results_screen(ResultFrame(reading), 80)
        assert make_results_screen(ResultFrame(reading, brief=True), 80) == whole


def test_the_differences_behind_findings_are_those_that_compare_has() -> None:
    for cases in ([*NONE, *STOPS], _messy()):
        rows = compare_sides(cases, "none").rows
        overall = [one for one in rows if (one.suite, one.cases) == ("overall", "all")]
        unasked: dict[str, Any] = dict.fromkeys(("ci_low", "ci_high"), 0.0)
        unasked |= dict.fromkeys(("differing_user_tasks", "differing_injection_tasks"), 0)
        found = compare_all_with_none(ScoredCells(cases))
        assert found
        assert [replace(one, **unasked) for one in found] == [replace(one, **unasked) for one in overall]


@pytest.mark.parametrize("options", [(), ("--full",), ("--format", "csv")])
def test_a_command_groups_and_measures_its_cases_once(
    options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for defense in ("none", "agentsys"):
        for task in range(3):
            for attack in ("none", "direct"):
                case = case_of(user_task_id=f"user_task_{task}", attack=attack, defense=defense)
                store_own(tmp_path, case)
    calls: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        counted = getattr(owner, name)

        def call(*args: Any, **options: Any) -> Any:
            calls[name] += 1
            return counted(*args, **options)

        monkeypatch.setattr(owner, name, call)

    count(rates, "measure")
    count(rates.ScoredCells, "__init__")
    for name in ("measure_facts", "find_paired_denials", "compare_all_with_none"):
        count(result_frame, name)
    assert "agentsys" in command_output("results", tmp_path, *options)
    assert calls["measure"] == calls["__init__"] == 1
    assert set(calls.values()) == {1}
