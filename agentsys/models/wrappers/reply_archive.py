"""A folder of kept replies as one file, to be published beside a paper, and back."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agentsys.atomic_file import write_atomically
from agentsys.errors import ConfigError
from agentsys.models.wrappers.kept_reply import reply_from
from agentsys.models.wrappers.reply_store import DAMAGED

_NAME = re.compile(r"[0-9a-f]{2}/[0-9a-f]{62}\.json")
_MOST_BYTES = 50_000_000
"""Most bytes of one reply; a longer member of an archive is none."""


@dataclass(frozen=True)
class ReplyCounts:
    """What is in a folder of replies."""

    models: Counter[str]
    """Id of the model that answered -> replies."""
    size: int
    """Bytes of them."""
    damaged: int
    """Files that are no reply as it was stored, those among them that were set aside before."""


@dataclass(frozen=True)
class Taken:
    """What became of an archive's members."""

    new: int
    there: int
    """Replies whose request was answered already; those that were there stay."""
    refused: int
    """Members that are no reply."""


def count_replies(folder: Path) -> ReplyCounts:
    """Read every reply of a folder."""
    models, size = Counter[str](), 0
    damaged = sum(1 for _ in folder.glob(f"*/*{DAMAGED}"))
    for path in reply_files(folder):
        data = path.read_bytes()
        model = _model_of(data)
        damaged += model is None
        if model is not None:
            models[model] += 1
            size += len(data)
    return ReplyCounts(models, size, damaged)


def export_replies(folder: Path, file: Path) -> int:
    """Write a folder's replies into a .tar.gz; the same replies give the same file, byte for byte.

    Returns:
        How many there are.

    Raises:
        ConfigError: If there are none.
        OSError: If the file cannot be written; then it is as it was.
    """
    part = file.with_name(f".{file.name}.part")
    try:
        with (
            part.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w|") as archive,
        ):
            written = sum(_add(archive, folder, path) for path in reply_files(folder))
        if not written:
            raise ConfigError(f"No replies are kept in {folder}.")
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
    return written


def _add(archive: tarfile.TarFile, folder: Path, path: Path) -> bool:
    data = path.read_bytes()
    if _model_of(data) is None:
        return False
    member = tarfile.TarInfo(path.relative_to(folder).as_posix())
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))
    return True


def import_replies(file: Path, folder: Path) -> Taken:
    """Put an archive's replies into a folder. What is there stays; what is no reply stays outside.

    Raises:
        ConfigError: If the file is no such archive.
    """
    new = there = refused = 0
    try:
        with tarfile.open(file) as archive:
            for name, data in _members(archive):
                target = folder / name
                if data is None or not _NAME.fullmatch(name) or _model_of(data) is None:
                    refused += 1
                elif target.exists():
                    there += 1
                else:
                    write_atomically(target, data, durable=False)
                    new += 1
    except (tarfile.TarError, EOFError, OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read as an archive of replies: {error}.") from None
    return Taken(new, there, refused)


def _members(archive: tarfile.TarFile) -> Iterator[tuple[str, bytes | None]]:
    for member in archive:
        if member.isdir():
            continue
        small = member.isfile() and member.size <= _MOST_BYTES
        content = archive.extractfile(member) if small else None
        yield member.name, None if content is None else content.read()


def reply_files(folder: Path) -> list[Path]:
    """The files of a folder that are named as replies are, in order."""
    return sorted(
        path for path in folder.glob("*/*.json") if _NAME.fullmatch(f"{path.parent.name}/{path.name}")
    )


def _model_of(data: bytes) -> str | None:
    """Id of the model that answered; None if this is no reply."""
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        return reply_from(json.loads(data)).model_id
    return None
