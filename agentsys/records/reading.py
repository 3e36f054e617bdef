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
from agentsys.records.formats.asb import AsbResultRow, read_asb_rows
from agentsys.records.index import FileContent, FolderSnapshot, load_index, read_content
from agentsys.records.listing import FolderId, Listing, SkippedFile, list_files
from agentsys.records.names_file import RunNames
from agentsys.records.reading_notes import describe_skipped
from agentsys.records.settle import RESOLVED_COLUMNS, ResolvableCase, RepeatedFile, resolve_runs
from agentsys.records.unfinished import UnfinishedRun, find_logdirs, find_unfinished

__all__ = ["LoadedCases", "SkippedFile", "explain_no_cases", "read_cases", "describe_skipped"]


@dataclass(frozen=True)
class LoadedCases:
    """The contents of some folders. Cases, skipped, repeated and other files add up to the files seen."""

    cases: tuple[CaseRow, ...]
    """In the order of the paths given, then by path, those from ASB's results last; each case once."""
    skipped_files: tuple[SkippedFile, ...] = ()
    """Files that should hold a case and do not, and folders that may not be looked into."""
    repeated_count: int = 0
    """Further files of cases that are in `cases` already."""
    other_files: int = 0
    """JSON files that are something else (a plan, a cache)."""
    seen_count: int = 0
    """Files and unlisted folders that were met."""
    unfinished: tuple[UnfinishedRun, ...] = ()
    """Log folders in which planned cases have no record yet."""
    repeated_files: tuple[RepeatedFile, ...] = ()
    """The further files, each with the one that counts."""
    resolution_notes: tuple[str, ...] = ()
    """What folders' names and tasks decided about whose runs these are, one sentence each."""


def read_cases(
    paths: Iterable[str | os.PathLike[str]],
    names: RunNames | None = None,
    only: Collection[Path] | None = None,
    looked: FolderSnapshot | None = None,
) -> LoadedCases:
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
    listings = [list_files(root) for root in roots] if looked is None else [looked.listing]
    read = read_all_files(listings, only, looked)
    if not read.rows:
        raise ConfigError(explain_no_cases(roots, read.skipped_files, read.other_count))
    found = count_once(read.rows, names or RunNames())
    own = find_logdirs(row.source for row in read.rows if not row.foreign)
    return replace(
        found,
        skipped_files=tuple(read.skipped_files),
        other_files=read.other_count,
        seen_count=read.seen_count,
        unfinished=find_unfinished(roots if only is None else only, own if only is None else (), listings),
    )


WORTH_AN_INDEX = 1000
"""Files of a folder from which on an index of it is kept: fewer are read in a moment."""


class FilesContent(NamedTuple):
    """What some files hold, in their order."""

    rows: Sequence[CaseRow]
    skipped_files: Sequence[SkippedFile]
    """With the folders that may not be looked into, which come first."""
    other_count: int

    @property
    def seen_count(self) -> int:
        """Files, and folders that may not be looked into."""
        return len(self.rows) + len(self.skipped_files) + self.other_count


def read_files(
    listings: Sequence[Listing], only: Collection[Path] | None = None, looked: FolderSnapshot | None = None
) -> FilesContent:
    """What the files of several listings hold, those of a folder that stands in two of them only once.

    Args:
        listings: The listings.
        only: Folders that are wanted; None: all are.
        looked: The only listing with what its files hold; None: they are read, or looked up in an index.
    """
    lines: list[FileContent] = [skip for listing in listings for skip in listing.skipped_entries]
    met: set[FolderId] = set()
    for listing in listings:
        kept = tuple(_relative_prefix(folder, listing.root) for folder in only or ())
        cut = len(os.path.join(listing.root, ""))  # noqa: PTH118
        wanted = [
            folder not in met and (only is None or path.startswith(kept, cut))
            for folder, files in listing.folders.items()
            for path in files
        ]
        met |= listing.folders.keys()
        lines += _read_wanted(listing, wanted, looked)
    return _sort_contents(lines)


def read_all_files(
    listings: Sequence[Listing], only: Collection[Path] | None = None, looked: FolderSnapshot | None = None
) -> FilesContent:
    """The same with the rows of ASB's results files, which count as files and come last."""
    files = read_files(listings, only, looked)
    more = _sort_contents([row.case or SkippedFile(row.location, row.fault or "") for row in iterate_asb_rows(listings)])
    return FilesContent([*files.rows, *more.rows], [*files.skipped_files, *more.skipped_files], files.other_count)


def _sort_contents(lines: Sequence[FileContent]) -> FilesContent:
    rows = [line for line in lines if isinstance(line, CaseRow)]
    skipped = [line for line in lines if isinstance(line, SkippedFile)]
    return FilesContent(rows, skipped, len(lines) - len(rows) - len(skipped))


def _relative_prefix(folder: Path, root: str) -> str:
    """How the paths of a folder's files go on from a root."""
    return os.path.join(os.path.relpath(folder, root), "")  # noqa: PTH118


def _read_wanted(listing: Listing, wanted: Sequence[bool], looked: FolderSnapshot | None) -> Iterable[FileContent]:
    if looked is not None:
        return compress(looked.contents, wanted)
    files = [*compress(listing.files, wanted)]
    if len(files) < WORTH_AN_INDEX or os.path.isfile(listing.root):  # noqa: PTH113
        return map(read_content, files)
    return load_index(listing, files)


def count_once(rows: Sequence[CaseRow], names: RunNames) -> LoadedCases:
    """Rows as their files give them -> under the names that folders and tasks settle, each case once.

    Args:
        rows: In the order of the paths.
        names: The user's word on other people's folders.
    """
    settled = resolve_runs(rows, names)
    after = settled.cases
    return LoadedCases(
        tuple(
            row if after[place] is (row := rows[place]) else _apply_facts(row, after[place])
            for place in settled.counted_indices
        ),
        repeated_count=len(settled.repeated_files),
        repeated_files=settled.repeated_files,
        resolution_notes=settled.notes,
    )


_get_resolved_facts = attrgetter(*RESOLVED_COLUMNS)


def _apply_facts(row: CaseRow, told: ResolvableCase) -> CaseRow:
    return replace(row, **dict(zip(RESOLVED_COLUMNS, _get_resolved_facts(told), strict=True)))


def iterate_files(listings: Iterable[Listing]) -> Iterator[str]:
    """The files of several listings, those of a folder that stands in more than one of them only once."""
    return _iterate_once(listing.folders for listing in listings)


def iterate_asb_rows(listings: Iterable[Listing]) -> Iterator[AsbResultRow]:
    """The rows of ASB's results files, those of a folder in several listings likewise only once."""
    for path in _iterate_once(listing.asb_results for listing in listings):
        yield from read_asb_rows(path)


def _iterate_once(listings: Iterable[Mapping[FolderId, Sequence[str]]]) -> Iterator[str]:
    met: set[FolderId] = set()
    for folders in listings:
        for folder, files in folders.items():
            if folder not in met:
                met.add(folder)
                yield from files


def explain_no_cases(roots: Sequence[Path], skipped: Sequence[SkippedFile], other: int) -> str:
    """One line that says what was there instead of cases."""
    where = ", ".join(f"'{root}'" for root in roots) or "no folder at all"
    if skipped:
        path, reason = skipped[0]
        seen = f"{len(skipped)} files could not be used, the first being {path}: {reason}."
    else:
        seen = f"{other} other JSON files." if other else "no JSON files."
    return f"No stored cases in {where}: {seen} Give the log folder of a run, e.g. results/runs."
