"""`load_index`: the contents of a folder's files, read once and kept in one SQLite file.

The index is a cache and nothing else. It has one row per JSON file under the folder, with the size and the
time of change it was read at: a file for which both still hold is not read again. Whatever is wrong with the
index (damaged, locked, another version's, somebody else's), the files are read instead, and it is made anew;
deleting it is safe at any time.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from agentsys.records.case import UnreadableRecord
from agentsys.records.case_row import CaseRow
from agentsys.records.columns import pack_rows, unpack_rows
from agentsys.records.listing import Listing, SkippedFile
from agentsys.records.old_shards import LOGDIR_OWN_FOLDER
from agentsys.records.stored_file import read_case_file

INDEX_NAME = "index.sqlite"
_TOO_YOUNG_NS = 2_000_000_000
"""A file changed so shortly before it was read may change again within one tick of the file system's
clock, unnoticed; it is not taken from the index but read again next time."""
_AT_ONCE = 5000
"""Files that are read, and then added to the index, together."""
_PATIENCE_S = 5.0
"""How long another process that is writing to the index is waited for."""

_log = logging.getLogger(__name__)

FileContent = CaseRow | SkippedFile | None
"""What a file holds: a case, nothing that can be used, or something else (a plan, a cache)."""

FileStamp = tuple[bytes, int, int]
"""What a file is known by: its path below the folder, its size, and its time of change in ns."""

_IndexEntry = tuple[bytes, int, int, bytes | None, int]
"""A file's stamp, its row as text (None: the file is something else), and the sum of both."""


class FolderSnapshot(NamedTuple):
    """A folder at one moment."""

    listing: Listing
    contents: Sequence[FileContent]
    """One for each of the listing's files."""

    @property
    def finished_hashes(self) -> dict[str, str]:
        """Record of ours that ended without an error -> the hash of its config."""
        cut = len(os.path.join(self.listing.root, ""))  # noqa: PTH118
        return {
            row.source[cut:]: row.config_hash
            for row in self.contents
            if isinstance(row, CaseRow) and row.status == "ok" and row.config_hash is not None
        }


def load_index(listing: Listing, files: Sequence[str] | None = None) -> list[FileContent]:
    """What a folder's files hold; those that are not in its index are read, and added to it.

    Args:
        listing: The whole of a folder: an index is kept for it.
        files: Those of its files that are wanted; None: all.
    """
    root, started = Path(listing.root), time.time_ns()
    files = listing.files if files is None else files
    place = index_path(root)
    known = {
        entry[0]: entry
        for path in dict.fromkeys((logdir_index_path(root), place))
        for entry in _read_index(path)
    }
    names = _relative_paths(files, listing.root)
    contents = _look_up(files, names, known)
    new = [at for at, content in enumerate(contents) if content is _NOT_THERE]
    if new:
        _log.debug("Index of %s: %d files read, %d known", root, len(new), len(files) - len(new))
    gone = known.keys() - set(_relative_paths(listing.files, listing.root)) if known else set[bytes]()
    for start in range(0, len(new), _AT_ONCE):
        some = new[start : start + _AT_ONCE]
        stamps = [(names[at], *_stamp_file(files[at])) for at in some]  # before they are read
        for at in some:
            contents[at] = read_content(files[at])
        kept = _worth_keeping([*zip(stamps, (contents[at] for at in some), strict=True)], started)
        _write_index(place, gone, kept)
        gone = set()
    if gone:
        _write_index(place, gone, [])
    return contents


_NOT_THERE = SkippedFile("", "")


def _look_up(
    files: Sequence[str], names: Sequence[bytes], known: Mapping[bytes, _IndexEntry]
) -> list[FileContent]:
    """What an index has of files that have not changed since, `_NOT_THERE` for the others."""
    contents: list[FileContent] = [_NOT_THERE] * len(files)
    cases, texts = list[int](), list[bytes]()
    for at, (name, file) in enumerate(zip(names, files, strict=True)):
        entry = known.get(name)
        if entry is None or entry[1:3] != _stamp_file(file):
            continue
        text = entry[3]
        if not isinstance(text, bytes | None) or entry[4] != _sum_of(entry[:3], text):
            continue
        if text is None:
            contents[at] = None
        else:
            cases.append(at)
            texts.append(text)
    try:
        rows = unpack_rows(texts, [files[at] for at in cases])
    except ValueError:  # the sums are right: somebody made this who meant us to stumble
        return [_NOT_THERE] * len(files)
    for at, row in zip(cases, rows, strict=True):
        contents[at] = row
    return contents


def read_content(path: str) -> FileContent:
    """What a file holds, read from the file itself."""
    try:
        return read_case_file(path)
    except UnreadableRecord as fault:
        return SkippedFile(path, str(fault))


def _stamp_file(path: str) -> tuple[int, int]:
    """A file's size and time of change; one that is gone or out of reach has the size -1."""
    try:
        status = os.stat(path)  # noqa: PTH116  `path` is a str already
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _relative_paths(files: Sequence[str], root: str) -> list[bytes]:
    """The paths of files below a folder."""
    cut = len(os.path.join(root, ""))  # noqa: PTH118
    # All in one go, which is quicker: no name holds a zero byte.
    return os.fsencode("\0".join([file[cut:] for file in files])).split(b"\0") if files else []


