"""Cutting secrets out of texts that are stored or shown: keys a server echoes, credentials in addresses."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

SECRET_MARK = "***"
"""Stands where a secret was."""

_MIN_RUN = 12
"""Characters of a key that a text must share in a row to lose them; `sk-ant-api03` alone is no secret."""
_BLOCK = 6
"""A run of `_SHORTEST` characters of a key holds one of its blocks of this length whole."""

_USER_INFO = re.compile(r"(?<=://)[^/?#\s@]*@")


def without_credentials(text: str) -> str:
    """The text with user name and password of every address in it masked: `http://***@host/v1`."""
    return _USER_INFO.sub(SECRET_MARK + "@", text) if "://" in text else text


def mask_credentials(value: Any) -> Any:
    """Plain data (dicts, lists, values) with every text `without_credentials`."""
    if isinstance(value, str):
        return without_credentials(value)
    if isinstance(value, dict):
        return {key: mask_credentials(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(mask_credentials(item) for item in value)
    return value


def without_key(text: str, key: str | None) -> str:
    """The text without the key, the longer parts of it, and what base64 makes of it.

    A key shorter than 12 characters stays: it is a stand-in (`none`, `EMPTY`) for servers that want none.
    """
    if not key or len(key) < _MIN_RUN:
        return text
    runs = [run for secret in _key_encodings(key) for run in _find_runs(text, secret)]
    if not runs:
        return text
    pieces, end = [], 0
    for start, stop in _merge_runs(runs):
        pieces += [text[end:start], SECRET_MARK]
        end = stop
    return "".join([*pieces, text[end:]])


@lru_cache(maxsize=16)
def _key_encodings(key: str) -> tuple[str, ...]:
    """The key, and its base64 at each of the three places it may have among other bytes."""
    raw = key.encode()
    coded = {key}
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        # Characters at the ends also depend on the neighbours.
        inner = text[-(-before * 8 // 6) : -1]
        coded |= {inner, inner.replace("+", "-").replace("/", "_")}
    return tuple(sorted(coded))


def _find_runs(text: str, secret: str) -> Iterator[tuple[int, int]]:
    """Find where at least `_SHORTEST` characters in a row are the secret's, by its blocks."""
    for place in range(0, len(secret) - _BLOCK + 1, _BLOCK):
        at = text.find(secret[place : place + _BLOCK])
        while at >= 0:
            start, stop = _extend_run(text, secret, at, place)
            if stop - start >= min(_MIN_RUN, len(secret)):
                yield start, stop
            at = text.find(secret[place : place + _BLOCK], max(stop - _BLOCK, at + 1))


def _extend_run(text: str, secret: str, at: int, place: int) -> tuple[int, int]:
    start, stop = at, at + _BLOCK
    while start > 0 and place > 0 and text[start - 1] == secret[place - 1]:
        start, place = start - 1, place - 1
    length = stop - start
    while stop < len(text) and place + length < len(secret) and text[stop] == secret[place + length]:
        stop, length = stop + 1, length + 1
    return start, stop


def _merge_runs(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, stop in sorted(set(runs)):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(stop, found[-1][1])
        else:
            found.append((start, stop))
    return found
