"""`FollowedRuns`: the cases under some folders, kept up to date while runs write them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agentsys.analysis.html_report.case_index import IndexRow, in_reading_order, index_row
from agentsys.errors import ConfigError
from agentsys.records.case_row import CaseRow
from agentsys.records.formats.asb import asb_rows
from agentsys.records.listing import Listing, Skipped, listed
from agentsys.records.names_file import Names
from agentsys.records.reading import Reading, counted, files_once
from agentsys.records.short_names import with_short_names
from agentsys.records.stored_file import read_stored
from agentsys.records.unreadable import UnreadableRecord

_LOG = logging.getLogger(__name__)

PAUSE_S = 0.4
"""Between two looks at the folders, and at least the processor time that a look takes."""
_PUBLISHED_AFTER_S = 0.3
"""While many files are read: when those read so far are shown first; then after twice as long, and so on."""


class FileStamp(NamedTuple):
    """The marks by which a file is known to be the one that was read."""

    inode: int
    size: int
    mtime_ns: int


@dataclass(frozen=True)
class FileCases:
    """What a file held when it was last read."""

    stamp: FileStamp
    rows: tuple[CaseRow, ...] = ()
    skipped: tuple[Skipped, ...] = ()


class ShownCase(NamedTuple):
    """A case as the page has it."""

    case: CaseRow
    row: IndexRow
    version: int
    """When it came or last changed."""


class Rows(NamedTuple):
    """Rows of the list."""

    version: int
    """Whoever has these asks for changes since then: all come, if these are not all."""
    rows: list[IndexRow]


@dataclass(frozen=True)
class Changes:
    """The news since a version."""

    version: int
    rows: tuple[IndexRow, ...]
    gone: tuple[str, ...]
    """Ids of cases that are no more."""


@dataclass
class FollowedRuns:
    """Follows folders from a thread of its own, from `start` to `stop`; the rest may be asked any time.

    A folder need not hold a case yet, nor exist.
    """

    folders: Sequence[Path]
    names: Names = field(default_factory=Names)
    reading_files: bool = True
    """Whether files that were there from the start are still being read."""
    _reading: Reading = field(default_factory=lambda: Reading(()))
    _files: dict[str, FileCases] = field(default_factory=dict)
    _shown: dict[str, ShownCase] = field(default_factory=dict)
    _gone: dict[str, int] = field(default_factory=dict)
    _version: int = 0
    _news: threading.Condition = field(default_factory=threading.Condition)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._thread = threading.Thread(target=self._follow, name="followed-runs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it; whoever waits for news is woken. May be called twice."""
        self._stopping.set()
        with self._news:
            self._news.notify_all()
        if self._thread is not None:
            self._thread.join()

    @property
    def reading(self) -> Reading:
        """The cases as they count now, under the names that tables give them."""
        return self._reading

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def rows(self, most: int | None = None) -> Rows:
        """The rows in the order of the list; of more than `most` the newest."""
        with self._news:
            version, shown = self._version, list(self._shown.values())
        whole = most is None or len(shown) <= most
        if not whole:
            shown = sorted(shown, key=lambda one: one.row["written"] or 0.0, reverse=True)[:most]
        found = {one.case.source: one.row for one in shown}
        ordered = [found[case.source] for case in in_reading_order(one.case for one in shown)]
        return Rows(version if whole else 0, ordered)

    def case(self, case_id: str) -> CaseRow | None:
        """The case of an id; None if there is none."""
        shown = self._shown.get(case_id)
        return None if shown is None else shown.case

    def cases(self) -> list[tuple[str, CaseRow]]:
        """Every id with its case."""
        with self._news:
            return [(name, shown.case) for name, shown in self._shown.items()]

    def changes(
        self, since: int, seconds: float = 0.0, other_news: Callable[[], bool] = lambda: False
    ) -> Changes:
        """The news since a version.

        Args:
            since: The version that the asker knows.
            seconds: How long to wait for news if there is none.
            other_news: Whether there is something else that the asker waits for; looked at after `wake`.
        """

        def over() -> bool:
            return self._version != since or self._stopping.is_set() or other_news()

        with self._news:
            self._news.wait_for(over, seconds)
            rows = tuple(shown.row for shown in self._shown.values() if shown.version > since)
            gone = tuple(name for name, version in self._gone.items() if version > since)
            return Changes(self._version, rows, gone)

    def wake(self) -> None:
        """Have whoever waits for news ask again."""
        with self._news:
            self._news.notify_all()

    def look(self) -> None:
        """Read what is new or changed under the folders, and show it."""
        listings = [listed(folder) for folder in self.folders if folder.exists()]
        present = [*files_once(listings), *_results(listings)]
        before, shown_at, patience = self._files, time.monotonic(), _PUBLISHED_AFTER_S
        # A dict in the order of the paths: of two files of one case the first one counts, as in a report.
        kept = {path: before[path] for path in present if path in before}
        dirty = len(kept) != len(before)
        for path in present:
            stamp = _stamp(path)
            if stamp is None or (path in kept and kept[path].stamp == stamp):
                continue
            kept[path], dirty = _read(path, stamp), True
            if self._stopping.is_set():
                return
            if time.monotonic() - shown_at > patience:
                self._show({path: kept[path] for path in present if path in kept})
                dirty, shown_at, patience = False, time.monotonic(), 2 * patience
        if dirty:
            self._show({path: kept[path] for path in present if path in kept})

    def _follow(self) -> None:
        while not self._stopping.is_set():
            started = time.thread_time()
            try:
                self.look()
            except (OSError, ConfigError) as fault:  # a folder is away: a later look may find it
                _LOG.warning("Cannot look at the runs: %s", fault)
            pause = max(PAUSE_S, time.thread_time() - started) if not self.reading_files else PAUSE_S
            self.reading_files = False
            self._stopping.wait(pause)

    def _show(self, files: dict[str, FileCases]) -> None:
        rows = [row for held in files.values() for row in held.rows]
        found = counted(rows, self.names)
        skipped = tuple(skip for held in files.values() for skip in held.skipped)
        reading = Reading(
            with_short_names(found.cases), skipped, found.repeated, seen=len(files), repeats=found.repeats
        )
        with self._news:
            version = self._version + 1
            known = {shown.case.source: shown for shown in self._shown.values()}
            # A file that was written again may tell another story with the same numbers.
            for path in [path for path, held in files.items() if self._files.get(path) is not held]:
                known.pop(path, None)
            shown = dict(_as_shown(reading.cases, known, version))
            self._gone |= dict.fromkeys(self._shown.keys() - shown.keys(), version)
            self._gone = {name: when for name, when in self._gone.items() if name not in shown}
            self._files, self._reading, self._shown, self._version = files, reading, shown, version
            self._news.notify_all()


