"""`list_files` and `load_index`: the files under a folder and what they hold, listed and read once.

Both are kept in one JSON file, the index, which is a cache and nothing else. Of each folder it has the time of
change at which it was listed, of each file the size and the time of change at which it was read: where these
still hold, nothing is listed or read again. Whatever is wrong with the index (damaged, another version's,
somebody else's), the disk is asked instead, and it is made anew; deleting it is safe at any time.

Each folder is visited once and hidden ones are passed over. Files with many cases each (ASB's results) are
listed apart, because the index has no place for them.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import time
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from platformdirs import user_cache_path

from agentsys.base.atomic_file import PRIVATE, write_atomically
from agentsys.errors import ConfigError
from agentsys.records.asb_format import is_asb_result
from agentsys.records.case import ATTEMPTS, UnreadableRecord
from agentsys.records.case_row import CaseRow
from agentsys.records.columns import Columns, pack_rows, unpack_rows
from agentsys.records.dump_format import is_dump, is_inspect_name
from agentsys.records.old_shards import LOGDIR_OWN_FOLDER, unpack_shards, unpack_shards_above
from agentsys.records.stored_file import read_case_file

INDEX_NAME = "index.json"
_OLD_NAME = "index.sqlite"
"""Name of the index of versions up to 0.1, which is in nobody's way but for its size."""
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
    files: Mapping[str, tuple[int, int, int]]
    """Path below the root -> the file's stamp, and the number of its row; -1: the file is something else."""
    rows: Columns


_NO_INDEX = StoredIndex({}, {}, {})


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
    known: StoredIndex = _NO_INDEX
    """The folder's index as it was then."""

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
        if _is_table(str(root)):
            return Listing(str(root), {}, [], alone, {})
        return Listing(str(root), alone, [], {}, {})
    indexes = (
        _read_index(place) for place in dict.fromkeys((make_logdir_index_path(root), find_index_path(root)))
    )
    found = Listing(str(root), {}, [], {}, {}, next(filter(None, indexes), _NO_INDEX))
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
        elif name.endswith((".jsonl", ".eval", ".csv")) or is_inspect_name(name):
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
    started_ns = time.time_ns()
    everything = listing.files
    files = everything if files is None else files
    stamps = [_stamp_file(file) for file in files]  # before any is read
    contents = _look_up(listing, files, stamps)
    new = [at for at, content in enumerate(contents) if content is _NOT_THERE]
    for at in new:
        contents[at] = read_content(files[at])
    if new:
        _log.debug("Index of %s: %d files read, %d known", listing.root, len(new), len(files) - len(new))
    if new or len(everything) < len(listing.known.files) or listing.plain_folders != listing.known.folders:
        known = dict(zip(files, zip(stamps, contents, strict=True), strict=True))
        others = [file for file in everything if file not in known]
        marks = [_stamp_file(file) for file in others]
        known |= zip(others, zip(marks, _look_up(listing, others, marks), strict=True), strict=True)
        _write_index(listing, known, started_ns - _TOO_YOUNG_NS)
    return contents


_NOT_THERE = SkippedFile("", "")


def _look_up(listing: Listing, files: Sequence[str], stamps: Sequence[FileStamp]) -> list[FileContent]:
    """Look up files in an index; `_NOT_THERE` for files that are new or have changed."""
    contents: list[FileContent] = [_NOT_THERE] * len(files)
    find, cut = listing.known.files.get, _measure_prefix(listing.root)
    cases, numbers = list[int](), list[int]()
    for at, (file, mark) in enumerate(zip(files, stamps, strict=True)):
        entry = find(file[cut:])
        if entry is not None and entry[:2] == mark:
            if entry[2] < 0:
                contents[at] = None
            else:
                cases.append(at)
                numbers.append(entry[2])
    try:
        rows = unpack_rows(listing.known.rows, [files[at] for at in cases], numbers)
    except ValueError:  # the sum is right: somebody made this who meant us to stumble
        return [_NOT_THERE] * len(files)
    for at, row in zip(cases, rows, strict=True):
        contents[at] = row
    return contents


