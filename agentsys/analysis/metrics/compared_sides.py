"""Sides that `agentsys compare` sets against each other: defenses, models, attacks or whole runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from agentsys.analysis.metrics.rates import MeasuredCell
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import IDENTITY, NO_ATTACK, CaseRow
from agentsys.records.pipeline_names import NO_DEFENSE
from agentsys.records.resolve_runs import find_shortest_distinct_ends
from agentsys.records.row_settings import separate_settings
from agentsys.records.runs_source import open_runs


class Axis(StrEnum):
    """In what the two sides of a comparison differ."""

    DEFENSE = "defense"
    MODEL = "model"
    ATTACK = "attack"
    RUN = "run"


@dataclass(frozen=True)
class ComparedSides:
    """The sides to be compared."""

    by: Axis
    cases: Mapping[str, Sequence[CaseRow]]
    """Name of a side -> its cases, in the order in which the sides are shown."""
    folded: frozenset[Axis] = frozenset()
    """What is part of the sides, beside `by`: each of two runs has one model, and another one, say."""
    notes: tuple[str, ...] = ()
    """How the sides were chosen and what is left out, a sentence each."""

    def name_field_of(self, cell: MeasuredCell) -> MeasuredCell:
        """Name the cell that both sides share with one of a side; empty in what they differ in."""
        blank = {axis.value: "" for axis in (self.by, *self.folded) if axis is not Axis.RUN}
        if cell.attack == NO_ATTACK:
            blank.pop(Axis.ATTACK.value, None)
        return cell._replace(**blank)

    @property
    def baseline(self) -> str:
        """The side that the others are compared with if nobody says which: `none`, or else the first."""
        return NO_DEFENSE if NO_DEFENSE in self.cases else next(iter(self.cases), NO_DEFENSE)


_NAME_OF: Mapping[Axis, Callable[[CaseRow], str]] = {
    Axis.DEFENSE: lambda case: case.defense,
    Axis.MODEL: lambda case: case.table_model,
    Axis.ATTACK: lambda case: case.attack,
}


def split_sides(cases: Iterable[CaseRow], by: Axis = Axis.DEFENSE, *, as_met: bool = False) -> ComparedSides:
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
    by_name = group_by(kept, _NAME_OF[by])
    names = by_name if as_met else sorted(by_name)
    return ComparedSides(by, {name: by_name[name] for name in names}, notes=notes)


def make_sides_of_runs(runs: Mapping[str, Iterable[CaseRow]], notes: tuple[str, ...] = ()) -> ComparedSides:
    """Set runs against each other: cases of one model, defense and attack, under one name in each.

    Where each run has a single model (defense, attack) and another has another one, this is part of what
    is compared: "model A before" against "model B after".
    """
    cases = {name: [case for case in rows if case.is_scored] for name, rows in runs.items()}
    values = {axis: _collect_values(cases, axis) for axis in _NAME_OF}
    folded = frozenset(
        axis
        for axis, sets in values.items()
        if all(len(one) == 1 for one in sets) and len(set().union(*sets)) > 1
    )
    return ComparedSides(Axis.RUN, cases, folded, notes)


def find_varying_axis(cases: Iterable[CaseRow]) -> Axis:
    """Find the axis on which some cases differ: defenses, else models, else attacks."""
    whole = {"": [case for case in cases if case.is_scored]}
    several = (axis for axis in _NAME_OF if len(_collect_values(whole, axis)[0]) > 1)
    return next(several, Axis.DEFENSE)


def _collect_values(runs: Mapping[str, Sequence[CaseRow]], axis: Axis) -> list[set[str]]:
    ignored = {NO_ATTACK} if axis is Axis.ATTACK else set()
    return [{_NAME_OF[axis](case) for case in cases} - ignored for cases in runs.values()]


_under_one_name = attrgetter(*(column for column in IDENTITY if column != "apart"))
ReadFolders = Callable[[Sequence[Path]], LoadedCases]
"""Reads folders together; the same case in two of them is counted once."""


class ChosenSides(NamedTuple):
    """The sides, and what was read for them."""

    sides: ComparedSides
    readings: Mapping[str, LoadedCases]
    """Of runs, one for each; else one of all folders together, under an empty name."""


def choose_sides(
    folders: Sequence[Path], by: Axis | None, baseline: str | None, read: ReadFolders
) -> ChosenSides:
    """Read folders and choose what to compare in them.

    Args:
        folders: As the user gave them.
        by: What the user asked for; None: what the folders differ in.
        baseline: The side to compare with, if the user named one: what it is decides what is compared.
        read: Reads some folders together.

    Raises:
        ConfigError: If runs are to be compared and a folder lies in another one, or defenses and two
            folders hold the same cases: one of the two files would be left out.
    """
    folders = [open_runs(folder) for folder in folders]
    if by is Axis.RUN:
        return _load_sides_of_folders(folders, read)
    together = read(folders)
    meant = [
        axis
        for axis, name_of in _NAME_OF.items()
        if baseline is not None and any(name_of(case) == baseline for case in together.cases)
    ]
    chosen = by or (meant[0] if meant else None)
    if len(folders) == 1:
        return ChosenSides(
            split_sides(together.cases, chosen or find_varying_axis(together.cases)), {"": together}
        )
    roots = [str(folder) for folder in folders]

    def find_folder_of(source: str) -> str:
        inside = (root for root in roots if root == "." or source == root or source.startswith(f"{root}/"))
        return next(inside, "")

    repeated = sum(
        find_folder_of(file.source) != find_folder_of(file.counted_source) for file in together.repeated_files
    )
    if chosen is None:
        holders: defaultdict[object, set[str]] = defaultdict(set)
        for case in together.cases:
            holders[_under_one_name(case)].add(find_folder_of(case.source))
        # Cases that two folders hold, of other settings or of the same ones.
        same = repeated + sum(len(of_case) > 1 for of_case in holders.values())
        chosen = Axis.RUN if same else _find_axis_between(together.cases, find_folder_of)
        if chosen is Axis.RUN:
            why, hint = "The folders differ in more than one thing", " (or choose with --by)"
            if same:
                why, hint = f"{same} cases stand in more than one folder under the same names", ""
            return _load_sides_of_folders(folders, read, (f"{why}: compared folder with folder{hint}.",))
    if repeated:
        raise ConfigError(
            f"{repeated} cases stand in more than one of these folders under the same names, so that one of"
            " two files would be left out. Compare the folders with --by run, or give one of them."
        )
    return ChosenSides(split_sides(together.cases, chosen, as_met=True), {"": together})


def _find_axis_between(cases: Sequence[CaseRow], folder_of: Callable[[str], str]) -> Axis:
    """Find the axis on which no two folders meet: defenses, say, if one has `none` alone."""
    runs = group_by(cases, lambda case: folder_of(case.source))
    if len(runs) < 2:
        return find_varying_axis(cases)
    values = {axis: _collect_values(runs, axis) for axis in _NAME_OF}
    apart = [
        axis for axis, sets in values.items() if all(sets) and len(set().union(*sets)) == sum(map(len, sets))
    ]
    return Axis.RUN if len(apart) > 1 else apart[0] if apart else Axis.DEFENSE


def _load_sides_of_folders(
    folders: Sequence[Path], read: ReadFolders, notes: tuple[str, ...] = ()
) -> ChosenSides:
    names = shorten_run_names(folders)
    readings = {names[folder]: read([folder]) for folder in folders}
    mixed = separate_settings([case for one in readings.values() for case in one.cases]).mixed
    notes += tuple(f"The settings differ: {setting}." for setting in mixed)
    return ChosenSides(
        make_sides_of_runs({name: one.cases for name, one in readings.items()}, notes), readings
    )


def shorten_run_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Folder -> the shortest end of its path that no other one has.

    Raises:
        ConfigError: If there is only one, or one is, or lies in, another.
    """
    whole = {folder: folder.resolve() for folder in folders}
    if len(folders) < 2:
        raise ConfigError("To compare runs, give two folders: agentsys compare A B.")
    for index, folder in enumerate(folders):
        for other in (*folders[:index], *folders[index + 1 :]):
            if whole[folder].is_relative_to(whole[other]):
                raise ConfigError(
                    f"'{folder}' lies in '{other}': runs to compare are in folders of their own."
                )
    ends = find_shortest_distinct_ends([str(path) for path in whole.values()])
    return {folder: ends[str(path)] for folder, path in whole.items()}
