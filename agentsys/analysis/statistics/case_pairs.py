"""Cases of two sides, side by side: which of them both have, and whose outcome differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agentsys.analysis.statistics.outcome_grid import (
    NO_TEXT,
    CountedOutcome,
    ErrorRule,
    Side,
    Tally,
    find_outcome,
    tally_outcomes,
)
from agentsys.base.grouping import group_by
from agentsys.records.case_row import CaseRow

KeyedCases = Mapping[tuple[str, str, str | None, int], tuple[CaseRow, CountedOutcome | None]]
"""`CaseRow.task_key` -> a case and what it counts as, sorted."""


class Pair(NamedTuple):
    """One case under two defenses, and what it counts as under both."""

    baseline: CaseRow
    defense: CaseRow
    before: CountedOutcome
    after: CountedOutcome

    @property
    def cases(self) -> tuple[CaseRow, CaseRow]:
        """The baseline's case and the other."""
        return self[:2]


@dataclass(frozen=True)
class Pairing:
    """The cases of two defenses, side by side; every case is in exactly one field."""

    pairs: tuple[Pair, ...]
    """Cases that count on both sides, sorted."""
    errored: int
    """Cases stored on both sides that errored on one of them and are left out."""
    only_baseline: int
    """Cases that the other side lacks."""
    only_defense: int
    no_text: int = 0
    """Of `errored`, those for which a search's attacker gave no text on one side."""


def key_cases(cases: Iterable[CaseRow], rule: ErrorRule) -> KeyedCases:
    """Sort a cell's cases by what tells them apart, with what each counts as."""
    keyed = sorted(((case.task_key, case) for case in cases), key=lambda one: str(one[0]))
    return {key: (case, find_outcome(case, rule)) for key, case in keyed}


def pair_up(baseline: KeyedCases, defense: KeyedCases) -> Pairing:
    """Find the cases that two defenses share: those of one suite, user task, injection task and epoch.

    One that is left out on one side, as it errored, is left out on both.
    """
    both = [(*baseline[key], *defense[key]) for key in baseline if key in defense]
    pairs = tuple(
        Pair(first, second, before, after) for first, before, second, after in both if before and after
    )
    no_text = sum(first.error_kind in NO_TEXT or second.error_kind in NO_TEXT for first, _, second, _ in both)
    alone = len(baseline) - len(both), len(defense) - len(both)
    return Pairing(pairs, len(both) - len(pairs), *alone, no_text)


def pair_cases(
    baseline: Iterable[CaseRow], defense: Iterable[CaseRow], rule: ErrorRule = ErrorRule.REPORT
) -> Pairing:
    """Find what the cases of two cells share, see `pair_up`."""
    return pair_up(key_cases(baseline, rule), key_cases(defense, rule))


def tally_pairs(pairs: Iterable[Pair]) -> tuple[dict[str, Tally], dict[str, Tally]]:
    """Suite -> counts of the baseline's cases, and of the others."""
    before, after = dict[str, Tally](), dict[str, Tally]()
    for suite, of in sorted(group_by(pairs, lambda pair: pair.defense.suite).items()):
        tasks = [(pair.defense.user_task_id, pair.defense.injection_task_id or "") for pair in of]
        errors = sum(pair.defense.status == "error" for pair in of)
        counted = [(*task, *pair.before) for task, pair in zip(tasks, of, strict=True)]
        before[suite] = tally_outcomes(suite, counted)
        counted = [(*task, *pair.after) for task, pair in zip(tasks, of, strict=True)]
        after[suite] = tally_outcomes(suite, counted, errors)
    return before, after


def split_changed_pairs(pairs: Sequence[Pair], side: Side) -> tuple[list[Pair], list[Pair]]:
    """Pairs with an outcome in the defense's case alone, and in the baseline's alone."""
    at = 0 if side is Side.SOLVED else 1
    gained = [pair for pair in pairs if pair.after[at] and not pair.before[at]]
    return gained, [pair for pair in pairs if pair.before[at] and not pair.after[at]]


def filter_exposed_pairs(pairs: Iterable[Pair]) -> tuple[Pair, ...]:
    """Pairs in which a tool returned the payload under both defenses: neither was spared by luck."""
    return tuple(pair for pair in pairs if pair.baseline.exposed_raw and pair.defense.exposed_raw)
