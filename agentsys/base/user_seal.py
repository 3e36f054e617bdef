"""`add_seal`: marks bytes as written by this user's commands; whoever hands on a folder cannot make the mark."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from platformdirs import user_cache_path

from agentsys.base.atomic_file import PRIVATE, write_atomically

_BYTES = 32
"""Length of a seal, which comes last, and of the key that it is made with."""


def add_seal(content: bytes) -> bytes:
    """Return the bytes with their seal.

    Raises:
        OSError: If the key, which lies in the user's cache folder, can be neither read nor made.
    """
    return content + _compute_seal(content)


def check_seal(sealed: bytes) -> memoryview:
    """Return the bytes before a seal.

    Raises:
        OSError: As `add_seal` does.
        ValueError: If they are damaged, or made by somebody else.
    """
    view = memoryview(sealed)
    if not hmac.compare_digest(_compute_seal(view[:-_BYTES]), view[-_BYTES:]):
        raise ValueError("damaged, or made by somebody else")
    return view[:-_BYTES]


def _compute_seal(content: bytes | memoryview) -> bytes:
    place = user_cache_path("agentsys") / "index" / "key"
    if not place.exists() or place.stat().st_size != _BYTES:
        write_atomically(place, secrets.token_bytes(_BYTES), mode=PRIVATE)
    return hashlib.blake2b(content, key=place.read_bytes(), digest_size=_BYTES).digest()
