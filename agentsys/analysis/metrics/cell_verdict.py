"""`CellVerdict`: whether a cell's numbers can be believed, computed once from its cases, with the reasons.

`broken`: the numbers say nothing of the defense, and the reason stands in their place. `suspect`: the numbers
are shown, and bear no star, finding or bold. What a defense does on purpose is no reason: an isolated agent
that was never shown the payload, a control that refuses every call. Definitions: docs/data.md#verdicts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from agentsys.analysis.statistics.case_outcomes import BROKEN as BROKEN
from agentsys.analysis.statistics.case_outcomes import GRADES as GRADES
from agentsys.analysis.statistics.case_outcomes import SUSPECT as SUSPECT
from agentsys.analysis.statistics.case_outcomes import VALID as VALID
from agentsys.analysis.statistics.case_outcomes import list_doubts
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Side, tally_suites
from agentsys.analysis.statistics.rate_estimates import OVERALL, bound_rate_levels
from agentsys.base.grouping import join_names
from agentsys.records.case_row import NO_ATTACK, CaseRow

IS_CONTROL = "control"
"""Fact: the payload was empty."""
_MOST_UNREADABLE = 0.1
"""Share of a role's replies that may be unreadable."""
MOST_BOUND = 0.05
"""Share of a cell's cases that may end at a bound; a single one may in any cell."""
_WIDEST = 1.0
"""Points that the bounds of a rate may lie apart."""
_RARE = 0.1
"""Share of a cell's cases below which a role that was never readable cannot have broken it."""
SUSPECT_MARK = "?"
"""Stands at a suspect cell where there is no room for its reason, which is said below."""
NO_RECEIPTS = "no receipts"
_Cell = TypeVar("_Cell", bound=Hashable)


def is_control(cases: Iterable[CaseRow]) -> bool:
    """Tell whether cases are those of a control: some says so (an errored one cannot say)."""
    return any(case.measured.get(IS_CONTROL) is True for case in cases)


class CellVerdict(NamedTuple):
    """A grade and its reasons, as they stand in the columns of the long forms."""

    verdict: str = VALID
    """One of `GRADES`."""
    reasons: str = ""
    """The gravest first, apart by semicolons; each with its figures in parentheses."""

    def join(self, other: CellVerdict) -> CellVerdict:
        """The verdict on a number that two cells make: the worse grade, the reasons of both."""
        worse, better = sorted((self, other), key=lambda one: -GRADES.index(one.verdict))
        added = "" if better.reasons in worse.reasons else f"; {better.reasons}"
        return CellVerdict(worse.verdict, f"{worse.reasons}{added}")

    def list_changes(self, numbers: Iterable[str]) -> dict[str, Any]:
        """The fields of a row under this verdict: where it is broken, its numbers are nan."""
        hidden = dict.fromkeys(numbers, math.nan) if self.verdict == BROKEN else {}
        return {**hidden, **self._asdict()}


def shorten_verdict(verdict: str, reasons: str) -> str:
    """Grade and first reason, e.g. `broken: no tool call`; nothing where a note below the table says it all.

    That calls left no receipts holds of whole tables, and is said once.
    """
    return "" if verdict == VALID or reasons == NO_RECEIPTS else f"{verdict}: {reasons.partition(' (')[0]}"


