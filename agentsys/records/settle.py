"""`settle`: whose run each stored case is, and which of several files of one case counts.

A file says so only in part: other people's runs are named by their folders, a missing version shows in the
tasks of the files beside it, and two pipelines of one name are known by lying in two places. So this looks
at all cases together, after they were read and whoever wrote them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from agentsys.records.case_row import IDENTITY, PROVEN_V1_2, UNRECORDED, CaseRow
from agentsys.records.known_length import known_length
from agentsys.records.names_file import Names
from agentsys.records.published_name import (
    NAMELESS,
    NO_DEFENSE,
    REPLACE_RESULTS,
    PublishedName,
    settled_victim,
)
from agentsys.records.run_place import RunPlace, place_of, told_apart

CHANGED = ("model", "defense", "version", "simulated", "apart", "exposed_raw", "ground_truth_length")
"""Columns that `settle` may give anew."""

_AGENTDOJO = "agentdojo"
_ADDED_IN_V1_2 = frozenset(f"injection_task_{number}" for number in range(6, 14))
"""Workspace's injection tasks that no earlier version has."""

_EVIDENCE = (
    "status",
    "utility",
    "injection_success",
    "trajectory_length",
    "answer_chars",
    "duration_s",
)
"""What two files of one foreign case must have in common to be copies of one run."""


class Told(NamedTuple):
    """The facts looked at of one case, by the names of `CaseRow`'s fields."""

    benchmark: str
    version: str
    model: str
    simulated: bool
    defense: str
    attack: str
    suite: str
    user_task_id: str
    injection_task_id: str | None
    epoch: int
    apart: str | None
    status: str
    utility: bool
    injection_success: bool | None
    trajectory_length: int | None
    answer_chars: int | None
    duration_s: float | None
    exposed_raw: bool | None
    ground_truth_length: int | None
    source: str
    foreign: bool
    config_hash: str | None
    model_ids: Mapping[str, str]
    exposed_shown: bool | None

    @property
    def identity(self) -> tuple[Any, ...]:
        """The same values as `CaseRow.identity`."""
        found: tuple[Any, ...] = _identity(self)
        return found


_identity = attrgetter(*IDENTITY)
_facts = attrgetter(*Told._fields)

Facts = Told | CaseRow
"""What is looked at: a row of its own, or the facts alone; what is changed comes back as the facts."""


def told_of(row: CaseRow) -> Told:
    """Take from a row what `settle` looks at."""
    return Told(*_facts(row))


def _changed(case: Facts, **facts: Any) -> Told:
    return (case if isinstance(case, Told) else told_of(case))._replace(**facts)


class RepeatedFile(NamedTuple):
    """A file that is not counted, and the one of the same case that is."""

    source: str
    counted: str


@dataclass(frozen=True)
class Settled:
    """The cases with their names settled, and those that count."""

    told: list[Facts]
    """Under their settled names; those in which nothing changed are the very ones that were given."""
    counted: list[int]
    """Places of the cases that count, in the order in which they were first met."""
    repeated: tuple[RepeatedFile, ...]
    """The others."""
    notes: tuple[str, ...]
    """What was decided, one sentence each."""


def settle(cases: Sequence[Facts], names: Names) -> Settled:
    """Settle names and versions, keep pipelines apart, and count each case once."""
    places = [place_of(case.source, case.suite, case.user_task_id) for case in cases]
    notes: list[str] = []
    named = _with_versions(_with_names(cases, places, names, notes), places, notes)
    marked = _kept_apart(_with_marks(named, places), places, names, notes)
    counted = _first_of_each(marked)
    repeated = tuple(_repeated(marked, counted))
    return Settled(marked, counted, repeated, (*notes, *names.unused()))


