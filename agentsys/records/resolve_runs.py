"""`resolve_runs`: decides whose run each stored case is, and which of several files of one case counts.

A file says so only in part: other people's runs are named by their folders, a missing version shows in the
tasks of the files beside it, and two pipelines of one name are known by lying in two folders. So this looks
at all cases together, after they were read and whoever wrote them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from agentsys.records.case import make_safe_name
from agentsys.records.case_row import IN_PIPELINE_NAME, PROVEN_V1_2, UNRECORDED, CaseRow
from agentsys.records.names_file import (
    SERVED_FILE,
    AnsweringAgent,
    RunNames,
    RunOverride,
    read_answering_agent,
)
from agentsys.records.pipeline_names import (
    NO_DEFENSE,
    NameParts,
    PipelineNames,
    describe_open_name,
    join_pipeline_name,
)
from agentsys.records.published_facts import (
    NAMELESS_MODELS,
    RESULT_REPLACING_DEFENSES,
    find_ground_truth_length,
)
from agentsys.records.row_settings import join_places, separate_settings, separate_unknown


class RunFolders(NamedTuple):
    """Two folders, as absolute paths."""

    logdir: str
    """The log folder, ours or another runner's. Without AgentDojo's layout: the folder of the file."""
    pipeline: str
    """The pipeline's folder in it; likewise."""
    is_pipeline: bool
    """Whether the folder is a pipeline's, so that its name says something."""


@lru_cache(maxsize=100_000)
def find_run_folders(folder: str, suite: str, user_task_id: str) -> RunFolders:
    """Find the two folders of a case by its file's folder, if suite and user task stand there as in AgentDojo's."""
    # <home>/<pipeline>/<suite>/<user task>/<attack>
    above, *last = folder.rsplit("/", 3)
    if len(last) < 3 or not above or not _DOT_NAMES.isdisjoint(last):
        above, *last = os.path.abspath(folder).rsplit("/", 3)  # noqa: PTH100  links are not followed
    names = zip(last, (suite, user_task_id), strict=False)
    if above and all(part in (name, make_safe_name(name)) for part, name in names):
        pipeline = _find_pipeline_folders(above)  # of thousands of folders, as a rule, one and the same
        if pipeline.pipeline.strip("/"):
            return pipeline
    whole = os.path.abspath(folder)  # noqa: PTH100
    return RunFolders(whole, whole, is_pipeline=False)


_DOT_NAMES = frozenset({"", ".", ".."})
"""Components that are no folder's name."""


@lru_cache(maxsize=10_000)
def _find_pipeline_folders(folder: str) -> RunFolders:
    whole = os.path.abspath(folder)  # noqa: PTH100
    return RunFolders(whole.rpartition("/")[0] or "/", whole, is_pipeline=True)


def find_shortest_distinct_ends(paths: Collection[str]) -> dict[str, str]:
    """Path -> the shortest end of it that no other one of these has, e.g. `old` and `new`."""
    parts = {path: path.split("/") for path in paths}
    for length in range(1, 1 + max(map(len, parts.values()), default=0)):
        ends = {path: "/".join(split[-length:]) for path, split in parts.items()}
        if len(set(ends.values())) == len(ends):
            return ends
    return {path: path for path in paths}


_AGENTDOJO, _AGENTDYN = "agentdojo", "agentdyn"
_ADDED_IN_V1_2 = frozenset(f"injection_task_{number}" for number in range(6, 14))
"""Workspace's injection tasks that no earlier version has."""

_EVIDENCE = ("status", "utility", "injection_success", "trajectory_length", "answer_chars", "duration_s")
"""What two files of one foreign case must have in common to be copies of one run."""


class RepeatedFile(NamedTuple):
    """A file that is not counted, and the one of the same case that is."""

    source: str
    counted_source: str


@dataclass(frozen=True)
class ResolvedRuns:
    """The cases under the names that folders and tasks prove, and those that count."""

    cases: list[CaseRow]
    """All of them; those in which nothing changed are the very ones that were given."""
    counted_indices: list[int]
    """Places of the cases that count, in the order in which they were first met."""
    repeated_files: tuple[RepeatedFile, ...]
    """The others."""
    notes: tuple[str, ...]
    """What was decided, one sentence each."""
    mixed_settings: tuple[str, ...] = ()
    """Names under which there are cases of several settings, and these."""
    noted_settings: tuple[str, ...] = ()
    """Names under which settings differ that decide no number, and these."""

    @property
    def counted_cases(self) -> tuple[CaseRow, ...]:
        """The cases that count, each once."""
        return tuple(self.cases[index] for index in self.counted_indices)