def _as_shown(
    cases: Sequence[CaseRow], known: dict[str, ShownCase], version: int
) -> Iterator[tuple[str, ShownCase]]:
    for case in cases:
        before = known.get(case.source)
        if before is not None and (before.case is case or before.case == case):
            yield before.row["id"], before
        else:
            row = index_row(case)
            yield row["id"], ShownCase(case, row, version)


def _results(listings: Sequence[Listing]) -> list[str]:
    """ASB's tables of results, each once."""
    return list(
        dict.fromkeys(path for found in listings for paths in found.results.values() for path in paths)
    )


def _stamp(path: str) -> FileStamp | None:
    try:
        status = os.stat(path)  # noqa: PTH116
        return FileStamp(status.st_ino, status.st_size, status.st_mtime_ns)
    except OSError:
        return None


def _read(path: str, stamp: FileStamp) -> FileCases:
    if path.endswith(".csv"):
        lines = list(asb_rows(path))
        rows = tuple(line.case for line in lines if line.case is not None)
        faults = tuple(Skipped(line.place, line.fault or "") for line in lines if line.case is None)
        return FileCases(stamp, rows, faults)
    try:
        row = read_stored(path)
    except UnreadableRecord as fault:
        return FileCases(stamp, skipped=(Skipped(path, str(fault)),))
    return FileCases(stamp, () if row is None else (row,))
