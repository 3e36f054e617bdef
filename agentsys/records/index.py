"""`looked_up`: the rows of a folder's files, parsed once and kept in a Parquet file.

The index is a cache and nothing else. It holds one line per JSON file under the folder, skipped ones and
other ones included, each with the size and the time of change it was read at: a file for which both still
hold is not read again. New lines are added in a part of their own, beside the others, so that a folder of a
million records is not written anew for one more. An index that is damaged, or that another version of this
code wrote, is made anew; deleting it is safe at any time.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from platformdirs import user_cache_path

from agentsys.records.case_row import CaseRow
from agentsys.records.columns import ROW_FIELDS, plain_list, row_arrays
from agentsys.records.listing import Listing
from agentsys.records.shards.either import stamp_of
from agentsys.records.stored_file import read_stored
from agentsys.records.unreadable import UnreadableRecord

CASE, SKIPPED, OTHER = 0, 1, 2
"""Values of the column `kind`."""

_FILE_FIELDS = [
    pa.field("file", pa.binary()),
    pa.field("size", pa.int64()),
    pa.field("mtime_ns", pa.int64()),
    pa.field("kind", pa.int8()),
    pa.field("reason", pa.string()),
]
_MARK = b"agentsys.index"
_TOO_YOUNG_NS = 2_000_000_000
"""A file changed so shortly before it was read may change again within one tick of the file system's
clock, unnoticed; it is not taken from the index but read again next time."""

_AT_ONCE = 5000
"""Records that are in memory at a time while they are read, and added to the index together."""
_MOST_PARTS = 32
"""Parts that an index may have before it is written whole."""

NAME = "index.parquet"
OWN = ".agentsys"
"""The folder that our store keeps for itself inside a log folder; hidden, so never read as a case."""

_log = logging.getLogger(__name__)


class Stamps(NamedTuple):
    """The marks that files are known by; three lists of one length."""

    file: list[bytes]
    """Path below the folder."""
    size: list[int]
    mtime_ns: list[int]

    def only(self, places: Sequence[int]) -> Stamps:
        """Those of the files at these places."""
        return Stamps(
            [self.file[at] for at in places],
            [self.size[at] for at in places],
            [self.mtime_ns[at] for at in places],
        )


class Lines(NamedTuple):
    """The lines of a listing's files."""

    table: pa.Table
    """Columns `file` (path below the folder, as bytes), `size`, `mtime_ns`, `kind` (`CASE`, `SKIPPED` or
    `OTHER`), `reason`, those of `ROW_FIELDS` (null unless a case). Some lines are of files that are gone."""
    places: list[int]
    """Which line is each file's."""

    def sorted(self) -> pa.Table:
        """The lines of the files alone, in the listing's order: who needs no table spares its imports."""
        if self.places == [*range(len(self.table))]:  # then a copy of it all is spared
            return self.table
        # Not `pa.array`, which imports pandas if it is installed: half a second.
        places = pa.py_buffer(np.asarray(self.places, np.int64))
        return self.table.take(pa.Array.from_buffers(pa.int64(), len(self.places), [None, places]))


class Looked(NamedTuple):
    """A folder at one moment."""

    listing: Listing
    lines: Lines

    @property
    def finished(self) -> dict[str, str]:
        """Record of ours that ended without an error -> the hash of its config."""
        table, places = self.lines
        # Not by Arrow's own functions: the first value it is handed to compare with makes it import pandas.
        names = table.column("file").to_pylist()
        kinds, states, hashes = (plain_list(table.column(one)) for one in ("kind", "status", "config_hash"))
        return {
            os.fsdecode(names[at]): hashes[at]
            for at in places
            if kinds[at] == CASE and states[at] == "ok" and hashes[at] is not None
        }


