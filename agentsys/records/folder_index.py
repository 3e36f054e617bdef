"""`list_files` and `load_index`: the files under a folder and what they hold, listed and read once.

Both are kept in one file of numpy's (`.npz`), the index, which is a cache and nothing else. Of each folder it has
the time of change at which it was listed, of each file the size and the time of change at which it was read: where
these still hold, nothing is listed or read again. Whatever is wrong with the index (damaged, another version's,
somebody else's), the disk is asked instead, and it is made anew; deleting it is safe at any time. Sizes and times prove
nothing about a folder that somebody handed on, because archives keep them: an index ends in a seal, made with a key of
this user's.

Each folder is visited once and hidden ones are passed over. Files with many cases each (ASB's results) are
listed apart, because the index has no place for them.
"""

from __future__ import annotations

import gc
import hashlib
import io
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from platformdirs import user_cache_path

from agentsys.base.atomic_file import PRIVATE, write_atomically
from agentsys.base.user_seal import add_seal, check_seal
from agentsys.errors import ConfigError
from agentsys.records.asb_format import is_asb_result
from agentsys.records.case import ATTEMPTS, UnreadableRecord
from agentsys.records.case_row import CaseRow
from agentsys.records.columns import Columns
from agentsys.records.dump_format import TABLE_NAME, is_dump
from agentsys.records.old_shards import LOGDIR_OWN_FOLDER, unpack_shards, unpack_shards_above
from agentsys.records.stored_file import read_case_columns

INDEX_NAME = "index.npz"
_OLD_NAMES = ("index.sqlite", "index.json")
"""Names of the indexes of earlier versions, which are in nobody's way but for their size."""
_TOO_YOUNG_NS = 2_000_000_000
"""A file or folder changed so shortly before it was read may change again within one tick of the file system's
clock, unnoticed; it is not taken from the index but read again next time."""

_log = logging.getLogger(__name__)

FolderId = tuple[int, int]
"""Device and inode: the same for every path that leads to a folder."""
FileStamp = tuple[int, int]
"""A file's size and time of change in ns; the size -1 where it is gone or out of reach."""


class SkippedFile(NamedTuple):
    """A file (or a folder that cannot be listed) that was passed over."""

    path: str
    reason: str


FileContent = CaseRow | SkippedFile | None
"""What a file holds: a case, nothing that can be used, or something else (a plan, a cache)."""


class PlainFolder(NamedTuple):
    """A folder that holds files and folders alone (no links, pipes or tables), as it was listed."""

    changed_ns: int
    subfolders: Sequence[str]
    """Their names, sorted, like the next ones."""
    files: Sequence[str]


class StoredIndex(NamedTuple):
    """An index as it was read."""

    folders: Mapping[str, PlainFolder]
    """Path below the root -> folder."""
    files: dict[str, tuple[FileStamp, int]]
    """Path below the root -> the file's stamp, and the number of its row; -1: the file is something else."""
    rows: Columns
    """With those of files that were read since."""


class Listing(NamedTuple):
    """The contents of one given path."""

    root: str
    """The path as it was given; every file's path begins with it."""
    folders: dict[FolderId, list[str]]
    """Folder -> paths of its JSON files; both sorted, a folder before its subfolders."""
    skipped_entries: list[SkippedFile]
    """Folders that may not be looked into, and pipes and devices."""
    asb_results: dict[FolderId, list[str]]
    """Folder -> paths of files with many cases, ASB's results and dumps; only folders that hold some."""
    plain_folders: dict[str, PlainFolder]
    """Path below the root -> folder, of those that need not be listed again while they are unchanged."""
    known: StoredIndex
    """The folder's index as it was then; empty once it has been used."""

    @property
    def files(self) -> list[str]:
        """All paths, in order."""
        return [path for paths in self.folders.values() for path in paths]


class FolderSnapshot(NamedTuple):
    """A folder at one moment."""

    listing: Listing
    contents: Sequence[FileContent]
    """One for each of the listing's files."""

    @property
    def finished_hashes(self) -> dict[str, str]:
        """Record of ours that ended without an error -> the hash of its config."""
        cut = _measure_prefix(self.listing.root)
        return {
            row.source[cut:]: row.config_hash
            for row in self.contents
            if isinstance(row, CaseRow) and row.status == "ok" and row.config_hash is not None
        }