def resolve_runs(cases: Sequence[CaseRow], names: RunNames) -> ResolvedRuns:
    """Settle names and versions, keep pipelines apart, and count each case once."""
    folders = (case.source.rpartition("/")[0] for case in cases)
    places = [find_run_folders(at, c.suite, c.user_task_id) for at, c in zip(folders, cases, strict=True)]
    notes: list[str] = []
    named = _infer_versions(_apply_names(cases, places, names, notes), places, notes)
    known = separate_settings(_mark_silent_errors(named, places))
    marked, unknown = separate_unknown(
        _separate_pipelines(known.cases, places, names, notes), known.unknown_hashes
    )
    counted = _pick_first_of_each(marked)
    repeated = tuple(_list_repeated(marked, counted))
    mixed = (*known.mixed, *unknown)
    notes += [f"Several settings under one name, kept apart: {found}." for found in mixed]
    return ResolvedRuns(marked, counted, repeated, (*notes, *names.describe_unused()), mixed, known.noted)


def _apply_names(
    cases: Sequence[CaseRow], places: Sequence[RunFolders], names: RunNames, notes: list[str]
) -> list[CaseRow]:
    """Give cases of other tools the model and defense that their folders, the user and each other prove."""
    if not any(map(_is_named_by_pipeline, cases)):
        return list(cases)
    cases, served = _name_served_agents(cases, places, notes)
    renamed: defaultdict[tuple[str, NameParts, NameParts, bool], int] = defaultdict(int)
    found: list[CaseRow] = []
    known = _collect_pipeline_names(cases, places, served)

    @cache
    def settle_names(folder: str | None, model: str, defense: str) -> _SettledNames:
        said = RunOverride() if folder is None else names.find_override(folder)
        if folder in served:  # has the name that its client asked for
            told = NameParts(model, defense)
        else:
            name = None if folder is None else folder.rpartition("/")[2]
            told = known.resolve(name, *join_pipeline_name(model, defense))
            told = told._replace(model=known.spellings.get(told.model, told.model))
        if told.ending is not None and not (said.model or said.defense):
            notes.append(describe_open_name(folder or model, told))
        open_defense = NO_DEFENSE if told.ending is not None and said.model else told.defense
        settled = NameParts(said.model or told.model, said.defense or open_defense)
        return _SettledNames(settled, settled[:2] != told[:2], said.version)

    for case, place in zip(cases, places, strict=True):
        if not _is_named_by_pipeline(case):
            found.append(case)
            continue
        settled, by_user, version = settle_names(
            place.pipeline if place.is_pipeline else None, case.model, case.defense
        )
        if settled[:2] != (case.model, case.defense):
            if case.defense != IN_PIPELINE_NAME or by_user:
                stored = NameParts(case.model, case.defense)
                renamed[place.pipeline, stored, settled, by_user] += 1
            case = replace(case, model=settled.model, defense=settled.defense)
        if version and case.version == UNRECORDED:
            case = replace(case, version=version)
        if (
            case.exposed_raw is not None
            and case.defense in RESULT_REPLACING_DEFENSES
            and not case.exposed_shown
        ):
            case = replace(case, exposed_raw=None)
        found.append(case)
    notes += [
        f"{folder}: {count} files name {_format_victim(stored)}; counted as {_format_victim(settled)}, by"
        f" {'the file of names' if by_user else 'the folder'}."
        for (folder, stored, settled, by_user), count in renamed.items()
    ]
    return found


class _SettledNames(NamedTuple):
    names: NameParts
    by_user: bool
    """Whether the user gave them."""
    version: str | None
    """The version that the user gives."""


def _is_named_by_pipeline(case: CaseRow) -> bool:
    return case.foreign and case.benchmark in (_AGENTDOJO, _AGENTDYN)


