"""The file of a bundle, a zip: written reproducibly, byte for byte, and read as untrusted.

`Manifest` is its member `bundle.json`. A zip's directory lists all members and their sizes before anything is unpacked.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from agentsys.base.object_import import replace_by_registered_names, replace_by_todays_paths
from agentsys.errors import ConfigError
from agentsys.extensions import read_requirements
from agentsys.records.runs_source import BUNDLE_LIST, MAX_MEMBER_BYTES, MAX_TOTAL_BYTES, is_safe_member
from agentsys.runs.settings import read_code_versions

MANIFEST_NAME = BUNDLE_LIST
REPLIES, KEPT, FILES, CODE = "replies", "kept", "files", "code"
"""Folders of a bundle besides its records: replies of models, files that defenses keep, files that options name, and
the user's source files."""
MEMBER_PREFIX = "bundle:"
"""Prefix of an option's value that names a member, e.g. `bundle:files/attack.file/texts.json`."""


class MemberMark(NamedTuple):
    """Size and digest of a member."""

    size: int
    sha256: str


class _ManifestPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BundledCell(_ManifestPart):
    """One cell of the run."""

    settings: Annotated[dict[str, Any], AfterValidator(replace_by_todays_paths)]
    """The recipe's settings, with `bundle:` in place of paths."""
    identity: Annotated[dict[str, Any], AfterValidator(replace_by_registered_names)]
    """Everything that a case's outcome depends on, with `bundle:` in place of paths."""


class Manifest(_ManifestPart):
    """Description of a bundle: everything but the content of its members."""

    format: Literal[1] = 1
    versions: dict[str, str]
    """Package, or `python` -> version on the machine that packed the bundle."""
    cells: dict[str, BundledCell]
    """Config hash in records -> cell."""
    code: list[dict[str, str]]
    """States of our own code that cases were run with: file -> first digits of its SHA-256."""
    data: dict[str, str] = {}
    """Written by earlier versions and ignored: a record has its dataset's hash."""
    unfinished: int = 0
    """Planned cases without a record."""
    members: dict[str, MemberMark]
    """Name of every other member -> its size and digest."""


def parse_manifest(content: bytes, file: object) -> Manifest:
    """Parse a bundle's manifest.

    Raises:
        ConfigError: If it is invalid.
    """
    try:
        return Manifest.model_validate(json.loads(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][:3])
        raise ConfigError(f"{file} is no bundle that this version reads: {where}: {first['msg']}.") from None
    except (ValueError, RecursionError):
        raise ConfigError(f"{file} is no bundle: its {MANIFEST_NAME} is not valid JSON.") from None


_MAX_MEMBERS = 5_000_000
_BROKEN_ZIP_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError)
"""The last where a member is said to stand in front of the file."""