def list_files(root: Path) -> Listing:
    """Every JSON file under a folder; a file given itself is listed whatever its name.

    Args:
        root: A folder or a file. Links are followed; every folder is visited once.

    Raises:
        ConfigError: If there is nothing at this path, or records in shards cannot be turned into files.
    """
    unpack_shards_above(root)
    if not root.exists():
        raise ConfigError(f"No folder '{root}'. Give the log folder of a run, e.g. results/runs.")
    if root.is_file():
        status = root.stat()
        alone = {(status.st_dev, status.st_ino): [str(root)]}
        files, tables = ({}, alone) if _is_table(str(root)) else (alone, {})
        return Listing(str(root), files, [], tables, {}, StoredIndex({}, {}, Columns()))
    indexes = (
        _read_index(place) for place in dict.fromkeys((make_logdir_index_path(root), find_index_path(root)))
    )
    known = next(filter(None, indexes), None) or StoredIndex({}, {}, Columns())
    found = Listing(str(root), {}, [], {}, {}, known)
    before_ns, prefix = time.time_ns() - _TOO_YOUNG_NS, os.path.join(root, "")  # noqa: PTH118
    waiting = [prefix]
    while waiting:
        folder = waiting.pop()
        try:
            subfolders = _list_folder(folder, folder[len(prefix) :], found, before_ns)
        except OSError as error:
            found.skipped_entries.append(SkippedFile(folder[:-1], f"cannot be read ({error.strerror})"))
        else:
            waiting += [f"{folder}{name}/" for name in reversed(subfolders)]
    return found


def _measure_prefix(root: str) -> int:
    """Characters that the paths of a folder's files begin with before they differ."""
    return len(os.path.join(root, ""))  # noqa: PTH118


def _list_folder(folder: str, below: str, found: Listing, before_ns: int) -> Sequence[str]:
    """Enter the files of a folder (a path that ends in `/`) not visited before; the names of its subfolders, sorted."""
    status = os.stat(folder)  # noqa: PTH116  `folder` is a str already
    identity, changed_ns = (status.st_dev, status.st_ino), status.st_mtime_ns
    if identity in found.folders:
        return ()
    listed = found.known.folders.get(below)
    if listed is None or listed.changed_ns != changed_ns:
        listed = _scan_folder(folder, found, identity, changed_ns)
        if listed is None:
            return _list_folder(folder, below, found, before_ns)
    if 0 <= listed.changed_ns < before_ns:
        found.plain_folders[below] = listed
    found.folders[identity] = [f"{folder}{name}" for name in listed.files]
    return listed.subfolders


def _scan_folder(folder: str, found: Listing, identity: FolderId, changed_ns: int) -> PlainFolder | None:
    """List a folder; the time is -1 where it is not plain. None: what was in shards has files now."""
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=attrgetter("name"))
    subfolders, files, tables = list[str](), list[str](), list[str]()
    for entry in entries:
        name = entry.name
        if name[0] == ".":
            if name == LOGDIR_OWN_FOLDER:
                if unpack_shards(folder):
                    return None
                changed_ns = -1
        elif TABLE_NAME.fullmatch(name):
            if _is_endless(entry):
                found.skipped_entries.append(SkippedFile(entry.path, "a pipe or a device, no file"))
            elif _is_table(entry.path):
                tables.append(entry.path)
            changed_ns = -1
        elif name.endswith(".json") and entry.is_file(follow_symlinks=False):
            files.append(name)
        elif _is_folder(entry):
            if not name.endswith(ATTEMPTS):  # a search's attempts are no cases of their own
                subfolders.append(name)
            changed_ns = -1 if entry.is_symlink() else changed_ns
        elif _is_endless(entry):
            found.skipped_entries.append(SkippedFile(entry.path, "a pipe or a device, no file"))
            changed_ns = -1
        elif name.endswith(".json"):
            files.append(name)
            changed_ns = -1
    if tables:
        found.asb_results[identity] = tables
    return PlainFolder(changed_ns, subfolders, files)