def _with_names(
    cases: Sequence[Facts], places: Sequence[RunPlace], names: Names, notes: list[str]
) -> list[Facts]:
    renamed: defaultdict[tuple[str, PublishedName, PublishedName, bool], int] = defaultdict(int)
    found: list[Facts] = []

    @cache
    def victim(folder: str, model: str, defense: str) -> tuple[PublishedName, bool, str | None]:
        """The names in a folder, whether the user gave them, and the version that the user gives."""
        stored = PublishedName(model, defense)
        said, told = names.of(folder), settled_victim(folder.rpartition("/")[2], stored)
        settled = PublishedName(said.model or told.model, said.defense or told.defense)
        return settled, settled != told, said.version

    for case, place in zip(cases, places, strict=True):
        if not case.foreign or not place.named:
            found.append(case)
            continue
        settled, by_user, version = victim(place.folder, case.model, case.defense)
        if settled != (case.model, case.defense):
            stored = PublishedName(case.model, case.defense)
            renamed[place.folder, stored, settled, by_user] += 1
            case = _changed(case, model=settled.model, defense=settled.defense)
        if version and case.version == UNRECORDED:
            case = _changed(case, version=version)
        if case.exposed_raw is not None and case.defense in REPLACE_RESULTS and not case.exposed_shown:
            case = _changed(case, exposed_raw=None)
        found.append(case)
    notes += [
        f"{folder}: {count} files name {_pair(stored)}; counted as {_pair(settled)}, by"
        f" {'the file of names' if by_user else 'the folder'}."
        for (folder, stored, settled, by_user), count in renamed.items()
    ]
    return found


def _pair(victim: PublishedName) -> str:
    return victim.model if victim.defense == NO_DEFENSE else f"{victim.model} with {victim.defense}"


def _with_versions(cases: Sequence[Facts], places: Sequence[RunPlace], notes: list[str]) -> list[Facts]:
    """Cases without a version under the one that the tasks of their folder prove."""
    unsaid = [case.foreign and case.version == UNRECORDED and case.benchmark == _AGENTDOJO for case in cases]
    proven = {
        place.folder: None
        for case, place, open_ in zip(cases, places, unsaid, strict=True)
        if open_
        and case.suite == "workspace"
        and not _ADDED_IN_V1_2.isdisjoint((case.injection_task_id, case.user_task_id))
    }
    if not proven:
        return list(cases)
    notes += [
        f"{folder}: names no version; {PROVEN_V1_2}, as it has Workspace's injection tasks 6 to 13."
        for folder in proven
    ]
    return [
        _changed(
            case,
            version=PROVEN_V1_2,
            ground_truth_length=known_length(PROVEN_V1_2, case.suite, case.user_task_id),
        )
        if open_ and place.folder in proven
        else case
        for case, place, open_ in zip(cases, places, unsaid, strict=True)
    ]


def _with_marks(cases: Sequence[Facts], places: Sequence[RunPlace]) -> list[Facts]:
    """Errored cases of ours that got no reply, marked as simulated where the others of their run are."""

    def run(case: Facts, place: RunPlace) -> tuple[str, ...]:
        return place.home, case.benchmark, case.version, case.model, case.defense

    pairs = [*zip(cases, places, strict=True)]
    silent = [
        not (case.foreign or case.status != "error" or case.model_ids or case.simulated) for case in cases
    ]
    replied = {run(*pair): pair[0].simulated for pair in pairs if pair[0].model_ids} if any(silent) else {}
    return [
        _changed(case, simulated=True) if open_ and replied.get(run(case, place), False) else case
        for (case, place), open_ in zip(pairs, silent, strict=True)
    ]


_Model = tuple[str, str, str, bool]