def _collect_pipeline_names(
    cases: Sequence[CaseRow], places: Sequence[RunFolders], served: Collection[str]
) -> PipelineNames:
    """The names in which each of the pipelines that were read says what it is, and our own models' names."""
    own = {case.model for case in cases if not case.foreign}
    pairs = {
        (place.pipeline if place.is_pipeline else None, case.model, case.defense)
        for case, place in zip(cases, places, strict=True)
        if _is_named_by_pipeline(case) and place.pipeline not in served
    }
    return PipelineNames(
        {
            (folder and folder.rpartition("/")[2], join_pipeline_name(model, defense).name)
            for folder, model, defense in pairs
        },
        own,
    )


def _name_served_agents(
    cases: Sequence[CaseRow], places: Sequence[RunFolders], notes: list[str]
) -> tuple[Sequence[CaseRow], Collection[str]]:
    """Cases under the agent that really answered, and the pipelines where one did.

    A case without a call bears no sign of the server; it was answered by whoever answered the others.
    """
    read_agent = cache(read_answering_agent)
    pairs = dict.fromkeys(
        (case.model, place)
        for case, place in zip(cases, places, strict=True)
        if place.is_pipeline and _is_named_by_pipeline(case)
    )
    agents: dict[str, AnsweringAgent | None] = {}
    for model, place in pairs:
        agent = read_agent(place.logdir)
        if model == UNRECORDED or (agent is not None and model in agent.asked):
            agents[place.pipeline] = agent
    if not agents:
        return cases, ()
    for folder, agent in agents.items():
        says = (
            f"nothing beside it says which ({SERVED_FILE})"
            if agent is None
            else f"several agents answered into this folder ({SERVED_FILE}), so it is not known which"
            if agent.model == UNRECORDED
            else f"counted as {_format_victim(NameParts(agent.model, agent.defense))}"
        )
        notes.append(f"{folder}: a served agent answered; {says}.")
    answered: dict[str, dict[str, Any]] = {
        folder: {"model": UNRECORDED, "defense": UNRECORDED}
        if agent is None
        else agent.model_dump(include={"model", "defense", "simulated"})
        for folder, agent in agents.items()
    }
    return [
        replace(case, **answered[place.pipeline]) if case.foreign and place.pipeline in answered else case
        for case, place in zip(cases, places, strict=True)
    ], agents.keys()


def _format_victim(victim: NameParts) -> str:
    no_more = (NO_DEFENSE, IN_PIPELINE_NAME)
    return victim.model if victim.defense in no_more else f"{victim.model} with {victim.defense}"


def _infer_versions(
    cases: Sequence[CaseRow], places: Sequence[RunFolders], notes: list[str]
) -> list[CaseRow]:
    """Give cases without a version the one that their pipeline's injection tasks prove."""
    unsaid = [case.foreign and case.version == UNRECORDED and case.benchmark == _AGENTDOJO for case in cases]
    proven = {
        place.pipeline: None
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
        replace(
            case,
            version=PROVEN_V1_2,
            ground_truth_length=find_ground_truth_length(PROVEN_V1_2, case.suite, case.user_task_id),
        )
        if open_ and place.pipeline in proven
        else case
        for case, place, open_ in zip(cases, places, unsaid, strict=True)
    ]


def _mark_silent_errors(cases: Sequence[CaseRow], places: Sequence[RunFolders]) -> list[CaseRow]:
    """Errored cases of ours that got no reply, marked as simulated where the others of their run are."""

    def make_run_key(case: CaseRow, place: RunFolders) -> tuple[str, ...]:
        return place.logdir, case.benchmark, case.version, case.model, case.defense

    marked = list(cases)
    silent = [
        at
        for at, case in enumerate(cases)
        if case.status == "error" and not (case.foreign or case.model_ids or case.simulated)
    ]
    pairs = zip(cases, places, strict=True) if silent else ()
    replied = {make_run_key(*pair): pair[0].simulated for pair in pairs if pair[0].model_ids}
    for at in silent:
        if replied.get(make_run_key(cases[at], places[at]), False):
            marked[at] = replace(cases[at], simulated=True)
    return marked


_ModelKey = tuple[str, str, str, bool, str | None]
_make_model_key: Callable[[CaseRow], _ModelKey] = attrgetter(
    "benchmark", "version", "model", "simulated", "apart"
)


