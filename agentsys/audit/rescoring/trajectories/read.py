"""`read_trajectory` and `records`: what stored files did, whoever wrote them; none is dropped in silence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentsys.audit.rescoring.tasks import list_versions
from agentsys.audit.rescoring.trajectories.foreign import read_agentdojo_trajectory, read_drift_trajectory
from agentsys.audit.rescoring.trajectories.own import read_own_trajectory
from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.audit.rescoring.trajectories.unusable import RecordFault, Unusable
from agentsys.records.case_row import UNRECORDED
from agentsys.records.listing import SkippedFile, list_files
from agentsys.records.names_file import RunNames
from agentsys.records.published_name import NO_DEFENSE, parse_pipeline_name
from agentsys.records.reading import iterate_files, read_files
from agentsys.records.settle import ResolvableCase, resolve_runs, build_case_facts
from agentsys.records.stored_file import Producer, identify_case
from agentsys.records.unreadable import UnfinishedRecord, UnreadableRecord


def read_trajectory(path: str) -> Trajectory | None:
    """Read what the case in a file did.

    Returns:
        None for JSON that is no case (a plan, a cache).

    Raises:
        Unusable: If it should hold a finished (or errored) case and does not.
    """
    try:
        found = identify_case(path)
        return None if found is None else _TRAJECTORY_READERS[found.producer](found.content, path)
    except UnfinishedRecord:
        raise Unusable(RecordFault.UNFINISHED, "no scores in it") from None
    except UnreadableRecord as fault:
        raise Unusable(RecordFault.UNREADABLE, str(fault)) from None
    except RecursionError:
        raise Unusable(RecordFault.UNREADABLE, "nested too deeply") from None


_TRAJECTORY_READERS: dict[Producer, Callable[[Mapping[str, Any], str], Trajectory]] = {
    "agentsys": read_own_trajectory,
    "drift": read_drift_trajectory,
    "agentdojo": read_agentdojo_trajectory,
}


@dataclass(frozen=True)
class SkippedRecord:
    """A record that could not be used."""

    source: str
    obstacle: RecordFault
    reason: str


@dataclass(frozen=True)
class RecordFiles:
    """The records under some paths, each read when it is asked for."""

    unlisted: Sequence[SkippedFile]
    files: Sequence[str]
    facts_by_file: dict[str, ResolvableCase]
    """File -> whose run it is."""
    counted: dict[str, str]
    """File that is not counted -> the one of the same case that is."""
    notes: tuple[str, ...]
    """What folders' names decided about whose runs these are, one sentence each."""

    def __iter__(self) -> Iterator[Trajectory | SkippedRecord | None]:
        """The record; why it is none; None for a JSON file that is something else.

        Errored records are among the first.
        """
        for folder in self.unlisted:
            yield SkippedRecord(folder.path, RecordFault.UNREADABLE, folder.reason)
        for path in self.files:
            try:
                record = read_trajectory(path)
            except Unusable as fault:
                yield SkippedRecord(path, fault.obstacle, str(fault))
                continue
            if path in self.counted:
                reason = f"another file of this case is counted: {self.counted[path]}"
                yield SkippedRecord(path, RecordFault.REPEATED, reason)
                continue
            yield record if record is None or path not in self.facts_by_file else _rename_pipeline(record, self.facts_by_file[path])

    def split(self, files: int) -> Iterator[RecordFiles]:
        """The same records, in order, so many files at a time."""
        for start in range(0, max(len(self.files), 1), files):
            some = self.files[start : start + files]
            yield RecordFiles(
                () if start else self.unlisted,
                some,
                {path: self.facts_by_file[path] for path in some if path in self.facts_by_file},
                {path: self.counted[path] for path in some if path in self.counted},
                self.notes,
            )


def find_records(paths: Iterable[str | os.PathLike[str]], names: RunNames | None = None) -> RecordFiles:
    """Every record under some paths, named and counted as `agentsys results` does.

    Args:
        paths: Log, pipeline or suite folders or single files, in any mixture; overlaps are read once.
        names: The user's word on other people's folders.

    Raises:
        ConfigError: If a path does not exist, or a file of names is not one.
    """
    listings = [list_files(Path(path)) for path in paths]
    rows = read_files(listings).rows
    settled = resolve_runs([build_case_facts(row) for row in rows], names or RunNames())
    return RecordFiles(
        [folder for listing in listings for folder in listing.skipped_entries],
        list(iterate_files(listings)),
        dict(zip((row.source for row in rows), settled.cases, strict=True)),
        {file.source: file.counted_source for file in settled.repeated_files},
        settled.notes,
    )


def _rename_pipeline(record: Trajectory, told: ResolvableCase) -> Trajectory:
    """A record under the name of its pipeline; of its version only what a version is called."""
    pipeline = record.pipeline
    if told.foreign and not _names_model(record, told):
        pipeline = told.model if told.defense == NO_DEFENSE else f"{told.model}-{told.defense}"
    version = told.version if told.version in list_versions() and record.version in (None, UNRECORDED) else None
    return replace(
        record,
        pipeline=pipeline if told.apart is None else f"{pipeline} [{told.apart}]",
        version=version or record.version,
        simulated=told.simulated,
    )


def _names_model(record: Trajectory, told: ResolvableCase) -> bool:
    """Whether the pipeline's own name says model and defense; DRIFT's form tells the latter by itself."""
    stored = parse_pipeline_name(record.pipeline)
    return stored.model == told.model and (record.form == "drift" or stored.defense == told.defense)