def looked_up(listing: Listing) -> Lines:
    """Look for the lines of a listing's files; those that are not in the index are parsed, and added to it.

    Args:
        listing: The whole of a folder: an index is kept for it.
    """
    root, started = Path(listing.root), time.time_ns()
    files = listing.files
    stamps = stamps_of(files, listing.root)
    index = _read(root)
    known = index.lines
    known_stamps = Stamps(
        known.column("file").to_pylist(), *(plain_list(known.column(name)) for name in Stamps._fields[1:])
    )
    if known_stamps == stamps:
        return Lines(known, [*range(len(known))])
    places = {stamp: at for at, stamp in enumerate(zip(*known_stamps, strict=True))}
    order = [places.get(stamp) for stamp in zip(*stamps, strict=True)]
    new = [at for at, place in enumerate(order) if place is None]
    _log.debug("Index of %s: %d files read, %d known", root, len(new), len(files) - len(new))
    fresh, written = [], list[Path]()
    for some in (new[at : at + _AT_ONCE] for at in range(0, len(new), _AT_ONCE)):
        fresh.append(parsed([files[at] for at in some], stamps.only(some)))
        lasting = _worth_keeping(fresh[-1], started)
        if len(lasting):
            written.append(_part(root, index.sound or bool(written)))
            _write(written[-1], lasting)
    after = itertools.count(len(known))
    in_order = [next(after) if at is None else at for at in order]
    found = Lines(pa.concat_tables([known, *fresh]), in_order)
    _tidy(root, index, written, found, started)
    return found


def _tidy(root: Path, index: _Index, written: list[Path], found: Lines, started_ns: int) -> None:
    """Write the index whole where it is in many parts, or mostly new, or mostly of files that are no more."""
    stale = len(found.table) - len(found.places)
    mostly_new = len(written) > 1 and len(found.table) > 2 * len(index.lines)
    if mostly_new or stale > len(found.places) // 2 or len(index.parts) + len(written) > _MOST_PARTS:
        _write(index_place(root), _worth_keeping(found.sorted(), started_ns))
        _remove(_parts(index_place(root))[1:])
    elif not index.sound:
        _remove(set(_parts(index_place(root))[1:]).difference(index.parts, written))


def stamps_of(files: Sequence[str], root: str) -> Stamps:
    """Take what files are known by at this moment; one that is gone or out of reach has the size -1."""
    cut = len(os.path.join(root, ""))  # noqa: PTH118
    sizes, times = list[int](), list[int]()
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116  most are files: a third less than by `stamp_of`
        except OSError:
            size, mtime_ns = _sharded_status(file)
            sizes.append(size)
            times.append(mtime_ns)
        else:
            sizes.append(status.st_size)
            times.append(status.st_mtime_ns)
    # All names in one go: no name holds a zero byte.
    names = os.fsencode("\0".join([file[cut:] for file in files])).split(b"\0") if files else []
    return Stamps(names, sizes, times)


def parsed(files: Sequence[str], stamps: Stamps) -> pa.Table:
    """Lines as `looked_up` gives them, for files that are in no index.

    Args:
        files: Their paths.
        stamps: The marks they are known by, in the same order, taken before they are read.
    """
    rows: list[CaseRow | None] = []
    reasons: list[str | None] = []
    for path in files:
        row, reason = None, None
        try:
            row = read_stored(path)
        except UnreadableRecord as fault:
            reason = str(fault)
        rows.append(row)
        reasons.append(reason)
    return lines_of(rows, reasons, stamps)


def lines_of(rows: Sequence[CaseRow | None], reasons: Sequence[str | None], stamps: Stamps) -> pa.Table:
    """Lines as `looked_up` gives them.

    Args:
        rows: The cases; None where there is none.
        reasons: Why there is none; None where the file is something else. As long as `rows`.
        stamps: The marks the files are known by, in the same order.
    """
    kinds = [
        CASE if row is not None else OTHER if reason is None else SKIPPED
        for row, reason in zip(rows, reasons, strict=True)
    ]
    own = zip([*stamps, kinds, reasons], _FILE_FIELDS, strict=True)
    arrays = [pa.array(values, field.type) for values, field in own]
    return pa.Table.from_arrays([*arrays, *row_arrays(rows)], schema=_SCHEMA)


