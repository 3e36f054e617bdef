"""Downloads data from others' public repositories at pinned states: published runs, ASB; guests add theirs.

Part of a repository's archive is downloaded, checked, and kept as a whole or not at all.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from agentsys.base.atomic_file import write_atomically
from agentsys.benchmarks.asb.asb_data import CHECKSUMS, find_asb_folder
from agentsys.benchmarks.asb.asb_data import URL as ASB_URL
from agentsys.errors import ConfigError
from agentsys.extensions import FETCHED, find_user_data_folder

_TIMEOUT_S = 60.0
_MAX_FILE_BYTES = 32 * 2**20
"""Most bytes of one file; the largest of a published run has 2 MB."""
_MAX_TOTAL_BYTES = 4 * 2**30
"""Most bytes of all files."""
_DOWNLOAD_ERRORS = (OSError, http.client.HTTPException, tarfile.TarError, zlib.error, EOFError, ValueError)


@dataclass(frozen=True)
class ArchivePart:
    """Selection of files of an archive."""

    prefix: str
    """Folder in the repository, with `/` at its end; it is removed from the names."""
    suffixes: tuple[str, ...]
    """Endings of the selected files."""


@dataclass(frozen=True)
class DownloadedFolder:
    """Result of a download."""

    folder: Path
    files: int
    """Number of files in the folder."""
    fresh: bool
    """True if they were downloaded now; False if they existed already."""


def fetch_archive_part(
    url: str, part: ArchivePart, folder: Path, check: Callable[[Path], None]
) -> DownloadedFolder:
    """Download a part of an archive (a `.tar.gz` with a single top folder) into a folder.

    `check` is called with a folder of the files; it raises `ConfigError` if they are not the expected ones.

    Raises:
        ConfigError: If the download fails or has no such part, if the files are not as expected, or if the folder
            has other files already.
    """
    if urlsplit(url).scheme not in {"http", "https"}:
        raise ConfigError(f"--source {url}: give an http or https address of a .tar.gz.")
    if folder.is_dir() and any(folder.iterdir()):
        try:
            check(folder)
        except ConfigError as error:
            raise ConfigError(f"{folder} holds other files already ({error}) Give another --to.") from None
        return DownloadedFolder(folder, _count_files(folder), False)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as beside:
            made = Path(beside) / "files"
            _unpack_archive(url, part, made)
            check(made)
            (made / "SOURCE.txt").write_text(f"{part.prefix} of {url}\n", encoding="utf-8")
            if folder.is_dir():
                folder.rmdir()
            shutil.move(made, folder)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error.strerror}); try another --to.") from None
    return DownloadedFolder(folder, _count_files(folder), True)


def hash_files(folder: Path, pattern: str) -> str:
    """SHA-256, in hex, of the names and contents of the files of a glob pattern, in order of name."""
    files = {path.relative_to(folder).as_posix(): path for path in folder.glob(pattern) if path.is_file()}
    whole = hashlib.sha256()
    for name in sorted(files):
        content = hashlib.sha256(files[name].read_bytes()).hexdigest()
        whole.update(f"{name} {content}\n".encode())
    return whole.hexdigest()


def make_digest_check(known: Mapping[str, str]) -> Callable[[Path], None]:
    """Return a check that compares files with known digests (glob pattern -> digest)."""

    def check(folder: Path) -> None:
        for pattern, expected in known.items():
            if (actual := hash_files(folder, pattern)) != expected:
                raise ConfigError(
                    f"the files {pattern} have SHA-256 {actual}, not {expected}:"
                    " they are not those that were published."
                )

    return check


def _count_files(folder: Path) -> int:
    return sum(path.is_file() and path.name != "SOURCE.txt" for path in folder.rglob("*"))


def _unpack_archive(url: str, part: ArchivePart, into: Path) -> None:
    kept = 0
    try:
        with (
            urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response,
            gzip.GzipFile(fileobj=response) as content,
            tarfile.open(fileobj=content, mode="r|") as archive,
        ):
            for member in archive:
                name = member.name.partition("/")[2]
                if member.isfile() and name.startswith(part.prefix) and name.endswith(part.suffixes):
                    kept += member.size
                    _extract_member(archive, member, into, name.removeprefix(part.prefix), kept)
            # tarfile accepts an archive that is truncated inside a member's header; gzip does not.
            if len(content.read(_MOST_PADDING)) == _MOST_PADDING:
                raise ValueError("the archive goes on behind its end")
    except urllib.error.HTTPError as error:
        raise ConfigError(f"{url}: HTTP {error.code} {error.reason}. {_INSTEAD_HINT}") from None
    except _DOWNLOAD_ERRORS as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise ConfigError(f"{url} cannot be had ({reason}). {_INSTEAD_HINT}") from None
    if not kept:
        raise ConfigError(f"{url} holds no {part.prefix.rstrip('/')}. Nothing was kept.")


def _extract_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, into: Path, name: str, kept: int
) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in re.split(r"[/\\]", name):
        raise ValueError(f"a file named {name!r}")
    if member.size > _MAX_FILE_BYTES or kept > _MAX_TOTAL_BYTES:
        raise ValueError(f"{name} is too large")
    content = archive.extractfile(member)
    target = into / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"" if content is None else content.read())


_MOST_PADDING = 1 << 20
"""Most bytes after an archive's last member, usually a few thousand zeros."""
_INSTEAD_HINT = "Nothing was kept. Give another --source, or unpack the files yourself and name their folder."


ARCHIVE_HOST = "https://codeload.github.com"
_ATTACKED = "*/important_instructions/*.json"