def _is_table(path: str) -> bool:
    """True if a file holds many cases, in a form of somebody else's."""
    return is_asb_result(path) if path.endswith(".csv") else is_dump(path)


def _is_endless(entry: os.DirEntry[str]) -> bool:
    """True if this is a pipe, a socket or a device, which would be waited for, or read, for ever."""
    try:
        return not entry.is_file() and not entry.is_dir() and not stat.S_ISREG(entry.stat().st_mode)
    except OSError:  # a link to nothing: whoever reads it says so
        return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link in circles, or into a place out of reach
        return False


def load_index(listing: Listing, files: Sequence[str] | None = None) -> list[FileContent]:
    """Load the content of a folder's files; those that are not in its index are read and added to it.

    Args:
        listing: The whole of a folder: an index is kept for it.
        files: Those of its files that are wanted; None: all.
    """
    before_ns, known = time.time_ns() - _TOO_YOUNG_NS, listing.known
    everything = listing.files
    files = everything if files is None else files
    cut, nowhere = _measure_prefix(listing.root), ((-1, -1), -1)
    entries, contents = dict(known.files), list[FileContent]([None] * len(files))
    numbers, new = [-1] * len(files), list[int]()
    for at, file in enumerate(files):
        below, stamp = file[cut:], _stamp_file(file)
        kept_stamp, numbers[at] = known.files.get(below, nowhere)
        if kept_stamp != stamp or stamp[0] < 0:
            numbers[at] = -1
            new.append(at)
            entries[below] = stamp, -1
    with without_collector():
        for start in range(0, len(new), _READ_AT_ONCE):
            places = new[start : start + _READ_AT_ONCE]
            found = [_read_columns(files[at]) for at in places]
            count = known.rows.count
            known.rows.add([row for row in found if isinstance(row, dict)])
            for at, row in zip(places, found, strict=True):
                below = files[at][cut:]
                if isinstance(row, dict):
                    numbers[at], count = count, count + 1
                    entries[below] = entries[below][0], numbers[at]
                elif row is not None:
                    contents[at] = row
                    del entries[below]
        if new:
            _log.debug("Index of %s: %d files read, %d known", listing.root, len(new), len(files) - len(new))
        if new or len(everything) < len(known.files) or listing.plain_folders != known.folders:
            there = {file[cut:] for file in everything}
            _write_index(listing, {below: entries[below] for below in entries if below in there}, before_ns)
        # Nobody looks anything up any more, and with hundreds of thousands of rows there is no room for both.
        known.files.clear()
        entries.clear()
        are_cases = [number >= 0 for number in numbers]
        cases = known.rows.unpack([*compress(files, are_cases)], [*compress(numbers, are_cases)])
        known.rows.clear()
    for at, case in zip(compress(range(len(files)), are_cases), cases, strict=True):
        contents[at] = case
    return contents


_READ_AT_ONCE = 1000
"""Files that are held as they were read, before their rows are columns."""


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep Python from looking for cycles inside the block: hundreds of thousands of rows hold none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_columns(path: str) -> dict[str, Any] | SkippedFile | None:
    try:
        return read_case_columns(path)
    except UnreadableRecord as fault:
        return SkippedFile(path, str(fault))


def read_content(path: str) -> FileContent:
    """Read a file's content from the file itself."""
    found = _read_columns(path)
    return CaseRow(**found) if isinstance(found, dict) else found


def _stamp_file(path: str) -> FileStamp:
    try:
        status = os.stat(path)  # noqa: PTH116  `path` is a str already
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _read_index(place: Path) -> StoredIndex | None:
    """Read a stored index; None where there is none, or none that this user's commands made."""
    import numpy as np

    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            raise ValueError("no plain file")
        with np.load(io.BytesIO(check_seal(place.read_bytes())), allow_pickle=False) as stored:
            about = orjson.loads(stored["about"].tobytes())
            if about["made_by"] != _compute_fingerprint():
                raise ValueError("of another version")
            return _parse_index(about, stored)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.debug("Index %s cannot be used (%s); it is made anew", place, error)
        return None