def _separate_pipelines(
    cases: Sequence[CaseRow], places: Sequence[RunFolders], names: RunNames, notes: list[str]
) -> list[CaseRow]:
    """Cases of pipelines that bear one name and lie in several places, told apart by these."""
    clashing: defaultdict[_ModelKey, set[str]] = defaultdict(set)
    for model, folders in _find_clashes(cases, places, names):
        clashing[model] |= folders
    if not clashing:
        return list(cases)
    home = {place.pipeline: place.logdir for place in places}
    labels = {model: _label_folders(folders, home) for model, folders in clashing.items()}
    for model, by_place in labels.items():
        listed = "; ".join(f"[{label}] {place}" for place, label in sorted(by_place.items()))
        notes.append(
            f"Several pipelines are called {model[2]}; they are kept apart (or say what each is:"
            f" --names FILE): {listed}."
        )
    return [
        replace(case, apart=join_places(case.apart, known.get(place.logdir, known.get(place.pipeline))))
        if (known := labels.get(_make_model_key(case)))
        else case
        for case, place in zip(cases, places, strict=True)
    ]


def _label_folders(folders: Iterable[str], home: Mapping[str, str]) -> dict[str, str]:
    """By log folders, so that defenses of one run stay together; by pipelines if there is but one."""
    listed = list(folders)
    homes = {home[folder] for folder in listed}
    return find_shortest_distinct_ends(homes if len(homes) > 1 else listed)


def _find_clashes(
    cases: Sequence[CaseRow], places: Sequence[RunFolders], names: RunNames
) -> Iterator[tuple[_ModelKey, set[str]]]:
    """Groups of folders that bear one name and are not one pipeline."""
    by_name: defaultdict[tuple[_ModelKey, str], defaultdict[str, list[CaseRow]]]
    by_name = defaultdict(lambda: defaultdict(list))
    for case, place in zip(cases, places, strict=True):
        by_name[_make_model_key(case), case.defense][place.pipeline].append(case)
    homes: defaultdict[_ModelKey, dict[str, str]] = defaultdict(dict)
    for (model, _), folders in by_name.items():
        for folder in folders:
            homes[model][folder] = folder.rpartition("/")[0]
        if len(folders) > 1 and _are_several(folders, names):
            yield model, set(folders)
    for model, found in homes.items():
        if (
            model[2] in NAMELESS_MODELS
            and len(set(found.values())) > 1
            and not all(map(_is_named_by_user(names), found))
        ):
            yield model, set(found)


def _is_named_by_user(names: RunNames) -> Any:
    return lambda folder: names.find_override(folder).model is not None


def _are_several(folders: Mapping[str, Sequence[CaseRow]], names: RunNames) -> bool:
    """True if folders of one name hold several pipelines: ours and others', or one case with two outcomes."""
    if len({case.foreign for found in folders.values() for case in found}) > 1:
        return True
    if all(map(_is_named_by_user(names), folders)):  # the user says that these are one
        return False
    evidence: dict[Hashable, Any] = {}
    for case in (case for found in folders.values() for case in found):
        seen = _collect_evidence(case)
        if seen is not None and evidence.setdefault(case.identity, seen) != seen:
            return True
    return False


def _collect_evidence(case: CaseRow) -> Any:
    """The facts that must be alike in two files of one case; None where they may differ.

    Of ours the settings: the same ones may well give another outcome the next time.
    """
    if not case.foreign:
        return case.config_hash
    return None if case.status == "error" else tuple(getattr(case, name) for name in _EVIDENCE)


def _pick_first_of_each(cases: Sequence[CaseRow]) -> list[int]:
    """Choose which stored cases count: of each case the first file, or the first of the better ones.

    One without error is better than one with, and messages are better than scores alone.
    """
    kept: dict[Hashable, int] = {}
    for place, identity in enumerate(case.identity for case in cases):
        first = kept.setdefault(identity, place)
        if first != place and _rank_file(cases[place]) > _rank_file(cases[first]):
            kept[identity] = place
    return list(kept.values())


def _rank_file(case: CaseRow) -> tuple[bool, bool]:
    return case.status == "ok", case.trajectory_length is not None


def _list_repeated(cases: Sequence[CaseRow], counted: Sequence[int]) -> Iterator[RepeatedFile]:
    if len(cases) == len(counted):
        return
    kept = {cases[place].identity: cases[place].source for place in counted}
    places = set(counted)
    for place, case in enumerate(cases):
        if place not in places:
            yield RepeatedFile(case.source, kept[case.identity])