def _sharded_status(file: str) -> tuple[int, int]:
    try:
        _, size, mtime_ns = stamp_of(file)
    except OSError:
        return -1, -1
    return size, mtime_ns


def _worth_keeping(table: pa.Table, started_ns: int) -> pa.Table:
    """Without young files and skipped ones (new permissions mend those and show in neither stamp)."""
    import pyarrow.compute as pc

    old = pc.less(table.column("mtime_ns"), started_ns - _TOO_YOUNG_NS)
    return table.filter(pc.and_(old, pc.not_equal(table.column("kind"), SKIPPED)))


class _Index(NamedTuple):
    """What the parts of an index hold."""

    lines: pa.Table
    parts: list[Path]
    """Those that can be used."""
    sound: bool
    """Whether the first one is among them."""


def _read(root: Path) -> _Index:
    """The index of a folder; empty where there is none that can be used."""
    for place in dict.fromkeys((index_place(root), beside(root))):
        read = {part: table for part in _parts(place) if (table := _read_part(part)) is not None}
        if read:
            return _Index(
                pa.concat_tables(read.values()), list(read), place == index_place(root) and place in read
            )
    return _Index(_SCHEMA.empty_table(), [], sound=False)


def _parts(place: Path) -> list[Path]:
    """The index and what was added to it since it was last written whole, in order."""
    return [place, *sorted(place.parent.glob(f"{place.stem}-*{place.suffix}"))]


def _part(root: Path, sound: bool) -> Path:
    """The place of the next lines: a part of their own where there is an index to be added to."""
    place = index_place(root)
    return place.with_name(f"{place.stem}-{time.time_ns()}-{os.getpid()}{place.suffix}") if sound else place


def _remove(parts: Iterable[Path]) -> None:
    for part in parts:
        with suppress(OSError):
            part.unlink()


def _read_part(place: Path) -> pa.Table | None:
    try:
        with pq.ParquetFile(place, page_checksum_verification=True) as file:
            found = file.read(use_threads=False)  # threads take half as much CPU again for so little
    except FileNotFoundError:
        return None
    except (OSError, pa.ArrowException) as error:
        _log.debug("Index %s cannot be used (%s); it is made anew", place, error)
        return None
    if found.schema.equals(_SCHEMA) and (found.schema.metadata or {}).get(_MARK) == _fingerprint():
        return found
    _log.debug("Index %s is of another version; it is made anew", place)
    return None


def _write(place: Path, table: pa.Table) -> None:
    """Written in full beside its place, then moved there: readers see the old one or the new one."""
    half = place.with_name(f".{place.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            pq.write_table(
                table.replace_schema_metadata({_MARK: _fingerprint()}), half, write_page_checksum=True
            )
            half.replace(place)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("Index %s cannot be written (%s)", place, error)


def index_place(root: Path) -> Path:
    """The place where a folder's index is written, and looked for first.

    A folder that is not ours is never written to.
    """
    own = beside(root)
    return own if own.parent.is_dir() and os.access(own.parent, os.W_OK) else _in_cache(root)


def beside(root: Path) -> Path:
    """Its place in a log folder of ours."""
    return root / OWN / NAME


def _in_cache(root: Path) -> Path:
    """In the user's cache folder (`XDG_CACHE_HOME` where it is set), under a name made of the real path."""
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return user_cache_path("agentsys") / "index" / f"{name}.parquet"


@lru_cache(maxsize=1)
def _fingerprint() -> bytes:
    """A hash of the code that makes rows out of files: no row outlives the code it was made with."""
    room = Path(__file__).parent
    sources = [*room.rglob("*.py"), *room.glob("data/*"), *(room.parent / name for name in _ELSEWHERE)]
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest().encode()


_ELSEWHERE = ("atomic_file.py", "payload_lines.py", "declared_facts.py")
"""What rows depend on outside this room, from the package's folder."""

_SCHEMA = pa.schema([*_FILE_FIELDS, *ROW_FIELDS])
