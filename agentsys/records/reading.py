"""Folders -> `Reading`: every stored case in them, and every file that could not be used, with the reason.

A file of ASB's results holds many cases; each of its rows counts as a file.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from agentsys.errors import ConfigError
from agentsys.records.case_row import CaseRow
from agentsys.records.formats.asb import Row, asb_rows
from agentsys.records.index import Line, Looked, looked_up, read_line
from agentsys.records.listing import FolderId, Listing, Skipped, listed
from agentsys.records.names_file import Names
from agentsys.records.reading_notes import skipped_lines
from agentsys.records.settle import CHANGED, Facts, RepeatedFile, settle
from agentsys.records.unfinished import Unfinished, logdirs_of, unfinished_in

__all__ = ["Reading", "Skipped", "nothing_found", "read_cases", "skipped_lines"]


@dataclass(frozen=True)
class Reading:
    """The contents of some folders. Cases, skipped, repeated and other files add up to the files seen."""

    cases: tuple[CaseRow, ...]
    """In the order of the paths given, then by path, those from ASB's results last; each case once."""
    skipped: tuple[Skipped, ...] = ()
    """Files that should hold a case and do not, and folders that may not be looked into."""
    repeated: int = 0
    """Further files of cases that are in `cases` already."""
    other_files: int = 0
    """JSON files that are something else (a plan, a cache)."""
    seen: int = 0
    """Files and unlisted folders that were met."""
    unfinished: tuple[Unfinished, ...] = ()
    """Log folders in which planned cases have no record yet."""
    repeats: tuple[RepeatedFile, ...] = ()
    """The further files, each with the one that counts."""
    settled: tuple[str, ...] = ()
    """What folders' names and tasks decided about whose runs these are, one sentence each."""


def read_cases(
    paths: Iterable[str | os.PathLike[str]],
    names: Names | None = None,
    only: Collection[Path] | None = None,
    looked: Looked | None = None,
) -> Reading:
    """Every stored case under some paths: ours, AgentDojo's published ones, DRIFT's and ASB's alike.

    Args:
        paths: Log folders, pipeline folders, suite folders or single files, in any mixture; overlaps
            are read once. Hidden files and folders are passed over.
        names: The user's word on other people's folders; files of names beside those are found without it.
        only: Folders below these paths, all else in which is passed over; None: nothing is. A folder's index
            serves all of its folders so. One that is not there may be planned, and counts as unfinished.
        looked: The only path as somebody has looked at it a moment ago; None: it is looked at now.

    Returns:
        The cases and what was skipped. A bad file is never fatal. Where a case is stored twice, the
        first file counts, unless only the second one finished without error.

    Raises:
        ConfigError: If a path does not exist, no path holds a single case, or a file of names is not one.
    """
    roots = [Path(path) for path in paths]
    listings = [listed(root) for root in roots] if looked is None else [looked.listing]
    read = all_read(listings, only, looked)
    if not read.rows:
        raise ConfigError(nothing_found(roots, read.skipped, read.other))
    found = counted(read.rows, names or Names())
    own = logdirs_of(row.source for row in read.rows if not row.foreign)
    return replace(
        found,
        skipped=tuple(read.skipped),
        other_files=read.other,
        seen=read.seen,
        unfinished=unfinished_in(roots if only is None else only, own if only is None else (), listings),
    )


WORTH_AN_INDEX = 1000
"""Files of a folder from which on an index of it is kept: fewer are read in a moment."""


class FilesRead(NamedTuple):
    """What some files hold, in their order."""

    rows: Sequence[CaseRow]
    skipped: Sequence[Skipped]
    """With the folders that may not be looked into, which come first."""
    other: int

    @property
    def seen(self) -> int:
        """Files, and folders that may not be looked into."""
        return len(self.rows) + len(self.skipped) + self.other