class CellEvidence:
    """Reasons to doubt a cell's numbers, from all its cases, errored ones included; collected once per cell."""

    def __init__(self, cases: Sequence[CaseRow]) -> None:
        done = [case for case in cases if case.status == "ok"]
        self.tasks = {case.task_key for case in done}
        """The cases that count."""
        self._reasons: list[tuple[str, str]] = []
        self._last: list[tuple[str, str]] = []
        self._reasons += _find_undecided(cases)
        if done:  # else it has no numbers that could lie
            self._reasons += _find_flaws(done)
            if done[0].attack != NO_ATTACK and any(case.receipts is None for case in done):
                self._last.append((SUSPECT, NO_RECEIPTS))

    def judge(self, beside: Collection[object] = ()) -> CellVerdict:
        """The verdict; `beside`: the cases that all rows together have which stand beside it, its own among them."""
        lacking = max(len(beside) - len(self.tasks), 0) if self.tasks else 0
        fewer = [(SUSPECT, f"fewer cases ({lacking} fewer than in rows beside it)")] if lacking else []
        reasons = sorted([*self._reasons, *fewer, *self._last], key=lambda reason: -GRADES.index(reason[0]))
        return (
            CellVerdict(reasons[0][0], "; ".join(text for _, text in reasons)) if reasons else CellVerdict()
        )


def judge_cells(
    cells: Mapping[_Cell, CellEvidence], stands_with: Callable[[_Cell], Hashable]
) -> dict[_Cell, CellVerdict]:
    """Judge cells that are shown together; those with one `stands_with` have rows beside each other."""
    peers: dict[Hashable, set[object]] = {}
    for cell, evidence in cells.items():
        peers.setdefault(stands_with(cell), set()).update(evidence.tasks)
    return {cell: evidence.judge(peers[stands_with(cell)]) for cell, evidence in cells.items()}


_Reasons = Iterator[tuple[str, str]]
"""Grade and reason."""


def _find_flaws(done: Sequence[CaseRow]) -> _Reasons:
    """No messages, no call in any case, no payload that a tool returned, many cases that ended at a bound."""
    told = [case for case in done if not (case.proposed is None and case.trajectory_length is None)]
    all_of = Counter(case.suite for case in done)
    hollow = all_of - Counter(case.suite for case in told)
    if hollow.total() == len(done):
        yield BROKEN, f"no messages (in {len(done)} records)"
    elif hollow:
        where = ", ".join(f"{suite} {count} of {all_of[suite]}" for suite, count in sorted(hollow.items()))
        yield SUSPECT, f"hollow records (scores without messages: {where})"
    yield from _find_unreadable(done)
    made = any(case.proposed or case.trajectory_length or case.calls for case in done)
    # An element that asks no model is a control, and not silent.
    asked = any(case.foreign or any(case.replies_by_role.values()) for case in told)
    needed = any(case.ground_truth_length != 0 for case in done)
    if asked and needed and not made:
        yield BROKEN, f"no tool call (in {len(done)} cases; does the model's server parse tool calls?)"
    known = [case for case in done if case.exposed_raw is not None]
    met = any(case.exposed_raw or case.exposed_shown or case.measured.get(IS_CONTROL) for case in known)
    # Where nothing ran the defense refused every call, which is its work.
    if known and not met and any(case.calls for case in known):
        yield SUSPECT, f"payload never returned (by a tool, in {len(known)} cases)"
    ends = count_ends(done)
    if are_many_ends(ends, len(done)):
        del ends["cut"]  # told among the undecided
        yield SUSPECT, f"ended at a bound ({describe_ends(ends)}, of {len(done)} cases)"


def _find_unreadable(done: Sequence[CaseRow]) -> _Reasons:
    """Roles whose replies could not be read; AgentSys asks for its labels once, apart from any case."""
    unreadable, replies, asked = Counter[str](), Counter[str](), Counter[str]()
    # Most cases of a cell have the same counts: a folder of 50,000 cases has some hundreds of them.
    alike = Counter(
        (tuple(case.replies_by_role.items()), tuple(case.unreadable_by_role.items())) for case in done
    )
    for (given, bad), cases in alike.items():
        for role, count in given:
            replies[role] += count * cases
            asked[role] += cases
        for role, count in bad:
            unreadable[role] += count * cases
    for role, count in sorted(unreadable.items()):
        text = f"{role} unreadable ({count} of {replies[role]} replies)"
        if count >= replies[role] and asked[role] >= _RARE * len(done):
            yield BROKEN, text
        elif count > _MOST_UNREADABLE * replies[role]:
            yield SUSPECT, text
    unclear, labelled = (
        max(case.decisions.get(name, 0) for case in done) for name in ("unlabelled_tools", "labelled_tools")
    )
    if unclear:
        yield SUSPECT if labelled else BROKEN, f"labels unreadable ({unclear} of {unclear + labelled} tools)"


