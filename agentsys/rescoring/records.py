"""`records`: what each file under some paths did, one after the other; nothing is dropped in silence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from agentsys.analysis.listing import listed
from agentsys.analysis.reading import files_once
from agentsys.rescoring.read_trajectory import read_trajectory
from agentsys.rescoring.trajectory import Trajectory
from agentsys.rescoring.unusable import Obstacle, Unusable


@dataclass(frozen=True)
class SkippedRecord:
    """A record that could not be used."""

    source: str
    obstacle: Obstacle
    reason: str


def records(paths: Iterable[str | os.PathLike[str]]) -> Iterator[Trajectory | SkippedRecord | None]:
    """Every record under some paths.

    Args:
        paths: Log, pipeline or suite folders or single files, in any mixture; overlaps are read once.

    Yields:
        The record; why it is none; None for a JSON file that is something else. Errored records are
        among the first.

    Raises:
        ConfigError: If a path does not exist.
    """
    listings = [listed(Path(path)) for path in paths]
    for listing in listings:
        for folder in listing.unlisted:
            yield SkippedRecord(folder.path, Obstacle.UNREADABLE, folder.reason)
    met: set[tuple[str | None, ...]] = set()
    for path in files_once(listings):
        try:
            trajectory = read_trajectory(path)
        except Unusable as fault:
            yield SkippedRecord(path, fault.obstacle, str(fault))
            continue
        if trajectory is not None and trajectory.identity in met:
            yield SkippedRecord(path, Obstacle.REPEATED, "another file of this case was counted already")
            continue
        if trajectory is not None and trajectory.error is None:
            met.add(trajectory.identity)
        yield trajectory