def remove_index(root: Path) -> None:
    """Remove a folder's index, so that its files are read anew."""
    for place in (make_logdir_index_path(root), find_index_path(root)):
        if not place.parent.is_symlink():
            with suppress(OSError):
                place.unlink()


def _parse_index(about: Mapping[str, Any], stored: Any) -> StoredIndex:
    folders = {below: PlainFolder(*values) for below, *values in about["folders"]}
    paths, cases = about["paths"], about["cases"]
    stamps = zip(stored["sizes"].tolist(), stored["changed_ns"].tolist(), strict=True)
    numbers = (at if at < cases else -1 for at in range(len(paths)))
    files = dict(zip(paths, zip(stamps, numbers, strict=True), strict=True))
    codes = {name: stored[name] for name in stored.files if name not in _OWN_MEMBERS}
    return StoredIndex(folders, files, Columns.parse(stored["values"].tobytes(), codes, cases))


_OWN_MEMBERS = frozenset({"about", "values", "sizes", "changed_ns"})
"""Members of an index beside the codes, which have the names of columns."""


def _write_index(listing: Listing, entries: Mapping[str, tuple[FileStamp, int]], before_ns: int) -> None:
    """Store what is known of a folder.

    Left out are young files and skipped ones (new permissions mend those and show in no mark), and names that
    are no valid text.
    """
    import numpy as np

    rows = listing.known.rows
    old = [(below, *entry) for below, entry in entries.items() if entry[0][1] < before_ns and _is_text(below)]
    storable = {*rows.find_storable(number for _, _, number in old if number >= 0)}
    cases = [entry for entry in old if entry[2] in storable]
    listed = [*cases, *(entry for entry in old if entry[2] < 0)]
    about = {
        "made_by": _compute_fingerprint(),
        "folders": [
            (below, *one) for below, one in listing.plain_folders.items() if _is_text(below, *one.files)
        ],
        "paths": [below for below, _, _ in listed],
        "cases": len(cases),
    }
    values, codes = rows.dump([number for _, _, number in cases])
    content = io.BytesIO()
    np.savez(
        content,
        about=np.frombuffer(orjson.dumps(about), dtype=np.uint8),
        values=np.frombuffer(values, dtype=np.uint8),
        sizes=np.array([stamp[0] for _, stamp, _ in listed], dtype=np.int64),
        changed_ns=np.array([stamp[1] for _, stamp, _ in listed], dtype=np.int64),
        **codes,
    )
    place = find_index_path(Path(listing.root))
    try:
        write_atomically(place, add_seal(content.getvalue()), durable=False, mode=PRIVATE)
        for name in _OLD_NAMES:
            place.with_name(name).unlink(missing_ok=True)
    except OSError as error:  # out of reach, or the disk is full
        _log.debug("Index %s cannot be written (%s)", place, error)


def _is_text(*names: str) -> bool:
    """True if JSON can hold some names; those of files need not be valid UTF-8."""
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return False
    return True


def find_index_path(root: Path) -> Path:
    """The place where a folder's index is written: never in a folder that is not ours."""
    own = make_logdir_index_path(root)
    # Whoever hands on a folder may have made a link of it that leads to somebody's files.
    if own.parent.is_dir() and not own.parent.is_symlink() and os.access(own.parent, os.W_OK):
        return own
    # In the user's cache folder (`XDG_CACHE_HOME` where it is set), under a name made of the real path.
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return user_cache_path("agentsys") / "index" / f"{name}.npz"


def make_logdir_index_path(root: Path) -> Path:
    """Its place in a log folder of ours."""
    return root / LOGDIR_OWN_FOLDER / INDEX_NAME


@lru_cache(maxsize=1)
def _compute_fingerprint() -> str:
    """A hash of the code that makes rows out of files: no row outlives the code it was made with."""
    room = Path(__file__).parent
    sources = [*room.rglob("*.py"), *room.glob("data/*"), *(room.parent / name for name in _OTHER_SOURCES)]
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()[:32]


_OTHER_SOURCES = ("base/payload_lines.py", "base/declared_facts.py", "base/packed_json.py")
"""What rows depend on outside this room, from the package's folder."""
