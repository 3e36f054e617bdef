"""`read_json_bytes`: the text of a JSON file that may be compressed (`store.compress`, zstd); its name says nothing."""

from __future__ import annotations

from pathlib import Path

_MAGIC = b"\x28\xb5\x2f\xfd"
"""Begins a frame of zstd, and no JSON."""
_MOST_BYTES = 256_000_000
"""Largest text that is unpacked: anyone may have written the file."""


def read_json_bytes(path: Path | str) -> bytes:
    """Read a file's JSON text.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is compressed, and damaged or too large.
    """
    # Without a buffer, which costs a tenth over 200,000 files.
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123
        return unpack_json(file.read())


def unpack_json(content: bytes) -> bytes:
    """The JSON text in a file's content; content that is not compressed is given back.

    Raises:
        ValueError: If it is damaged or too large.
    """
    if not content.startswith(_MAGIC):
        return content
    import zstandard  # with the first compressed file

    try:
        if not 0 <= zstandard.frame_content_size(content) <= _MOST_BYTES:
            raise ValueError("compressed, and larger than a record")
        return zstandard.ZstdDecompressor().decompress(content, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"damaged: {error}") from None


def pack_json(text: bytes) -> bytes:
    """The content of a compressed file."""
    import zstandard

    return zstandard.ZstdCompressor().compress(text)
