"""JSON as language models write it: in fences, after prose, with raw line breaks and trailing commas.

For replies that can do no harm by being understood (which passages to cut, which tools only read).
What a worker returns is read by `agentsys.defense.gate`, which forgives less.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_TRIES = 50
"""Braces at which an object or a list is looked for."""
_BRACE = re.compile(r"[{\[]")
_NO_ESCAPE = re.compile(r'\\(?!["\\/bfnrt]|u[0-9A-Fa-f]{4})')
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")


def loose_values(text: str) -> Iterator[Any]:
    """The JSON objects and lists of a text, outermost first; then those of the text with slips mended."""
    yield from _values(text)
    mended = _TRAILING_COMMA.sub(r"\1", _NO_ESCAPE.sub(r"\\\\", text))
    if mended != text:
        yield from _values(mended)


def _values(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(strict=False), 0
    for _ in range(_TRIES):
        brace = _BRACE.search(text, at)
        if brace is None:
            return
        try:
            value, at = decoder.raw_decode(text, brace.start())
        except (ValueError, RecursionError):
            at = brace.end()
            continue
        yield value