def read_content(path: str) -> FileContent:
    """Read a file's content from the file itself."""
    try:
        return read_case_file(path)
    except UnreadableRecord as fault:
        return SkippedFile(path, str(fault))


def _stamp_file(path: str) -> FileStamp:
    try:
        status = os.stat(path)  # noqa: PTH116  `path` is a str already
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _read_index(place: Path) -> StoredIndex | None:
    """An index as it is stored; None where there is none that can be used."""
    try:
        if not stat.S_ISREG(place.lstat().st_mode):
            raise ValueError("no plain file")
        total, _, text = place.read_bytes().partition(b"\n")
        if total != b"%08x" % zlib.crc32(text):  # half of a write, or a flipped bit
            raise ValueError("damaged")
        stored = orjson.loads(text)
        if stored["made_by"] != _compute_fingerprint():
            raise ValueError("of another version")
        return _check_index(stored)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        _log.debug("Index %s cannot be used (%s); it is made anew", place, error)
        return None


def _check_index(stored: Mapping[str, Any]) -> StoredIndex:
    """An index from its JSON, which anyone may have written: no name leads out of its folder."""
    folders = {below: PlainFolder(*values) for below, *values in stored["folders"]}
    names = [name for one in folders.values() for some in (one.subfolders, one.files) for name in some]
    if not {*map(type, names)} <= {str} or any("/" in name or name[:1] in ("", ".") for name in names):
        raise ValueError("a name that no listing gives")
    numbers = (at if at < stored["cases"] else -1 for at in range(len(stored["paths"])))
    marks = zip(stored["sizes"], stored["changed_ns"], numbers, strict=True)
    return StoredIndex(folders, dict(zip(stored["paths"], marks, strict=True)), stored["rows"])


def _write_index(
    listing: Listing, known: Mapping[str, tuple[FileStamp, FileContent]], before_ns: int
) -> None:
    """Store what is known of a folder.

    Left out are young files and skipped ones (new permissions mend those and show in no mark), and names that
    are no valid text.
    """
    cut = _measure_prefix(listing.root)
    old = {
        file: (mark, content)
        for file, (mark, content) in known.items()
        if mark[1] < before_ns and not isinstance(content, SkippedFile) and _is_text(file)
    }
    cases = {file: content for file, (_, content) in old.items() if isinstance(content, CaseRow)}
    rows, bad = pack_rows([*cases.values()])
    paths = [file for at, file in enumerate(cases) if at not in bad]
    count = len(paths)
    paths += [file for file, (_, content) in old.items() if content is None]
    stored = {
        "made_by": _compute_fingerprint(),
        "folders": [
            (below, *one) for below, one in listing.plain_folders.items() if _is_text(below, *one.files)
        ],
        "paths": [file[cut:] for file in paths],
        "sizes": [old[file][0][0] for file in paths],
        "changed_ns": [old[file][0][1] for file in paths],
        "cases": count,
        "rows": rows,
    }
    text = orjson.dumps(stored)
    place = find_index_path(Path(listing.root))
    try:
        write_atomically(place, b"%08x\n%b" % (zlib.crc32(text), text), durable=False, mode=PRIVATE)
        place.with_name(_OLD_NAME).unlink(missing_ok=True)
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
    """The place where a folder's index is written.

    A folder that is not ours is never written to.
    """
    own = make_logdir_index_path(root)
    if own.parent.is_dir() and os.access(own.parent, os.W_OK):
        return own
    # In the user's cache folder (`XDG_CACHE_HOME` where it is set), under a name made of the real path.
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return user_cache_path("agentsys") / "index" / f"{name}.json"


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


_OTHER_SOURCES = ("base/payload_lines.py", "base/declared_facts.py")
"""What rows depend on outside this room, from the package's folder."""