def _worth_keeping(
    lines: Iterable[tuple[FileStamp, FileContent]], started_ns: int
) -> list[tuple[FileStamp, bytes | None]]:
    """Without young files and skipped ones (new permissions mend those and show in no mark)."""
    old = [(mark, line) for mark, line in lines if mark[2] < started_ns - _TOO_YOUNG_NS]
    cases = [(mark, line) for mark, line in old if isinstance(line, CaseRow)]
    texts = pack_rows([row for _, row in cases])
    kept = [(mark, text) for (mark, _), text in zip(cases, texts, strict=True) if text is not None]
    return [*kept, *((mark, None) for mark, line in old if line is None)]


def _sum_of(mark: FileStamp, text: bytes | None) -> int:
    """SQLite has no sums of its own: a flipped bit, or half of a write, would be taken for a row."""
    return zlib.crc32(b"%b %d %d" % mark, zlib.crc32(text or b""))


def _read_index(place: Path) -> list[_IndexEntry]:
    """The entries of an index; none where there is none that can be used."""
    if place.exists():
        with _ignore_failures(place), _open_index(place, "ro") as index:
            return index.execute(f"SELECT path, size, mtime_ns, row, sum FROM {_table()}").fetchall()
    return []


def _write_index(place: Path, gone: Iterable[bytes], lines: Iterable[tuple[FileStamp, bytes | None]]) -> None:
    """Take files that are gone out of an index, and put new rows into it."""
    rows = [(*mark, text, _sum_of(mark, text)) for mark, text in lines]
    with _ignore_failures(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        with _open_index(place, "rwc") as index:
            index.executemany(f"DELETE FROM {_table()} WHERE path = ?", ((name,) for name in gone))
            index.executemany(f"INSERT OR REPLACE INTO {_table()} VALUES (?, ?, ?, ?, ?)", rows)
            index.commit()


@contextmanager
def _ignore_failures(place: Path) -> Iterator[None]:
    """End a look at an index, or a writing, that fails, and nothing else; a bad index is removed."""
    try:
        yield
    except (OSError, sqlite3.OperationalError) as error:  # locked, out of reach, or the disk is full
        _log.debug("Index %s cannot be used (%s)", place, error)
    except (sqlite3.Error, _ForeignFileError) as error:
        _log.debug("Index %s cannot be used (%s); it is made anew", place, error)
        for path in (str(place), *(f"{place}{end}" for end in _JOURNALS)):
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108


@contextmanager
def _open_index(place: Path, mode: str) -> Iterator[sqlite3.Connection]:
    """An index that is this code's; with the mode `rwc` it is made where there is none.

    Raises:
        sqlite3.Error: If it is damaged, locked, or cannot be written.
        _NotOurs: If it is something else.
    """
    _check_plain(place)
    address = f"{place.absolute().as_uri()}?mode={mode}"
    with closing(sqlite3.connect(address, _PATIENCE_S, uri=True)) as index:
        # In memory, so that a journal beside an index is never ours; what half a write leaves behind is found
        # by the sums, or SQLite calls it malformed. The disk need not be waited for either.
        index.executescript("PRAGMA trusted_schema=OFF; PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF")
        if mode == "rwc":
            index.execute(_TABLE.replace("TABLE", "TABLE IF NOT EXISTS").format(_table()))
        _check_schema(index)
        yield index


class _ForeignFileError(Exception):
    """A file in the index's place that this code did not write."""


def _check_plain(place: Path) -> None:
    """See that SQLite opens one plain file.

    Raises:
        _NotOurs: If there is something else: a link or a pipe; or a journal, which we never write, and by
            which SQLite would change the index, or remove a file that the journal names.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(place).st_mode):
            raise _ForeignFileError("no plain file")
    for end in _JOURNALS:
        if os.path.lexists(f"{place}{end}"):
            raise _ForeignFileError("a journal lies beside it")


_JOURNALS = ("-journal", "-wal", "-shm")


def _check_schema(index: sqlite3.Connection) -> None:
    """See that an index holds our table and nothing that runs when it is read (a view, a trigger).

    Raises:
        _NotOurs: If it does, or other code made it: the table's name tells.
    """
    found = index.execute("SELECT type, name, sql FROM sqlite_schema").fetchall()
    if found != [("table", _table(), _TABLE.format(_table()))]:
        raise _ForeignFileError("it is of another version")


_TABLE = (
    "CREATE TABLE {} (path BLOB PRIMARY KEY, size INTEGER, mtime_ns INTEGER, row BLOB, sum INTEGER)"
    " WITHOUT ROWID"
)


def _table() -> str:
    return f"files_{_fingerprint()}"


def index_path(root: Path) -> Path:
    """The place where a folder's index is written.

    A folder that is not ours is never written to.
    """
    own = logdir_index_path(root)
    return own if own.parent.is_dir() and os.access(own.parent, os.W_OK) else _cache_index_path(root)


def logdir_index_path(root: Path) -> Path:
    """Its place in a log folder of ours."""
    return root / LOGDIR_OWN_FOLDER / INDEX_NAME


def _cache_index_path(root: Path) -> Path:
    """In the user's cache folder (`XDG_CACHE_HOME` where it is set), under a name made of the real path."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return user_cache_path("agentsys") / "index" / f"{name}.sqlite"


@lru_cache(maxsize=1)
def _fingerprint() -> str:
    """A hash of the code that makes rows out of files: no row outlives the code it was made with."""
    room = Path(__file__).parent
    sources = [*room.rglob("*.py"), *room.glob("data/*"), *(room.parent / name for name in _OTHER_SOURCES)]
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


_OTHER_SOURCES = ("base/payload_lines.py", "base/declared_facts.py")
"""What rows depend on outside this room, from the package's folder."""
