"""`open_runs`: the folder behind what a user names as runs: a folder, a file, a bundle, or an address of one.

The records of a bundle are laid down once, in the user's cache folder, under the bundle's SHA-256.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import lzma
import os
import re
import shutil
import tempfile
import urllib.parse
import urllib.request
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_path

from agentsys.errors import ConfigError

RECORDS = "records"
"""Folder of a bundle that holds the stored cases."""
BUNDLE_LIST = "bundle.json"
"""The member in which a bundle says what it holds."""
MAX_MEMBER_BYTES = 256_000_000
MAX_TOTAL_BYTES = 64_000_000_000
_MAX_DOWNLOAD_BYTES = 4_000_000_000
_ADDRESS = re.compile(r"(https?):/+(.+)", re.DOTALL)
_SAFE_PART = re.compile(r"[^\x00-\x1f/\\:*?\"<>|]{1,255}")
_BLOCK = 1 << 20
_ZIP_BEGINS = b"PK\x03\x04"


def is_safe_member(name: str) -> bool:
    """True if a member's name is a path inside the archive, on any system."""
    parts = name.split("/")
    return len(name) < 2000 and all(_SAFE_PART.fullmatch(part) and part.strip(". ") for part in parts)


def open_runs(given: Path) -> Path:
    """The folder or file to read cases from; what is no bundle and no address is given back as it is.

    Raises:
        ConfigError: If an address cannot be read, or a zip file is no bundle or refused.
    """
    file = fetch_runs(given)
    if file.is_file() and not zipfile.is_zipfile(file):
        with file.open("rb") as content:
            if content.read(len(_ZIP_BEGINS)) == _ZIP_BEGINS or file.suffix == ".zip":
                raise ConfigError(f"{file} is no whole zip file: a broken download, perhaps. Get it again.")
    return _lay_down_records(file) if file.is_file() and zipfile.is_zipfile(file) else file


def fetch_runs(given: Path) -> Path:
    """The file behind an address, downloaded anew each time; any other path is given back as it is.

    Raises:
        ConfigError: If the address cannot be read.
    """
    address = _ADDRESS.fullmatch(str(given))  # a path has swallowed one of the two slashes
    if address is None:
        return given
    url = f"{address[1]}://{address[2]}"
    folder = user_cache_path("agentsys") / "downloads" / hashlib.sha256(url.encode()).hexdigest()[:32]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = Path(urllib.parse.urlsplit(url).path).name
    target = folder / (name if is_safe_member(name) else "runs.zip")
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with urllib.request.urlopen(url, timeout=60) as reply, part.open("wb") as out:
            while block := reply.read(_BLOCK):
                out.write(block)
                if out.tell() > _MAX_DOWNLOAD_BYTES:
                    raise ConfigError(
                        f"{url} is larger than {_MAX_DOWNLOAD_BYTES / 1e9:.0f} GB: load it yourself."
                    )
            announced = reply.headers.get("Content-Length", "")
            if announced.isdecimal() and out.tell() != int(announced):
                raise ConfigError(f"{url} broke off after {out.tell():,} of {announced} bytes. Try again.")
        part.replace(target)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ConfigError(
            f"Cannot read {url}: {error or type(error).__name__}. Is the address right?"
        ) from None
    finally:
        part.unlink(missing_ok=True)
    return target


def _lay_down_records(file: Path) -> Path:
    with file.open("rb") as content:
        mark = hashlib.file_digest(content, "sha256").hexdigest()
    # The last part is what tables call these runs, where they name folders.
    folder = user_cache_path("agentsys") / "bundles" / mark[:32] / file.name.split(".")[0]
    if folder.is_dir():
        return folder
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        made = Path(place) / "runs"
        made.mkdir()
        try:
            with zipfile.ZipFile(file) as archive:
                _write_records(archive, made, file)
        except (FileExistsError, IsADirectoryError, NotADirectoryError) as error:
            raise ConfigError(
                f"{file} is refused: two of its members are one file ({error.filename})."
            ) from None
        except (
            zipfile.BadZipFile,
            zlib.error,
            lzma.LZMAError,
            EOFError,
            NotImplementedError,
            RuntimeError,
        ) as error:
            raise ConfigError(f"{file} is damaged: {error}. Get it again.") from None
        try:
            made.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was faster
                raise
    return folder


def _write_records(archive: zipfile.ZipFile, folder: Path, file: Path) -> None:
    if BUNDLE_LIST not in archive.namelist():
        raise ConfigError(
            f"{file} is no bundle: it has no {BUNDLE_LIST}. Unpack it and give the folder, or make one: "
            "agentsys bundle DIR"
        )
    members = [info for info in archive.infolist() if info.filename.startswith(f"{RECORDS}/")]
    if sum(info.file_size for info in members) > min(MAX_TOTAL_BYTES, shutil.disk_usage(folder).free):
        raise ConfigError(f"{file} is refused: its records take more room than there is.")
    _write_configs(archive.read(BUNDLE_LIST), folder)
    for info in members:
        if not is_safe_member(info.filename) or info.file_size > MAX_MEMBER_BYTES:
            raise ConfigError(f"{file} is refused: its member {info.filename[:80]!r} is no record's.")
        target = folder / info.filename.removeprefix(f"{RECORDS}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        # As plain bytes: a link in the archive becomes a file that holds its target's name.
        with archive.open(info) as packed, target.open("xb") as out:
            shutil.copyfileobj(packed, out, _BLOCK)


def _write_configs(listed: bytes, folder: Path) -> None:
    """Lay down what the cases ran with where a log folder has it, so that other settings are told apart."""
    with suppress(
        ValueError, LookupError, AttributeError, TypeError
    ):  # what is wrong with it a check of the bundle says
        for config_hash, cell in json.loads(listed)["cells"].items():
            if _HASH.fullmatch(config_hash):
                place = folder / ".agentsys" / "configs" / f"{config_hash}.config"
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text(json.dumps(cell["identity"]), encoding="utf-8")


_HASH = re.compile(r"[0-9a-f]{8,64}")