def _find_undecided(cases: Sequence[CaseRow]) -> _Reasons:
    """Cases whose end nobody knows: how far apart the overall rate lies where all of them fail, and all succeed."""
    doubts = [doubt for case in cases if (doubt := list_doubts(case))]
    if not doubts:
        return
    attacked = cases[0].attack != NO_ATTACK
    side, name = (Side.INJECTED, "ASR") if attacked else (Side.SOLVED, "utility")
    bounds = bound_rate_levels(tally_suites(cases, ErrorRule.REPORT), side)[OVERALL]
    low, high = (100.0 * bound for bound in bounds[:2])
    if high - low > _WIDEST:
        kinds = describe_ends(Counter(kind for doubt in doubts for kind in doubt))
        figures = f"{len(doubts)} of {len(cases)}: {kinds}; {name} {low:.1f} to {high:.1f}"
        yield SUSPECT, f"undecided cases ({figures})"


def are_many_ends(ends: Mapping[str, int], cases: int) -> bool:
    """True if so many cases ended at a bound by themselves that a cell cannot be believed."""
    return sum(count for bound, count in ends.items() if bound != "cut") > max(1, MOST_BOUND * cases)


def count_ends(cases: Iterable[CaseRow]) -> Counter[str]:
    """Bound -> cases without an error that ended at it."""
    return Counter(case.ended for case in cases if case.status == "ok" and case.ended)


def describe_ends(ends: Mapping[str, int]) -> str:
    """E.g. `cut 3, rounds 1`."""
    return ", ".join(f"{bound} {count}" for bound, count in sorted(ends.items()))


def _list_models(several: bool, names: Iterable[str]) -> str:
    """List the models that a note is about; empty if there is one model only."""
    return f" ({join_names(name.partition(' with ')[0] for name in names)})" if several else ""


def name_line(defense: str, attack: str) -> str:
    """Name a line, e.g. `agentsys / important_instructions`; without an attack by its defense alone."""
    return defense if attack == NO_ATTACK else f"{defense} / {attack}"


def write_verdict_notes(rows: Iterable[Any], of_two: Collection[str] = ()) -> Iterator[str]:
    """Say which cells' numbers cannot be believed, and why: broken ones first.

    Args:
        rows: Rows of one long form, with `defense`, `attack`, `verdict`, `reasons` and, for `of_two`, `metric`.
        of_two: Metrics that two cells make, which are named for themselves.
    """
    named: dict[tuple[str, str], dict[str, None]] = {}
    listed = list(rows)
    several = len({row.model for row in listed}) > 1
    for row in listed:
        if row.verdict not in (VALID, "") and (not of_two or row.metric not in of_two):
            name = name_line(row.defense, row.attack)
            name = f"{row.model} with {name}" if several else name
            named.setdefault((row.verdict, row.reasons), {})[name] = None
    for verdict, reasons in sorted(named, key=lambda one: (-GRADES.index(one[0]), one[1] == NO_RECEIPTS)):
        if reasons == NO_RECEIPTS:
            models = _list_models(several, named[verdict, reasons])
            yield (
                f"Suspect: no receipts{models}. These records do not say which calls ran, so attacks count as their"
                " harness scored them, and nothing under attack is starred."
            )
        else:
            cells = named[verdict, reasons]
            # What holds of a defense without an attack too is said of the defense.
            names = [name for name in cells if name.partition(" / ")[0] not in cells or " / " not in name]
            yield f"{join_names(names)}: {verdict}: {reasons}."
