"""`ShardLine`: one record in a shard, a gzip member of its own: it can be read alone and checks itself.

All members together are one gzip file: `zcat FILE.jsonl.gz` shows a line of JSON per record.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.records.unreadable import UnreadableRecord

GONE = "gone"
"""Status of a line that takes a record back: what older lines hold of it counts no more."""

_CHUNK = 1 << 16
_GZIP = 31
"""Window bits by which zlib expects a gzip header and checks the sum at the end."""


class ShardLine(BaseModel):
    """One record, or that there is none any more."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    """The record's path under the log folder."""
    written_ns: int
    """Time of writing, in ns since 1970; of several lines of one key the latest counts."""
    status: str
    """`ok`, `error` or `GONE`."""
    config_hash: str = ""
    file: str = ""
    """Content of the record's own file, to the letter."""

    @property
    def member(self) -> bytes:
        """The line as it is written."""
        return gzip.compress(orjson.dumps(self.model_dump()) + b"\n", compresslevel=6, mtime=0)


class Member(NamedTuple):
    """A whole line found in a shard, and where."""

    line: ShardLine
    offset: int
    end: int


def line_at(shard: Path, offset: int, length: int) -> ShardLine:
    """Read the line at a known place.

    Raises:
        OSError: If the file cannot be read.
        UnreadableRecord: If what is there is no such line.
    """
    with shard.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    try:
        return ShardLine.model_validate_json(gzip.decompress(data))
    except (OSError, EOFError, zlib.error, ValidationError):
        raise UnreadableRecord(
            f"damaged in shard {shard.name}; after `agentsys unpack` its case is run again"
        ) from None


def members(shard: Path, start: int, end: int) -> Iterator[Member]:
    """Find the whole lines between two places; what follows the last one is half a line, or damaged.

    Args:
        shard: The file; it may be growing.
        start: Offset at which a line begins.
        end: Offset at which to stop.
    """
    with shard.open("rb") as file:
        while start < end:
            file.seek(start)
            found = _one(file.read, end - start)
            if found is None:
                return
            line, length = found
            yield Member(line, start, start + length)
            start += length


def _one(read: Callable[[int], bytes], room: int) -> tuple[ShardLine, int] | None:
    inflate, text, taken = zlib.decompressobj(_GZIP), bytearray(), 0
    while not inflate.eof:
        data = read(min(_CHUNK, room - taken)) if taken < room else b""
        if not data:
            return None
        taken += len(data)
        try:
            text += inflate.decompress(data)
        except zlib.error:
            return None
    try:
        return ShardLine.model_validate_json(bytes(text)), taken - len(inflate.unused_data)
    except ValidationError:
        return None
