"""Footnotes on replayed runs: in how many cases the recorded answers were given to other texts than now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from agentsys.records.case_row import CaseRow

DIFFERS = "differs from the record"
"""In a case's note about a text that the recorded run did not have (see agentsys.models.replay.check)."""


def replay_notes(cases: Iterable[CaseRow]) -> list[str]:
    """A line for each replayed agent of which some cases read other texts than were recorded.

    Args:
        cases: In any order.
    """
    counted: defaultdict[tuple[str, str], list[bool]] = defaultdict(list)
    for case in cases:
        if not case.is_injection_task_alone and case.status == "ok":
            counted[case.shown_model, case.defense].append(any(DIFFERS in note for note in case.notes))
    return [
        f"{model} / {defense}: texts differed from the record in {sum(found)} of {len(found)} cases, whose"
        " answers were given to the recorded texts (the cases' notes name them)."
        for (model, defense), found in sorted(counted.items())
        if any(found)
    ]