@dataclass(frozen=True)
class RunsSource:
    """Published runs in a repository, `runs/PIPELINE/SUITE/USER_TASK/ATTACK/INJECTION.json`."""

    repository: str
    ref: str
    """A commit, or the tag of a release."""
    default: str
    """The pipeline that is fetched by default."""
    known: Mapping[str, Mapping[str, str]]
    """Pipeline -> pattern of files in its folder -> their digest (`hash_files`)."""

    @property
    def url(self) -> str:
        """Address of the archive."""
        return f"{ARCHIVE_HOST}/{self.repository}/tar.gz/{self.ref}"


RUNS_SOURCES = {
    "agentdojo-runs": RunsSource(
        repository="ethz-spylab/agentdojo",
        # A tag may be moved, so the digests below identify the files.
        ref="refs/tags/v0.1.35",
        default="gpt-4o-mini-2024-07-18",
        known={
            "gpt-4o-mini-2024-07-18": {
                "*/*/none/*.json": "0b6453db3ecdd73a01c11405f8a8c8cb437d68cf48d3d10ea66f898d6fa26069",
                f"*/{_ATTACKED}": "681f8a04e76f5aa178160949fe57762bde311becb6aff28cbbcb796a074c2efc",
            },
            "gpt-4o-2024-05-13-tool_filter": {
                "*/*/none/*.json": "4e6cdecfc370c00011e83b4998fc9b8a252c2175caae8ef59e4012cdfbec755e",
                f"*/{_ATTACKED}": "7dfb6c5cee95a54f1cab25371ad46569dcbfc7514412122b41f0b72e6cdee17f",
            },
        },
    ),
    "drift-runs": RunsSource(
        repository="SaFo-Lab/DRIFT",
        ref="53dbc6c58d5d1f044f3a68636be30b060bb86d34",
        default="gpt-4o-mini-2024-07-18",
        known={
            "gpt-4o-mini-2024-07-18": {
                f"banking/{_ATTACKED}": "e7ba013b7e7aa6fdce3c4009eda0a848e1564b2d34bebf512afed14353597dcc",
                f"travel/{_ATTACKED}": "3f6f980c148859654ac59db62b5583017dd6f570dbf6e23d513b469ecf4ae8b6",
            }
        },
    ),
}
"""Name on the command line -> source."""


def fetch_runs(
    name: str, pipeline: str | None, to: Path | None, source: str | None
) -> tuple[DownloadedFolder, bool]:
    """Download a pipeline's published runs to a folder of its name in `to` (None: in the user's data folder).

    Returns:
        The folder, and True if the runs were compared with known digests.

    Raises:
        ConfigError: If the download fails, the files are not the published ones, or the name is invalid.
    """
    chosen, runs = pipeline or RUNS_SOURCES[name].default, RUNS_SOURCES[name]
    if "/" in chosen or "\\" in chosen or chosen.startswith("."):
        raise ConfigError(f"'{chosen}' is no pipeline's name; {runs.default} is one.")
    known = runs.known.get(chosen, {})
    folder = (to or find_user_data_folder() / name) / chosen
    part = ArchivePart(f"runs/{chosen}/", (".json",))
    return fetch_archive_part(source or runs.url, part, folder, make_digest_check(known)), bool(known)


_ASB_LARGEST = 16 * 2**20
"""Most bytes of a file of ASB; the largest has 0.2 MB."""
_ASB_HINT = "Nothing was kept. Give another --source, or get the files yourself and give benchmark.data=DIR."


def fetch_asb(
    to: Path | None, source: str | None, checksums: Mapping[str, str] = CHECKSUMS
) -> tuple[DownloadedFolder, str]:
    """Download ASB's data files to a folder: either all of them are as expected, or nothing is kept.

    Returns:
        The folder, and the setting that uses it.

    Raises:
        ConfigError: If a download fails, or a file is not the expected one or cannot be written.
    """
    folder, source = to or find_asb_folder(), source or ASB_URL
    setting = f"benchmark=asb benchmark.data={to or FETCHED}"
    if urlsplit(source).scheme not in {"http", "https"}:
        raise ConfigError(f"--source {source}: give an http or https address.")
    if all(_digest_of(folder / name) == checksum for name, checksum in checksums.items()):
        return DownloadedFolder(folder, len(checksums), False), setting
    # Download all files before writing the first.
    contents = {name: _download(f"{source.rstrip('/')}/{name}") for name in checksums}
    for name, content in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        if digest != checksums[name]:
            raise ConfigError(
                f"{name} from {source} has SHA-256 {digest}, not {checksums[name]}: it is not the file that"
                " published results were made with. Nothing was kept. To use other files, give"
                " benchmark.data=DIR."
            )
    note = f"Agent Security Bench (MIT licence, Copyright (c) 2024 AGI Research), from {source}\n"
    try:
        # Each file is written atomically and has been checked, so an interrupted write leaves valid files.
        for name, content in {**contents, "SOURCE.txt": note.encode()}.items():
            write_atomically(folder / name, content)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error.strerror}); try another --to.") from None
    return DownloadedFolder(folder, len(contents), True), setting


def _digest_of(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read(_ASB_LARGEST + 1)
    except urllib.error.HTTPError as error:
        raise ConfigError(f"{url}: HTTP {error.code} {error.reason}. {_ASB_HINT}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise ConfigError(f"{url} cannot be reached ({reason}). {_ASB_HINT}") from None
    if len(content) > _ASB_LARGEST:
        raise ConfigError(f"{url} is larger than {_ASB_LARGEST} bytes, so it is no file of ASB. {_ASB_HINT}")
    return content