def files_read(
    listings: Sequence[Listing], only: Collection[Path] | None = None, looked: Looked | None = None
) -> FilesRead:
    """What the files of several listings hold, those of a folder that stands in two of them only once.

    Args:
        listings: The listings.
        only: Folders that are wanted; None: all are.
        looked: The only listing with what its files hold; None: they are read, or looked up in an index.
    """
    lines: list[Line] = [skip for listing in listings for skip in listing.unlisted]
    met: set[FolderId] = set()
    for listing in listings:
        kept = tuple(_below(folder, listing.root) for folder in only or ())
        cut = len(os.path.join(listing.root, ""))  # noqa: PTH118
        wanted = [
            folder not in met and (only is None or path.startswith(kept, cut))
            for folder, files in listing.folders.items()
            for path in files
        ]
        met |= listing.folders.keys()
        lines += _wanted_lines(listing, wanted, looked)
    return _sorted_out(lines)


def all_read(
    listings: Sequence[Listing], only: Collection[Path] | None = None, looked: Looked | None = None
) -> FilesRead:
    """The same with the rows of ASB's results files, which count as files and come last."""
    files = files_read(listings, only, looked)
    more = _sorted_out([row.case or Skipped(row.place, row.fault or "") for row in result_rows(listings)])
    return FilesRead([*files.rows, *more.rows], [*files.skipped, *more.skipped], files.other)


def _sorted_out(lines: Sequence[Line]) -> FilesRead:
    rows = [line for line in lines if isinstance(line, CaseRow)]
    skipped = [line for line in lines if isinstance(line, Skipped)]
    return FilesRead(rows, skipped, len(lines) - len(rows) - len(skipped))


def _below(folder: Path, root: str) -> str:
    """How the paths of a folder's files go on from a root."""
    return os.path.join(os.path.relpath(folder, root), "")  # noqa: PTH118


def _wanted_lines(listing: Listing, wanted: Sequence[bool], looked: Looked | None) -> Iterable[Line]:
    if looked is not None:
        return compress(looked.lines, wanted)
    files = [*compress(listing.files, wanted)]
    if len(files) < WORTH_AN_INDEX or os.path.isfile(listing.root):  # noqa: PTH113
        return map(read_line, files)
    return looked_up(listing, files)


def counted(rows: Sequence[CaseRow], names: Names) -> Reading:
    """Rows as their files give them -> under the names that folders and tasks settle, each case once.

    Args:
        rows: In the order of the paths.
        names: The user's word on other people's folders.
    """
    settled = settle(rows, names)
    after = settled.told
    return Reading(
        tuple(
            row if after[place] is (row := rows[place]) else _named(row, after[place])
            for place in settled.counted
        ),
        repeated=len(settled.repeated),
        repeats=settled.repeated,
        settled=settled.notes,
    )


_changed = attrgetter(*CHANGED)


def _named(row: CaseRow, told: Facts) -> CaseRow:
    return replace(row, **dict(zip(CHANGED, _changed(told), strict=True)))


def files_once(listings: Iterable[Listing]) -> Iterator[str]:
    """The files of several listings, those of a folder that stands in more than one of them only once."""
    return _once(listing.folders for listing in listings)


def result_rows(listings: Iterable[Listing]) -> Iterator[Row]:
    """The rows of ASB's results files, those of a folder in several listings likewise only once."""
    for path in _once(listing.results for listing in listings):
        yield from asb_rows(path)


def _once(listings: Iterable[Mapping[FolderId, Sequence[str]]]) -> Iterator[str]:
    met: set[FolderId] = set()
    for folders in listings:
        for folder, files in folders.items():
            if folder not in met:
                met.add(folder)
                yield from files


def nothing_found(roots: Sequence[Path], skipped: Sequence[Skipped], other: int) -> str:
    """One line that says what was there instead of cases."""
    where = ", ".join(f"'{root}'" for root in roots) or "no folder at all"
    if skipped:
        path, reason = skipped[0]
        seen = f"{len(skipped)} files could not be used, the first being {path}: {reason}."
    else:
        seen = f"{other} other JSON files." if other else "no JSON files."
    return f"No stored cases in {where}: {seen} Give the log folder of a run, e.g. results/runs."