class BundleWriter:
    """Writes a bundle; an existing file is never replaced.

    Raises:
        ConfigError: If the file exists or cannot be created.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.members: dict[str, MemberMark] = {}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._zip = zipfile.ZipFile(file, "x")
        except FileExistsError as error:
            raise ConfigError(
                f"There is a file {error.filename} already: give another one, --out FILE."
            ) from None
        except OSError as error:
            raise ConfigError(f"Cannot write {file}: {error.strerror}. Give another --out.") from None

    def __enter__(self) -> BundleWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._zip.close()
        if kind is not None:
            self.file.unlink()

    def add(self, name: str, content: bytes) -> None:
        """Add a member; names must be added in order, so that two bundles of one folder are equal."""
        self._write_member(name, content)
        self.members[name] = MemberMark(len(content), hashlib.sha256(content).hexdigest())

    def finish(self, manifest: Manifest) -> None:
        """Add the manifest, as the last member."""
        self._write_member(MANIFEST_NAME, manifest.model_dump_json().encode())

    def _write_member(self, name: str, content: bytes) -> None:
        member = zipfile.ZipInfo(name)  # Always dated 1980-01-01.
        member.create_system, member.external_attr = 3, (stat.S_IFREG | 0o644) << 16
        self._zip.writestr(member, content, zipfile.ZIP_DEFLATED, compresslevel=6)


class BundleReader:
    """Reads a bundle. Use as a context manager.

    Raises:
        ConfigError: If the file is no bundle, or holds a link, a path that leads out of it, a name twice, or a
            member that is not listed or is too large.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        if not file.is_file():
            raise ConfigError(f"There is no file {file}.")
        try:
            self._zip = zipfile.ZipFile(file)
        except (*_BROKEN_ZIP_ERRORS, ValueError, UnicodeError) as error:
            raise ConfigError(f"{file} is no bundle: {error}.") from None
        try:
            self._infos = self._check_infos(self._zip.infolist())
            self.manifest = parse_manifest(self._read_content(MANIFEST_NAME), file)
            self._compare_lists()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> BundleReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        self._zip.close()

    def list_members(self, folder: str) -> list[str]:
        """List the members in one of its folders, from the manifest."""
        return sorted(name for name in self.manifest.members if name.startswith(f"{folder}/"))

    def read_member(self, name: str) -> tuple[bytes, bool]:
        """Return a member's content (empty if missing or broken), and True if it is as it was packed."""
        if name not in self._infos:
            return b"", False
        try:
            with self._zip.open(self._infos[name]) as member:
                content = member.read()
        except _BROKEN_ZIP_ERRORS:
            return b"", False
        mark = MemberMark(len(content), hashlib.sha256(content).hexdigest())
        return content, mark == self.manifest.members[name]

    def unpack(self, folder: Path, places: Mapping[str, str]) -> list[str]:
        """Unpack members other than records into a new folder, except those that were changed.

        Changed data files are unpacked all the same: without them no case that needs them could be compared.

        Args:
            folder: The folder; it must be empty.
            places: Folder of the bundle -> its folder below `folder`.

        Returns:
            The members that were changed or are missing.

        Raises:
            ConfigError: If the disk is too small, or a data file is missing.
        """
        wanted = [name for name in self.manifest.members if name.split("/")[0] in places]
        needed = sum(self.manifest.members[name].size for name in wanted)
        if needed > shutil.disk_usage(folder).free:
            raise ConfigError(f"{self.file} takes {needed / 1e9:.1f} GB; {folder} has not so much room.")
        changed = []
        for name in sorted(wanted):
            content, as_packed = self.read_member(name)
            if not as_packed:
                changed.append(name)
            top, _, rest = name.partition("/")
            if not as_packed and top != FILES:
                continue
            if not as_packed and not content:
                raise ConfigError(f"{self.file} has no {_shorten_name(name)}, which its settings name.")
            target = folder / places[top] / rest
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
        return changed

    def _check_infos(self, infos: Iterable[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        by_name: dict[str, zipfile.ZipInfo] = {}
        total = 0
        for info in infos:
            why = _find_trouble(info) or ("there twice" if info.filename in by_name else "")
            total += info.file_size
            if total > MAX_TOTAL_BYTES or len(by_name) >= _MAX_MEMBERS:
                why = "one too many: there is more inside than a bundle may hold"
            if why:
                raise ConfigError(
                    f"{self.file} is refused: its member {_shorten_name(info.filename)} is {why}."
                )
            by_name[info.filename] = info
        if MANIFEST_NAME not in by_name:
            raise ConfigError(
                f"{self.file} is no bundle: it has no {MANIFEST_NAME}. `agentsys bundle DIR` makes one."
            )
        return by_name

    def _read_content(self, name: str) -> bytes:
        try:
            return self._zip.read(self._infos[name])
        except _BROKEN_ZIP_ERRORS as error:
            raise ConfigError(f"{self.file} is damaged: {name} cannot be read ({error}).") from None

    def _compare_lists(self) -> None:
        members = self.manifest.members
        for name in self._infos:
            if name != MANIFEST_NAME and name not in members:
                raise ConfigError(
                    f"{self.file} is refused: its member {_shorten_name(name)} is not in its list."
                )
        for name in members:
            if name == MANIFEST_NAME or not is_safe_member(name):
                raise ConfigError(f"{self.file} is refused: its list has {_shorten_name(name)}.")


def _find_trouble(info: zipfile.ZipInfo) -> str:
    """Return the reason to refuse a member; an empty text if there is none."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if not is_safe_member(info.filename) or info.filename != info.orig_filename:
        return "no path inside a bundle"
    if info.is_dir() or kind not in (0, stat.S_IFREG):
        return "no plain file (a link, a folder or a device)"
    if info.file_size > MAX_MEMBER_BYTES:
        return f"larger than {MAX_MEMBER_BYTES / 1e6:.0f} MB"
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "packed in a way that no bundle is"
    return ""


def _shorten_name(name: str) -> str:
    return ascii(name[:100])


def list_package_versions() -> dict[str, str]:
    """Package -> version: ours, Python, and all required dependencies."""
    versions = {**read_code_versions(), "python": platform.python_version()}
    for name in read_requirements().get(None, ()):
        with suppress(PackageNotFoundError):  # Not needed on this version of Python.
            versions[name.lower()] = version(name)
    return dict(sorted(versions.items()))