def _kept_apart(
    cases: Sequence[Facts], places: Sequence[RunPlace], names: Names, notes: list[str]
) -> list[Facts]:
    """Cases of pipelines that bear one name and lie in several places, told apart by these."""
    clashing: defaultdict[_Model, set[str]] = defaultdict(set)
    for model, folders in _clashes(cases, places, names):
        clashing[model] |= folders
    if not clashing:
        return list(cases)
    home = {place.folder: place.home for place in places}
    labels = {model: _labels(folders, home) for model, folders in clashing.items()}
    for model, by_place in labels.items():
        listed = "; ".join(f"[{label}] {place}" for place, label in sorted(by_place.items()))
        notes.append(
            f"Several pipelines are called {model[2]}; they are kept apart (or say what each is:"
            f" --names FILE): {listed}."
        )
    return [
        _changed(case, apart=known.get(place.home, known.get(place.folder)))
        if (known := labels.get(_model(case)))
        else case
        for case, place in zip(cases, places, strict=True)
    ]


def _model(case: Facts) -> _Model:
    return case.benchmark, case.version, case.model, case.simulated


def _labels(folders: Iterable[str], home: Mapping[str, str]) -> dict[str, str]:
    """By log folders, so that defenses of one run stay together; by pipelines if there is but one."""
    listed = list(folders)
    homes = {home[folder] for folder in listed}
    return told_apart(homes if len(homes) > 1 else listed)


def _clashes(
    cases: Sequence[Facts], places: Sequence[RunPlace], names: Names
) -> Iterator[tuple[_Model, set[str]]]:
    """Groups of folders that bear one name and are not one pipeline."""
    by_name: defaultdict[tuple[_Model, str], defaultdict[str, list[Facts]]]
    by_name = defaultdict(lambda: defaultdict(list))
    for case, place in zip(cases, places, strict=True):
        by_name[_model(case), case.defense][place.folder].append(case)
    homes: defaultdict[_Model, dict[str, str]] = defaultdict(dict)
    for (model, _), folders in by_name.items():
        for folder in folders:
            homes[model][folder] = folder.rpartition("/")[0]
        if len(folders) > 1 and _are_several(folders, names):
            yield model, set(folders)
    for model, found in homes.items():
        if model[2] in NAMELESS and len(set(found.values())) > 1 and not all(map(_said(names), found)):
            yield model, set(found)


def _said(names: Names) -> Any:
    return lambda folder: names.of(folder).model is not None


def _are_several(folders: Mapping[str, Sequence[Facts]], names: Names) -> bool:
    """Whether folders of one name hold several pipelines: ours and others', or one case with two outcomes."""
    if len({case.foreign for found in folders.values() for case in found}) > 1:
        return True
    if all(map(_said(names), folders)):  # the user says that these are one
        return False
    evidence: dict[Hashable, Any] = {}
    for case in (case for found in folders.values() for case in found):
        seen = _evidence_of(case)
        if seen is not None and evidence.setdefault(case.identity, seen) != seen:
            return True
    return False


def _evidence_of(case: Facts) -> Any:
    """The facts that must be alike in two files of one case; None where they may differ.

    Of ours the settings: the same ones may well give another outcome the next time.
    """
    if not case.foreign:
        return case.config_hash
    return None if case.status == "error" else tuple(getattr(case, name) for name in _EVIDENCE)


def _first_of_each(cases: Sequence[Facts]) -> list[int]:
    """Choose which stored cases count: of each case the first file, or the first of the better ones.

    One without error is better than one with, and messages are better than scores alone.
    """
    kept: dict[Hashable, int] = {}
    for place, identity in enumerate(map(_identity, cases)):
        first = kept.setdefault(identity, place)
        if first != place and _worth(cases[place]) > _worth(cases[first]):
            kept[identity] = place
    return list(kept.values())


def _worth(case: Facts) -> tuple[bool, bool]:
    return case.status == "ok", case.trajectory_length is not None


def _repeated(cases: Sequence[Facts], counted: Sequence[int]) -> Iterator[RepeatedFile]:
    if len(cases) == len(counted):
        return
    kept = {cases[place].identity: cases[place].source for place in counted}
    places = set(counted)
    for place, case in enumerate(cases):
        if place not in places:
            yield RepeatedFile(case.source, kept[case.identity])
