"""Notes where a significant difference rests on few tasks, with their counts."""

from __future__ import annotations

from collections.abc import Callable

from stored_cases import row

from agentsys.analysis.metrics.compare import compare
from agentsys.analysis.tables.compare_document import compare_output
from agentsys.analysis.tables.few_task_notes import broken_by, few_task_notes
from agentsys.records.case_row import CaseRow

_USERS, _GOALS = 16, 14


def _cases(defense: str, hit: Callable[[int, int], bool]) -> list[CaseRow]:
    return [
        row(
            defense=defense,
            user_task_id=f"user_task_{user}",
            injection_task_id=f"injection_task_{goal}",
            injection_success=hit(user, goal),
        )
        for user in range(_USERS)
        for goal in range(_GOALS)
    ]


def _notes(baseline: Callable[[int, int], bool], defense: Callable[[int, int], bool]) -> list[str]:
    return list(few_task_notes(compare([*_cases("none", baseline), *_cases("agentsys", defense)], draws=499)))


def _every_third(user: int, goal: int) -> bool:
    return (user + goal) % 3 == 0


def test_a_defense_broken_by_few_injection_tasks_is_counted_beside_its_difference() -> None:
    notes = _notes(_every_third, lambda user, goal: goal == 2 and _every_third(user, goal))
    assert notes[0] == (
        "agentsys against none, important_instructions, gpt-4o on agentdojo v1.2.2: "
        "of 14 injection tasks, 1 broke agentsys and 14 none (cases differ in 13)."
    )
    assert "up to 11%" in notes[1]
    assert len(notes) == 2


def test_a_difference_spread_over_many_tasks_that_break_both_has_no_note() -> None:
    assert _notes(_every_third, lambda user, goal: (user + goal) % 9 == 0) == []


def test_a_difference_in_few_injection_tasks_says_so() -> None:
    notes = _notes(lambda user, goal: goal < 8, lambda user, goal: goal < 3)
    assert notes[0] == (
        "agentsys against none, important_instructions, gpt-4o on agentdojo v1.2.2: "
        "Targeted ASR differs in 16 user tasks and 5 injection tasks only."
    )


def test_without_a_significant_difference_there_is_nothing_to_note() -> None:
    assert _notes(lambda user, goal: (user, goal) == (3, 3), lambda user, goal: False) == []


def test_notes_stand_under_the_comparison_and_columns_hold_the_counts() -> None:
    found = compare([*_cases("none", _every_third), *_cases("agentsys", lambda user, goal: False)], draws=499)
    notes = compare_output(found, 0).document.notes
    assert any("14 injection tasks, 0 broke agentsys" in note for note in notes)
    (asr,) = [
        one for one in found.rows if (one.metric, one.suite, one.cases) == ("targeted_asr", "overall", "all")
    ]
    assert (asr.differing_user_tasks, asr.differing_injection_tasks) == (16, 14)
    (pairing,) = found.pairings.values()
    assert tuple(map(len, broken_by(pairing.pairs))) == (14, 0)
