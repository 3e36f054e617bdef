"""`read_cases` and `load_runs`: every stored case under some folders, as rows or as a data frame.

Both also give every file that could not be used, with the reason. A file of ASB's results holds many cases;
each of its rows counts as a file. pandas is imported inside functions: it costs a second that
`agentsys results` does without.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentsys.errors import ConfigError
from agentsys.records.asb_format import AsbResultRow, read_asb_rows
from agentsys.records.case import CALLS_DIFFER, ODD_NUMBERS, STANDS_TWICE, UNKNOWN_FIELDS
from agentsys.records.case_row import COLUMNS, CaseRow
from agentsys.records.columns import build_frame
from agentsys.records.dump_format import INSPECT_BENCHMARK, POLARITY_NOTE, read_dump_rows
from agentsys.records.folder_index import (
    FileContent,
    FolderId,
    FolderSnapshot,
    Listing,
    SkippedFile,
    list_files,
    load_index,
    read_content,
    without_collector,
)
from agentsys.records.names_file import RunNames
from agentsys.records.parquet_files import find_parquet, read_parquet
from agentsys.records.resolve_runs import RepeatedFile, resolve_runs
from agentsys.records.runs_source import open_runs
from agentsys.records.stored_plan import UnfinishedRun, describe_unfinished, find_logdirs, find_unfinished

if TYPE_CHECKING:
    import pandas as pd


def describe_skipped(skipped: Sequence[SkippedFile], limit: int = 5) -> list[str]:
    """One line per skipped file, at most `limit`, then one line with the count of the rest."""
    lines = [f"Skipped {path}: {reason}" for path, reason in skipped[:limit]]
    rest = len(skipped) - limit
    return [*lines, f"Skipped {rest} more file{'s' if rest > 1 else ''}."] if rest > 0 else lines


def describe_resolution(notes: Sequence[str], limit: int = 12) -> list[str]:
    """The decisions about whose runs these are: `limit` lines, then a count of the rest."""
    rest = len(notes) - limit
    return [*notes[:limit], f"{rest} more folders likewise."] if rest > 0 else list(notes)


def describe_repeated(repeated: Sequence[RepeatedFile]) -> Iterator[str]:
    """One line on files of cases that are counted already, with the paths of the first; none without any."""
    if repeated:
        some = "1 file" if len(repeated) == 1 else f"{len(repeated)} files"
        named = "; ".join(f"{file.source} (counted: {file.counted_source})" for file in repeated[:_NAMED])
        more = f"; and {len(repeated) - _NAMED} more" if len(repeated) > _NAMED else ""
        yield f"Left out: {some} of cases that are stored more than once: {named}{more}."


_NAMED = 2


def _describe_versions(versions: Sequence[str]) -> Iterator[str]:
    if len(versions) > 1:
        yield f"Cases of {len(versions)} benchmark versions are kept apart: {', '.join(versions)}."


def describe_faults(cases: Iterable[CaseRow]) -> Iterator[str]:
    """A line for each file that is read though something in it is wrong."""
    for case in cases:
        yield from (
            f"{case.source}: {note}"
            for note in case.notes
            if note.startswith((CALLS_DIFFER, ODD_NUMBERS, STANDS_TWICE))
        )


def _describe_unknown_fields(notes: Iterable[Sequence[str]]) -> Iterator[str]:
    found = [note for of_case in notes for note in of_case if note.startswith(UNKNOWN_FIELDS)]
    if found:
        files = "1 file has" if len(found) == 1 else f"{len(found)} files have"
        names = sorted({name for note in found for name in note[len(UNKNOWN_FIELDS) :].split(", ")})
        yield f"{files} fields that this version does not know and ignores: {', '.join(names[:5])}."


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
    mixed_settings: tuple[str, ...] = ()
    """Names under which there are cases of several settings, and these."""
    noted_settings: tuple[str, ...] = ()
    """Names under which settings differ that decide no number, and these."""


@without_collector()
def read_cases(
    paths: Iterable[str | os.PathLike[str]],
    names: RunNames | None = None,
    only: Collection[Path] | None = None,
    looked: FolderSnapshot | None = None,
    held: Mapping[str, CaseRow] | None = None,
) -> LoadedCases:
    """Every stored case under some paths: ours, AgentDojo's published ones, DRIFT's and ASB's alike.

    Args:
        paths: Log folders, pipeline folders, suite folders, single files, bundles or addresses of bundles,
            in any mixture; overlaps are read once. Hidden files and folders are passed over.
        names: The user's word on other people's folders; files of names beside those are found without it.
        only: Folders below these paths, all else in which is passed over; None: nothing is. A folder's index
            serves all of its folders so. One that is not there may be planned, and counts as unfinished.
        looked: The only path as somebody has looked at it a moment ago; None: it is looked at now.
        held: Path -> row of cases that this process stored, which are not read again.

    Returns:
        The cases and what was skipped. A bad file is never fatal. Where a case is stored twice, the
        first file counts, unless only the second one finished without error.

    Raises:
        ConfigError: If a path does not exist, no path holds a single case, or a file of names is not one.
    """
    roots = [open_runs(Path(path)) for path in paths]
    listings = [list_files(root) for root in roots] if looked is None else [looked.listing]
    read = read_files(listings, only, looked, held)
    # Rows of ASB's results files count as files and come last.
    results = _iterate_once(listing.asb_results for listing in listings)
    found = (row for path in results for row in _read_table(path))
    asb = [row.case or SkippedFile(row.location, row.fault or "") for row in found]
    rows = [*read.rows, *(row for row in asb if isinstance(row, CaseRow))]
    skipped = [*read.skipped_files, *(row for row in asb if isinstance(row, SkippedFile))]
    if not rows:
        tables = [path for listing in listings for paths in listing.asb_results.values() for path in paths]
        raise ConfigError(_explain_no_cases(roots, skipped, read.other_count, tables))
    resolved = resolve_runs(rows, names or RunNames())
    polarity = (POLARITY_NOTE,) if any(row.benchmark == INSPECT_BENCHMARK for row in rows) else ()
    own = find_logdirs(row.source for row in rows if not row.foreign) if only is None else []
    return LoadedCases(
        resolved.counted_cases,
        tuple(skipped),
        len(resolved.repeated_files),
        read.other_count,
        len(rows) + len(skipped) + read.other_count,
        find_unfinished(roots if only is None else only, own, listings),
        resolved.repeated_files,
        (*resolved.notes, *describe_faults(resolved.counted_cases), *polarity),
        resolved.mixed_settings,
        resolved.noted_settings,
    )


def _read_table(path: str) -> Iterator[AsbResultRow]:
    return read_asb_rows(path) if path.endswith(".csv") else read_dump_rows(path)


WORTH_AN_INDEX = 1000
"""Files of a folder from which on an index of it is kept: fewer are read in a moment."""


class FilesContent(NamedTuple):
    """Content of some files, in their order."""

    rows: Sequence[CaseRow]
    skipped_files: Sequence[SkippedFile]
    """With the folders that may not be looked into, which come first."""
    other_count: int


def read_files(
    listings: Sequence[Listing],
    only: Collection[Path] | None = None,
    looked: FolderSnapshot | None = None,
    held: Mapping[str, CaseRow] | None = None,
) -> FilesContent:
    """Read the files of several listings; a folder in two of them is read once."""
    lines: list[FileContent] = [skip for listing in listings for skip in listing.skipped_entries]
    met: set[FolderId] = set()
    for listing in listings:
        # How the paths of a wanted folder's files go on from the root.
        kept = tuple(os.path.join(os.path.relpath(folder, listing.root), "") for folder in only or ())  # noqa: PTH118
        cut = len(os.path.join(listing.root, ""))  # noqa: PTH118
        wanted = [
            folder not in met and (only is None or path.startswith(kept, cut))
            for folder, files in listing.folders.items()
            for path in files
        ]
        met |= listing.folders.keys()
        files = [*compress(listing.files, wanted)]
        if looked is not None:
            lines += compress(looked.contents, wanted)
        elif len(files) < WORTH_AN_INDEX or os.path.isfile(listing.root):  # noqa: PTH113
            lines += ((held or {}).get(path) or read_content(path) for path in files)
        else:
            lines += load_index(listing, files)
    rows = [line for line in lines if isinstance(line, CaseRow)]
    skipped = [line for line in lines if isinstance(line, SkippedFile)]
    return FilesContent(rows, skipped, len(lines) - len(rows) - len(skipped))


def iterate_files(listings: Iterable[Listing]) -> Iterator[str]:
    """The files of several listings, those of a folder that stands in more than one of them only once."""
    return _iterate_once(listing.folders for listing in listings)


def _iterate_once(listings: Iterable[Mapping[FolderId, Sequence[str]]]) -> Iterator[str]:
    met: set[FolderId] = set()
    for folders in listings:
        for folder, files in folders.items():
            if folder not in met:
                met.add(folder)
                yield from files


def _explain_no_cases(
    roots: Sequence[Path], skipped: Sequence[SkippedFile], other: int, tables: Sequence[str]
) -> str:
    """Write the error for paths that hold no case, with what was seen there."""
    where = ", ".join(f"'{root}'" for root in roots) or "no folder at all"
    if any(map(find_parquet, roots)) and all(file.path.endswith(".parquet") for file in skipped):
        return (
            f"{where} holds no records, only their export to Parquet, which `agentsys.load_runs` alone reads."
        )
    if skipped:
        path, reason = skipped[0]
        seen = f"{len(skipped)} files could not be used, the first being {path}: {reason}."
    elif tables and not other:
        seen = f"no line of {tables[0]} says which case it is."
    else:
        seen = f"{other} other JSON files." if other else "no JSON files."
    return f"No stored cases in {where}: {seen} Give the log folder of a run, e.g. results/runs."


COUNTS_KEY = "agentsys_counts"
"""Key in the frame's `attrs`: how many files were seen and what became of them."""

