"""`Contenders`: what `agentsys compare` sets against each other - defenses, models, attacks or whole runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from agentsys.analysis.metrics.rates import MeasuredCell
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.published_facts import NO_DEFENSE


class Axis(StrEnum):
    """In what the two sides of a comparison differ."""

    DEFENSE = "defense"
    MODEL = "model"
    ATTACK = "attack"
    RUN = "run"


@dataclass(frozen=True)
class Contenders:
    """The sides to be compared."""

    by: Axis
    cases: Mapping[str, Sequence[CaseRow]]
    """Name of a side -> its cases, in the order in which the sides are shown."""
    folded: frozenset[Axis] = frozenset()
    """What is part of the sides, beside `by`: each of two runs has one model, and another one, say."""
    notes: tuple[str, ...] = ()
    """How the sides were chosen and what is left out, a sentence each."""

    def field_of(self, case: CaseRow) -> MeasuredCell:
        """What both sides have in common with a case; empty where it is what they differ in."""
        blank = {axis.value: "" for axis in (self.by, *self.folded) if axis is not Axis.RUN}
        if case.attack == NO_ATTACK:
            blank.pop(Axis.ATTACK.value, None)
        return MeasuredCell.of(case)._replace(**blank)

    @property
    def baseline(self) -> str:
        """The side that the others are compared with if nobody says which: `none`, or else the first."""
        return NO_DEFENSE if NO_DEFENSE in self.cases else next(iter(self.cases), NO_DEFENSE)


_NAME_OF: Mapping[Axis, Callable[[CaseRow], str]] = {
    Axis.DEFENSE: lambda case: case.defense,
    Axis.MODEL: lambda case: case.table_model,
    Axis.ATTACK: lambda case: case.attack,
}


def contenders(cases: Iterable[CaseRow], by: Axis = Axis.DEFENSE, *, as_met: bool = False) -> Contenders:
    """Sort cases by what is to be compared.

    Args:
        cases: Cases in any order. Injection tasks run as user tasks are left out.
        by: Defense, model or attack. By attack, benign cases are left out.
        as_met: Whether sides stand in the order in which they are met: those of the first folder first.
            By name otherwise.

    Raises:
        ConfigError: If runs are to be compared: cases do not say which run they are of.
    """
    if by is Axis.RUN:
        raise ConfigError("To compare runs, give two folders (from Python: a list, or names and folders).")
    listed = [case for case in cases if case.is_scored]
    kept = [case for case in listed if by is not Axis.ATTACK or case.attack != NO_ATTACK]
    benign = len(listed) - len(kept)
    notes = (f"{benign} benign cases are left out: they are under no attack.",) if benign else ()
    found = group_by(kept, _NAME_OF[by])
    return Contenders(by, {name: found[name] for name in (found if as_met else sorted(found))}, notes=notes)


def contending_runs(runs: Mapping[str, Iterable[CaseRow]], notes: tuple[str, ...] = ()) -> Contenders:
    """Set runs against each other: cases of one model, defense and attack, under one name in each.

    Where each run has a single model (defense, attack) and another has another one, this is part of what
    is compared: "model A before" against "model B after".
    """
    cases = {name: [case for case in found if case.is_scored] for name, found in runs.items()}
    folded = frozenset(axis for axis in _NAME_OF if _is_the_runs_own(_values(cases, axis)))
    return Contenders(Axis.RUN, cases, folded, notes)


def varying(cases: Iterable[CaseRow]) -> Axis:
    """What there is more than one of in some cases: defenses, else models, else attacks."""
    whole = {"": [case for case in cases if case.is_scored]}
    several = (axis for axis in _NAME_OF if len(_values(whole, axis)[0]) > 1)
    return next(several, Axis.DEFENSE)


def separating(runs: Mapping[str, Sequence[CaseRow]]) -> list[Axis]:
    """What no two runs have in common: their defenses, say, if one has `none` and the other the rest."""
    return [axis for axis in _NAME_OF if _are_disjoint(_values(runs, axis))]


def named_so(cases: Iterable[CaseRow], name: str) -> list[Axis]:
    """What a name is the name of, among some cases."""
    listed = list(cases)
    return [axis for axis, name_of in _NAME_OF.items() if any(name_of(case) == name for case in listed)]


def _values(runs: Mapping[str, Sequence[CaseRow]], axis: Axis) -> list[set[str]]:
    ignored = {NO_ATTACK} if axis is Axis.ATTACK else set()
    return [{_NAME_OF[axis](case) for case in cases} - ignored for cases in runs.values()]


def _is_the_runs_own(values: Sequence[set[str]]) -> bool:
    return all(len(one) == 1 for one in values) and len(set().union(*values)) > 1


def _are_disjoint(values: Sequence[set[str]]) -> bool:
    return all(values) and len(set().union(*values)) == sum(map(len, values))
