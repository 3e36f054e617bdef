"""`selection`: which trajectories go into the report first, where not all of them fit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from agentsys.records.case_row import CaseRow


def selection(cases: Sequence[CaseRow]) -> list[int]:
    """Places of all cases, the ones to keep first.

    Errored cases come first. Then one case of every (benchmark, model, defense, attack, suite, outcome),
    then a second one of each, and so on: a report that holds some of the cases holds some of each kind.
    """
    queues: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        queues[_kind(case)].append(place)
    turn = {place: turn for queue in queues.values() for turn, place in enumerate(queue)}
    return sorted(range(len(cases)), key=lambda place: (cases[place].status != "error", turn[place], place))


def _kind(case: CaseRow) -> tuple[object, ...]:
    cell = (case.benchmark, case.version, case.shown_model, case.defense, case.attack, case.suite)
    return (*cell, case.status, case.utility, case.injection_success)
