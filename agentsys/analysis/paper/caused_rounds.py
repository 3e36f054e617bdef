"""Table 1 from runs in which the injection's round was chosen (attack `injection_round`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from agentsys.analysis.paper.layout import ATTACK, ROUND_LENGTHS
from agentsys.records.case_row import CaseRow

CAUSED = frozenset(f"injection_round+round={number}" for number in range(1, max(ROUND_LENGTHS) + 1))
"""Labels under which the attack of the tables runs in a chosen round: its base is not in the label, so it
is the default one, `important_instructions`."""


def with_caused_rounds(cases: Iterable[CaseRow]) -> list[CaseRow]:
    """The cases, those of a chosen round under the attack that was written there.

    Only where the model and defense have no case of that attack itself: observed and caused rounds are
    not the same experiment and are not put into one row.
    """
    listed = list(cases)
    observed = {_row(case) for case in listed if case.attack == ATTACK}
    return [
        replace(case, attack=ATTACK) if case.attack in CAUSED and _row(case) not in observed else case
        for case in listed
    ]


def caused_in(shown: Iterable[CaseRow], read: Iterable[CaseRow]) -> int:
    """Count the cases shown that are of a chosen round.

    Args:
        shown: Cases in a table, as `with_caused_rounds` names them.
        read: All cases as they are stored.
    """
    sources = {case.source for case in read if case.attack in CAUSED}
    return sum(case.source in sources for case in shown)


def _row(case: CaseRow) -> tuple[str, str, str]:
    return case.benchmark, case.shown_model, case.defense
