"""Cases that were planned into the folders that are read and have no record yet."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from agentsys.records.listing import Listing
from agentsys.records.stored_plan import PLANS_FOLDER, load_planned_cells

_DEEPEST = 5
"""Folders between a record and its log folder: pipeline, suite, user task, attack, and the file itself."""

_NAMED = 4
"""Groups that the line names."""


class UnfinishedRun(NamedTuple):
    """A log folder that lacks records."""

    logdir: str
    planned: int
    missing: dict[tuple[str, str], tuple[int, int]]
    """(model, defense) -> cases without a record, and cases planned; only groups that lack some."""

    @property
    def summary(self) -> str:
        """One line, e.g. `unfinished: 67 of 96 missing (agentsys not begun; none lacks 19)`."""
        several = len({model for model, _ in self.missing}) > 1
        parts = []
        not_begun_first = sorted(self.missing.items(), key=lambda item: (item[1][0] < item[1][1], item[0]))
        for (model, defense), (lacking, planned) in not_begun_first:
            name = f"{model} / {defense}" if several else defense
            parts.append(f"{name} not begun" if lacking == planned else f"{name} lacks {lacking}")
        rest = [f"and {len(parts) - _NAMED} more"] if len(parts) > _NAMED else []
        count = sum(lacking for lacking, _ in self.missing.values())
        return f"unfinished: {count} of {self.planned} missing ({'; '.join([*parts[:_NAMED], *rest])})."


def find_unfinished(
    paths: Iterable[Path], logdirs: Iterable[Path] = (), listings: Sequence[Listing] = ()
) -> tuple[UnfinishedRun, ...]:
    """Find what is missing under some paths, by the plans kept in their log folders.

    Args:
        paths: Paths as given to a reader: log, pipeline or suite folders, or single files. One that does not
            exist (a pipeline not begun) counts as well.
        logdirs: Log folders that are known to lie below them.
        listings: What was seen there a moment ago; only for the rest is the disk asked.
    """
    roots = [path.absolute() for path in paths]
    above = (place for root in roots for place in (root, *root.parents[:_DEEPEST]))
    places = dict.fromkeys([*above, *(path.absolute() for path in logdirs)])
    found = [_check_logdir(place, roots, listings) for place in places if (place / PLANS_FOLDER).is_dir()]
    return tuple(one for one in found if one.missing)


def describe_unfinished(found: Iterable[UnfinishedRun]) -> list[str]:
    """A line for each log folder, which is named where there are several."""
    several = list(found)
    return [one.summary if len(several) == 1 else f"{one.logdir}: {one.summary}" for one in several]


def find_logdirs(sources: Iterable[str]) -> list[Path]:
    """The log folders of some records, if they are ours and lie where they were stored."""
    return [Path(path) for path in dict.fromkeys(_logdir_above(source) for source in sources) if path]


def _logdir_above(source: str) -> str:
    parts = source.rsplit(os.sep, _DEEPEST)
    return parts[0] or os.sep if len(parts) > _DEEPEST else "."


def _check_logdir(logdir: Path, roots: list[Path], listings: Sequence[Listing]) -> UnfinishedRun:
    inside = any(logdir.is_relative_to(root) for root in roots)
    planned: dict[str, tuple[str, str]] = {}
    for cell in load_planned_cells(logdir):
        planned |= dict.fromkeys(cell.keys, (cell.model, cell.defense))
    if not inside:
        # As text: a run of a hundred epochs has as many folders, and a Path for each pair takes seconds.
        home, asked = os.path.join(logdir, ""), tuple(os.path.join(root, "") for root in roots)  # noqa: PTH118
        planned = {key: group for key, group in planned.items() if f"{home}{key}/".startswith(asked)}
    unseen = planned.keys() - _listed_keys(logdir, listings)
    lacking = Counter(planned[key] for key in _find_missing(logdir, unseen))
    totals = Counter(planned.values())
    groups = {group: (lacking[group], totals[group]) for group in totals if lacking[group]}
    return UnfinishedRun(str(logdir), len(planned), groups)


def _listed_keys(logdir: Path, listings: Iterable[Listing]) -> Iterator[str]:
    """Paths below a log folder of the files in some listings."""
    home = os.path.join(logdir, "")  # noqa: PTH118
    for listing in listings:
        root = Path(listing.root).absolute()
        paths = (f"{root}{path[len(listing.root) :]}" for path in listing.files)
        yield from (path.removeprefix(home) for path in paths if path.startswith(home))


def _find_missing(logdir: Path, keys: Iterable[str]) -> Iterator[str]:
    """The keys without a file. Folders are listed once each: asking for every file would take far longer."""
    listed: dict[str, frozenset[str]] = {}
    for key in keys:
        folder, _, name = key.rpartition("/")
        if folder not in listed:
            try:
                listed[folder] = frozenset(os.listdir(logdir / folder))  # noqa: PTH208  no Path per entry
            except OSError:
                listed[folder] = frozenset()
        if name not in listed[folder]:
            yield key
