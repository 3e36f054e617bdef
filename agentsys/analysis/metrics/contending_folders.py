"""`contending`: what to compare in some folders, and how their cases are read so that none are merged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from agentsys.analysis.metrics.contenders import (
    Axis,
    Contenders,
    contenders,
    contending_runs,
    named_so,
    separating,
    varying,
)
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import IDENTITY, CaseRow
from agentsys.records.resolve_runs import shortest_distinct_ends

_under_one_name = attrgetter(*(column for column in IDENTITY if column != "apart"))

Read = Callable[[Sequence[Path]], LoadedCases]
"""Reads folders together; the same case in two of them is counted once."""


class Contending(NamedTuple):
    """The sides, and what was read for them."""

    sides: Contenders
    readings: Mapping[str, LoadedCases]
    """Of runs, one for each; else one of all folders together, under an empty name."""


def contending(folders: Sequence[Path], by: Axis | None, baseline: str | None, read: Read) -> Contending:
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
    if by is Axis.RUN:
        return _runs(folders, read)
    together = read(folders)
    if len(folders) == 1:
        chosen = by or _by_baseline(together.cases, baseline) or varying(together.cases)
        return Contending(contenders(together.cases, chosen), {"": together})
    same = _in_several(together, folders)
    chosen = by or _by_baseline(together.cases, baseline) or _between(together.cases, folders, same)
    if chosen is Axis.RUN:
        return _runs(folders, read, (_why_by_run(same),))
    if repeated := _repeated(together, folders):
        raise ConfigError(
            f"{repeated} cases stand in more than one of these folders under the same names, so that one of"
            " two files would be left out. Compare the folders with --by run, or give one of them."
        )
    return Contending(contenders(together.cases, chosen, as_met=True), {"": together})


def _why_by_run(same: int) -> str:
    if same:
        return (
            f"{same} cases stand in more than one folder under the same names: compared folder with folder."
        )
    return "The folders differ in more than one thing: compared folder with folder (or choose with --by)."


def _runs(folders: Sequence[Path], read: Read, notes: tuple[str, ...] = ()) -> Contending:
    names = run_names(folders)
    readings = {names[folder]: read([folder]) for folder in folders}
    return Contending(contending_runs({name: one.cases for name, one in readings.items()}, notes), readings)


def run_names(folders: Sequence[Path]) -> dict[Path, str]:
    """Folder -> the shortest end of its path that no other one has.

    Raises:
        ConfigError: If there is only one, or one is, or lies in, another.
    """
    whole = {folder: folder.resolve() for folder in folders}
    if len(folders) < 2:
        raise ConfigError("To compare runs, give two folders: agentsys compare A B.")
    for place, folder in enumerate(folders):
        for other in (*folders[:place], *folders[place + 1 :]):
            if whole[folder].is_relative_to(whole[other]):
                raise ConfigError(
                    f"'{folder}' lies in '{other}': runs to compare are in folders of their own."
                )
    ends = shortest_distinct_ends([str(path) for path in whole.values()])
    return {folder: ends[str(path)] for folder, path in whole.items()}


def _by_baseline(cases: Sequence[CaseRow], baseline: str | None) -> Axis | None:
    meant = [] if baseline is None else named_so(cases, baseline)
    return meant[0] if meant else None


def _between(cases: Sequence[CaseRow], folders: Sequence[Path], same: int) -> Axis:
    if same:
        return Axis.RUN
    root_of = _roots(folders)
    runs = group_by(cases, lambda case: root_of(case.source))
    apart = separating(runs) if len(runs) > 1 else [varying(cases)]
    if len(apart) > 1:
        return Axis.RUN
    return apart[0] if apart else Axis.DEFENSE


def _in_several(reading: LoadedCases, folders: Sequence[Path]) -> int:
    """Cases that two folders hold, of other settings or of the same ones."""
    root_of = _roots(folders)
    found: defaultdict[object, set[str]] = defaultdict(set)
    for case in reading.cases:
        found[_under_one_name(case)].add(root_of(case.source))
    return _repeated(reading, folders) + sum(len(roots) > 1 for roots in found.values())


def _repeated(reading: LoadedCases, folders: Sequence[Path]) -> int:
    root_of = _roots(folders)
    return sum(root_of(file.source) != root_of(file.counted_source) for file in reading.repeated_files)


def _roots(folders: Sequence[Path]) -> Callable[[str], str]:
    """Which of the folders a file was found under."""
    roots = [str(folder) for folder in folders]

    def root_of(source: str) -> str:
        inside = (root for root in roots if root == "." or source == root or source.startswith(f"{root}/"))
        return next(inside, "")

    return root_of