_log = logging.getLogger(__name__)


def load_runs(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    names: str | os.PathLike[str] | None = None,
    describe: Callable[[Sequence[CaseRow]], Mapping[str, Sequence[Any]]] | None = None,
) -> pd.DataFrame:
    """Every stored case under some paths, one row each: ours, AgentDojo's published ones, DRIFT's and ASB's.

    Args:
        paths: A log, pipeline or suite folder or a single file, or several; or what `agentsys export parquet` wrote.
        names: A file that says whose runs other people's folders are (docs/data.md#whose-run-it-is).
        describe: Gives further columns, a value for each row.

    Returns:
        Columns as explained in docs/data.md, in that order. Injection tasks run as user tasks are
        included; no metric counts them. Files that could not be used, cases stored twice and
        mixtures of benchmark versions are logged as warnings, a line each. `attrs["agentsys_counts"]`
        says what became of the files: `cases`, `skipped`, `repeated` and `other` add up to `seen`.
        Of a folder of 1,000 files and more an index is kept (docs/data.md#index).

    Raises:
        ConfigError: If a path does not exist, none holds a case, or a file of names is not one.
    """
    import pandas as pd

    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if len(several) == 1 and (file := find_parquet(Path(several[0]))) is not None:
        if names is not None:
            raise ConfigError(f"{file} has the names that its export was given: give `names` there.")
        return read_parquet(file)
    read = read_cases(several, RunNames(names))
    frame = build_frame(
        [row if row.source.isascii() else replace(row, source=_escape_path(row.source)) for row in read.cases]
    )
    for name, values in (describe(read.cases) if describe else {}).items():
        frame[name] = pd.Series(values, index=frame.index, dtype=object)
    frame.attrs[COUNTS_KEY] = {
        "seen": read.seen_count,
        "cases": len(frame),
        "skipped": len(read.skipped_files),
        "repeated": read.repeated_count,
        "other": read.other_files,
    }
    for line in (
        *describe_unfinished(read.unfinished),
        *describe_skipped(read.skipped_files),
        *describe_resolution(read.resolution_notes),
        *describe_repeated(read.repeated_files),
        *_describe_versions(sorted({row.version for row in read.cases})),
        *_describe_unknown_fields(row.notes for row in read.cases),
    ):
        _log.warning("%s", _escape_path(line))
    return frame


def list_case_rows(cases: pd.DataFrame) -> list[CaseRow]:
    """The rows of a (perhaps filtered) frame of `load_runs`, for functions that do without pandas."""
    import pandas as pd

    def make_plain(record: Mapping[Hashable, Any]) -> dict[str, Any]:
        return {str(name): None if pd.isna(value) else value for name, value in record.items()}

    chosen = cases[list(COLUMNS)]
    return [CaseRow(**make_plain(record)) for record in chosen.to_dict(orient="records")]


def _escape_path(text: str) -> str:
    """A text with paths in it; a name that is no valid UTF-8 can be read but not shown as it is."""
    return os.fsencode(text).decode("utf-8", "backslashreplace") if not text.isascii() else text
