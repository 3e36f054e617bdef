"""Downloads ASB's data files from their public source, and keeps them only if they are the ones expected."""

from __future__ import annotations

import hashlib
import http.client
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agentsys.benchmarks.asb.asb_data import CHECKSUMS
from agentsys.errors import ConfigError

TIMEOUT_S = 30.0
_LARGEST = 16 * 2**20
"""Bytes of a file that are read at most; the largest has 0.2 MB."""
_NOTE = "SOURCE.txt"


@dataclass(frozen=True)
class FetchedAsb:
    """Result of a download."""

    folder: Path
    files: tuple[str, ...]
    """The files that were downloaded; none if all were there already."""


def fetch_asb(
    folder: Path, source: str, checksums: Mapping[str, str] = CHECKSUMS, timeout_s: float = TIMEOUT_S
) -> FetchedAsb:
    """Get the files into a folder. Either all of them arrive as expected, or nothing is kept.

    Args:
        folder: Folder that they go to; made if it is not there.
        source: Address of the folder that holds them, `http` or `https`.
        checksums: File -> SHA-256, in hex.
        timeout_s: Seconds without an answer after which a download is given up.

    Raises:
        ConfigError: If a file cannot be had, is not the one expected, or cannot be written.
    """
    if urlsplit(source).scheme not in {"http", "https"}:
        raise ConfigError(f"--source {source}: give an http or https address.")
    if all(_digest_of(folder / name) == checksum for name, checksum in checksums.items()):
        return FetchedAsb(folder, ())
    # All of them before the first is kept.
    contents = {name: _download(f"{source.rstrip('/')}/{name}", timeout_s) for name in checksums}
    for name, content in contents.items():
        _check_digest(source, name, content, checksums[name])
    note = f"Agent Security Bench (MIT licence, Copyright (c) 2024 AGI Research), from {source}\n"
    _write_files(folder, {**contents, _NOTE: note.encode()})
    return FetchedAsb(folder, tuple(contents))


def _digest_of(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _download(url: str, timeout_s: float) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as response:
            content: bytes = response.read(_LARGEST + 1)
    except urllib.error.HTTPError as error:
        raise ConfigError(f"{url}: HTTP {error.code} {error.reason}. {_INSTEAD}") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise ConfigError(f"{url} cannot be reached ({reason}). {_INSTEAD}") from None
    if len(content) > _LARGEST:
        raise ConfigError(f"{url} is larger than {_LARGEST} bytes, so it is no file of ASB. {_INSTEAD}")
    return content


def _check_digest(source: str, name: str, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ConfigError(
            f"{name} from {source} has SHA-256 {found}, not {expected}: it is not the file that published"
            " results were made with. Nothing was kept. To use other files, give benchmark.data=DIR."
        )


def _write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Each file appears whole or not at all; all of them are checked, so any mixture is right."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as beside:
            for name, content in contents.items():
                (Path(beside) / name).write_bytes(content)
            for name in contents:
                (Path(beside) / name).replace(folder / name)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written ({error.strerror}); try another --to.") from None


_INSTEAD = "Nothing was kept. Give another --source, or get the files yourself and give benchmark.data=DIR."
